/** Where the author wrote something, as text. */

import type { Site } from './ir.ts'

const ownFrame = /[\\/](?:lang|sim|ptx)[\\/](?!.*\.test\.)/

/** Of sites that have been asked for: a simulation reports the same place again and again. */
const known = new WeakMap<Site, string>()

/** The author's `file:line`: the first stack frame outside the language, the printers and the simulator. */
export function lineOf(site: Site | undefined): string {
  if (site === undefined) return unknownLine
  let line = known.get(site)
  if (line === undefined) known.set(site, (line = findLine(site)))
  return line
}

const unknownLine = 'unknown line'

function findLine({ stack }: Site): string {
  const frames = stack?.split('\n').slice(1) ?? []
  const frame = frames.find(text => text.includes(':') && !ownFrame.test(text) && !text.includes('node:internal'))
  return /\(?((?:file:\/\/)?[^\s()]+:\d+):\d+\)?$/.exec(frame?.trim() ?? '')?.[1] ?? unknownLine
}
