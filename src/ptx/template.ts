/**
 * PTX templates of instruction records: `{name}` is an operand, `{mod:name}` a modifier, `{%t:.b32}` a temporary,
 * `{label:word}` a label, `{smem}` the start of shared memory, `{{` and `}}` are braces.
 */

/** Text as it is, or a place to fill. */
export type Part =
  | string
  | { readonly kind: 'operand' | 'modifier' | 'label'; readonly name: string }
  | { readonly kind: 'temporary'; readonly name: string; readonly type: string }

const place = /\{\{|\}\}|\{%(\w+):(\.\w+)\}|\{mod:(\w+)\}|\{label:(\w+)\}|\{(\w+)\}/g

function parseLine(line: string): readonly Part[] {
  const parts: Part[] = []
  let end = 0
  for (const match of line.matchAll(place)) {
    const [whole, temporary, type, modifier, label, operand] = match
    if (match.index > end) parts.push(line.slice(end, match.index))
    end = match.index + whole.length
    if (whole === '{{' || whole === '}}') parts.push(whole[0]!)
    else if (temporary !== undefined) parts.push({ kind: 'temporary', name: temporary, type: type! })
    else if (modifier !== undefined) parts.push({ kind: 'modifier', name: modifier })
    else if (label !== undefined) parts.push({ kind: 'label', name: label })
    else parts.push({ kind: 'operand', name: operand! })
  }
  if (end < line.length) parts.push(line.slice(end))
  return parts
}

const parsed = new Map<string, readonly (readonly Part[])[]>()

/** The lines of a template. Each template is parsed once: a kernel uses few, thousands of times. */
export function templateLines(template: string): readonly (readonly Part[])[] {
  let lines = parsed.get(template)
  if (lines === undefined) {
    lines = template.split('\n').map(parseLine)
    parsed.set(template, lines)
  }
  return lines
}
