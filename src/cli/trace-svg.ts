/** A timeline as a picture: a row a warp, under it the engines, time from left to right. */

import type { Card, Span, Timeline, Track } from '../emit/example-run.ts'
import { element, faintInk, label, legend, picture, rule, ticks } from './plot-svg.ts'

const [left, top, plotWidth, rowHeight, bar] = [190, 62, 1060, 18, 12]
const waitFill = '#e3e5e9'

/** Told apart also without colour vision: Okabe and Ito. */
const palette = ['#0072b2', '#e69f00', '#009e73', '#cc79a7', '#56b4e9', '#d55e00', '#8a6d00', '#7a7a7a'] as const

/** Spans shorter than this many pixels join their neighbour. */
const least = 0.6

/** @param title what it is of, and that it is an estimate */
export function timelinePicture(timeline: Timeline, { clockHz }: Card, title: string): string {
  const tracks = rowsOf(timeline)
  const end = Math.max(1, timeline.end)
  const colours = coloursOf(timeline)
  const x = (cycles: number): number => left + (cycles / end) * plotWidth
  const first = Math.min(...tracks.map(({ block }) => block))
  const isCluster = tracks.some(({ block }) => block !== first)
  const nameOf = ({ block, name }: Track): string => (isCluster ? `${block - first}: ${name}` : name)
  const bottom = top + tracks.length * rowHeight
  const rows = tracks.flatMap((track, i) => {
    const y = top + i * rowHeight
    const spans = timeline.spans.filter(span => span.track === track)
    return [
      label(left - 8, y + bar, nameOf(track), { 'text-anchor': 'end', 'font-size': 11 }),
      ...merged(spans, plotWidth / end).map(({ name, kind, start, end: stop }) =>
        element(
          'rect',
          {
            x: x(start),
            y: y + 2,
            width: Math.max(0.3, x(stop) - x(start)),
            height: bar,
            fill: kind === 'wait' ? waitFill : colours.get(name)!,
          },
          element('title', {}, `${kind === 'wait' ? 'waits: ' : ''}${name}, ${Math.round(stop - start)} cycles`),
        ),
      ),
    ]
  })
  const grid = ticks(0, end, 10).flatMap(tick => [
    element('path', { d: `M${x(tick)} ${top - 4}V${bottom + 4}`, stroke: rule, 'stroke-width': 0.6 }),
    label(x(tick), bottom + 20, String(tick), { 'text-anchor': 'middle', fill: faintInk, 'font-size': 11 }),
  ])
  const micro = ((1e6 * end) / clockHz).toFixed(1)
  const note = label(left, bottom + 40, `cycles; ${Math.round(end)} = ${micro} µs at ${clockHz / 1e9} GHz`, {
    fill: faintInk,
    'font-size': 11,
  })
  const entries = [...colours, ['waiting', waitFill] as const].map(([name, fill]) => ({
    sample: element('rect', { width: 14, height: 12, fill }),
    text: name,
  }))
  const half = Math.ceil(entries.length / 2)
  return picture(
    left + plotWidth + 30,
    bottom + 62 + 22 * half,
    title,
    label(left, 28, title, { 'font-size': 15, 'font-weight': 600 }),
    label(left, 46, `one ${isCluster ? 'cluster' : 'block'} of the launch: the one that took longest`, {
      fill: faintInk,
    }),
    ...grid,
    ...rows,
    note,
    legend(left, bottom + 54, entries.slice(0, half)),
    legend(left + 330, bottom + 54, entries.slice(half)),
  )
}

/** Tracks that did anything, block by block, the engines of each after its warps. */
const rowsOf = ({ tracks, spans }: Timeline): Track[] => {
  const used = new Set(spans.map(({ track }) => track))
  const order = ({ block, kind, index }: Track): number => block * 1e4 + (kind === 'engine' ? 5e3 : 0) + index
  return tracks.filter(track => used.has(track)).sort((a, b) => order(a) - order(b))
}

/** A colour for each kind of work, in the order of first appearance. */
function coloursOf({ spans }: Timeline): Map<string, string> {
  const names = [...new Set(spans.filter(({ kind }) => kind === 'work').map(({ name }) => name))]
  return new Map(names.map((name, i) => [name, palette[i % palette.length]!]))
}

/** Joins neighbours of one name, and drops what is too short to be seen. */
function merged(spans: readonly Span[], pixels: number): Pick<Span, 'name' | 'kind' | 'start' | 'end'>[] {
  const out: { name: string; kind: Span['kind']; start: number; end: number }[] = []
  for (const { name, kind, start, end } of [...spans].sort((a, b) => a.start - b.start)) {
    const last = out.at(-1)
    const isShort = (end - start) * pixels < least
    if (
      last !== undefined &&
      (start - last.end) * pixels < least &&
      (isShort || (last.name === name && last.kind === kind))
    )
      last.end = Math.max(last.end, end)
    else out.push({ name, kind, start, end })
  }
  return out
}
