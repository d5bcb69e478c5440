/** What reading a header from an untrusted file needs beyond `JSON.parse`; shared by safetensors and npy. */

export const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** Whether a value is a list of sizes or offsets: integers from 0 to 2^53 - 1. */
export const isSizes = (value: unknown): value is number[] =>
  Array.isArray(value) && value.every(size => Number.isSafeInteger(size) && size >= 0)

const shownCharacters = 120

/**
 * A parsed JSON value as an error message shows it: cut at 120 characters, nested values by their kind only, since a
 * hostile header may nest deeper than `JSON.stringify` can follow.
 */
export function showJson(value: unknown): string {
  if (value === undefined) return 'missing'
  const text = Array.isArray(value) ? `[${value.slice(0, shownCharacters).map(showItem).join(', ')}]` : showItem(value)
  return text.length > shownCharacters ? `${text.slice(0, shownCharacters)}…` : text
}

function showItem(value: unknown): string {
  if (Array.isArray(value)) return 'an array'
  if (isObject(value)) return 'an object'
  return JSON.stringify(typeof value === 'string' ? value.slice(0, shownCharacters) : value)
}

/**
 * The first key that one object of `json` holds twice; `JSON.parse` silently keeps the last.
 *
 * @param json text that `JSON.parse` accepts
 */
export function repeatedKey(json: string): string | undefined {
  const colon = /[ \t\r\n]*:/y
  const openObjects: Set<string>[] = []
  for (let at = 0; at < json.length; at++) {
    const character = json[at]
    if (character === '{') openObjects.push(new Set())
    else if (character === '}') openObjects.pop()
    else if (character === '"') {
      const end = closingQuote(json, at)
      colon.lastIndex = end + 1
      if (colon.test(json)) {
        const key = JSON.parse(json.slice(at, end + 1)) as string
        const keys = openObjects.at(-1)!
        if (keys.has(key)) return key
        keys.add(key)
      }
      at = end
    }
  }
  return undefined
}

function closingQuote(json: string, openingQuote: number): number {
  let at = openingQuote + 1
  while (json[at] !== '"') at += json[at] === '\\' ? 2 : 1
  return at
}
