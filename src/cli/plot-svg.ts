/** Text of SVG pictures: elements, axes, legends. */

type Attributes = Readonly<Record<string, string | number>>

const escapes: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' }

export const escapeText = (text: string): string => text.replaceAll(/[&<>"]/g, c => escapes[c]!)

/** One element; children are markup, not text. */
export function element(name: string, attributes: Attributes, ...children: readonly string[]): string {
  const list = Object.entries(attributes).map(([key, value]) => ` ${key}="${escapeText(short(value))}"`)
  return children.length === 0
    ? `<${name}${list.join('')}/>`
    : `<${name}${list.join('')}>${children.join('')}</${name}>`
}

const short = (value: string | number): string =>
  typeof value === 'string' ? value : String(Math.round(value * 100) / 100)

/** A piece of text at a point. */
export const label = (x: number, y: number, text: string, attributes: Attributes = {}): string =>
  element('text', { x, y, ...attributes }, escapeText(text))

export const ink = '#33363b'
export const faintInk = '#8a8f98'
export const rule = '#d5d8dd'

/** A whole picture with its styles; dimensions in CSS pixels. */
export function picture(width: number, height: number, title: string, ...children: readonly string[]): string {
  const root = {
    xmlns: 'http://www.w3.org/2000/svg',
    viewBox: `0 0 ${width} ${height}`,
    width,
    height,
    role: 'img',
    'font-family': 'system-ui, sans-serif',
    'font-size': 12,
    fill: ink,
  }
  const paper = element('rect', { width, height, fill: '#ffffff' })
  return `${element('svg', root, element('title', {}, escapeText(title)), paper, ...children)}\n`
}

/** The part of a picture that data is drawn in, and the range it shows. */
export interface Frame {
  readonly left: number
  readonly top: number
  readonly width: number
  readonly height: number
  readonly x: readonly [number, number]
  /** From the bottom to the top of the frame. */
  readonly y: readonly [number, number]
}

export const xAt = ({ left, width, x }: Frame, value: number): number => left + ((value - x[0]) / (x[1] - x[0])) * width

export const yAt = ({ top, height, y }: Frame, value: number): number =>
  top + height - ((value - y[0]) / (y[1] - y[0])) * height

/** Round numbers inside `[low, high]`, about `count` of them: multiples of 1, 2 or 5 times a power of ten. */
export function ticks(low: number, high: number, count: number): number[] {
  const rough = (high - low) / count
  const power = 10 ** Math.floor(Math.log10(rough))
  const step = [1, 2, 5, 10].map(m => m * power).find(s => s >= rough)!
  const first = Math.ceil(low / step - 1e-9)
  return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, i) => (first + i) * step)
}

/** Frame, ticks and titles of both axes. */
export function axes(frame: Frame, xTitle: string, yTitle: string): string {
  const { left, top, width, height } = frame
  const bottom = top + height
  const range = (from: readonly [number, number]): [number, number] => [Math.min(...from), Math.max(...from)]
  const parts = [element('rect', { x: left, y: top, width, height, fill: 'none', stroke: rule })]
  for (const tick of ticks(...range(frame.x), Math.max(2, width / 80))) {
    const x = xAt(frame, tick)
    parts.push(element('path', { d: `M${x} ${bottom}v5`, stroke: faintInk }))
    parts.push(label(x, bottom + 18, tickText(tick), { 'text-anchor': 'middle' }))
  }
  for (const tick of ticks(...range(frame.y), Math.max(2, height / 36))) {
    const y = yAt(frame, tick)
    parts.push(element('path', { d: `M${left} ${y}h-5`, stroke: faintInk }))
    parts.push(label(left - 8, y + 4, tickText(tick), { 'text-anchor': 'end' }))
  }
  parts.push(label(left + width / 2, bottom + 36, xTitle, { 'text-anchor': 'middle' }))
  const middle = top + height / 2
  const turned = `rotate(-90 ${left - 48} ${middle})`
  parts.push(label(left - 48, middle, yTitle, { 'text-anchor': 'middle', transform: turned }))
  return parts.join('')
}

const tickText = (value: number): string => String(Number(value.toPrecision(6)))

/** A sample of what the data looks like, and what it means. */
export interface LegendEntry {
  /** Markup of the sample, drawn in a box of 14 by 14. */
  readonly sample: string
  readonly text: string
}

/** Entries one below the other. */
export function legend(x: number, y: number, entries: readonly LegendEntry[]): string {
  return entries
    .map(({ sample, text }, i) => {
      const row = y + i * 22
      return element('g', { transform: `translate(${x} ${row})` }, sample) + label(x + 22, row + 11, text)
    })
    .join('')
}
