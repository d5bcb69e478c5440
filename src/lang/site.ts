/** Where the author wrote something, as text. */

import type { Site } from './ir.ts'

const ownFrame = /[\\/](?:lang|sim|ptx)[\\/](?!.*\.test\.)/

/** The author's `file:line`: the first stack frame outside the language, the printers and the simulator. */
export function lineOf(site: Site | undefined): string {
  const frames = site?.stack?.split('\n').slice(1) ?? []
  const frame = frames.find(text => text.includes(':') && !ownFrame.test(text) && !text.includes('node:internal'))
  return /\(?((?:file:\/\/)?[^\s()]+:\d+):\d+\)?$/.exec(frame?.trim() ?? '')?.[1] ?? 'unknown line'
}
