/** Picture of which keys each token selected: a row a token, a column a key, with the causal edge. */

import { axes, element, type Frame, faintInk, type LegendEntry, label, legend, picture, xAt, yAt } from './plot-svg.ts'

/** The keys of each token, as positions in its sequence; negative entries stand for none. */
export type KeyLists = readonly ArrayLike<number>[]

export interface SelectionData {
  readonly title: string
  readonly subtitle: string
  /** Keys there are. */
  readonly keys: number
  /** Position of the first token; token t sees the keys up to `firstPosition + t`. */
  readonly firstPosition: number
  readonly selected: KeyLists
  /** What another implementation selected, to show the difference. */
  readonly stored?: KeyLists | undefined
}

/** Tokens and keys up to which each pair has a cell of its own; larger matrices are drawn in about `coarseCells` cells a side. */
const fineCells = 512
const coarseCells = 256
const side = 560
/** Upper ends of the shades: finer where little is selected, as with 2048 of 65 536 keys. */
const shades = [0.05, 0.1, 0.25, 0.5, 1]

const both = '#4a6785'
const onlyHere = '#d9822b'
const onlyStored = '#2a9d8f'
const future = '#f0f1f3'

export function selectionPicture(data: SelectionData): string {
  const tokens = data.selected.length
  const { keys } = data
  const frame: Frame = { left: 72, top: 70, width: side, height: side, x: [0, keys], y: [tokens, 0] }
  const longest = Math.max(tokens, keys)
  const step = longest <= fineCells ? 1 : Math.ceil(longest / coarseCells)
  const grid = step === 1 && data.stored !== undefined ? differenceGrid(data, data.stored) : shadeGrid(data, step)
  return picture(
    frame.left + side + 250,
    frame.top + side + 56,
    data.title,
    label(frame.left, 28, data.title, { 'font-size': 16, 'font-weight': 600 }),
    label(frame.left, 48, data.subtitle, { fill: faintInk }),
    futureArea(frame, data),
    ...grid.layers.map(layer => cells(frame, layer, step)),
    causalEdge(frame, data),
    axes(frame, 'key (position in the sequence)', 'query token'),
    legend(frame.left + side + 24, frame.top, [...grid.legend, ...edgeLegend]),
  )
}

/** Cells of one colour, as runs along each row. */
interface Layer {
  readonly fill: string
  /** `[row, first column, columns]`. */
  readonly runs: readonly (readonly [number, number, number])[]
}

interface Grid {
  readonly layers: readonly Layer[]
  readonly legend: readonly LegendEntry[]
}

/** One cell a key: selected here, in the file, or in both. */
function differenceGrid({ selected, keys }: SelectionData, stored: KeyLists): Grid {
  const classes = selected.map((list, t) => {
    const row = new Uint8Array(keys)
    for (const key of positions(list, keys)) row[key] = 1
    for (const key of positions(stored[t] ?? [], keys)) row[key]! |= 2
    return row
  })
  const kinds = [
    { code: 3, fill: both, text: 'selected in both' },
    { code: 1, fill: onlyHere, text: 'only in this run' },
    { code: 2, fill: onlyStored, text: 'only in the file' },
  ]
  return {
    layers: kinds.map(({ code, fill }) => ({ fill, runs: runsOf(classes, code) })),
    legend: kinds.map(({ fill, text, code }) => {
      const count = classes.reduce((sum, row) => sum + row.reduce((n, c) => n + Number(c === code), 0), 0)
      return { sample: swatch(fill), text: `${text}: ${count}` }
    }),
  }
}

/** Cells of `step` tokens by `step` keys, the darker the more of them are selected. */
function shadeGrid({ selected, keys }: SelectionData, step: number): Grid {
  const [rows, columns] = [Math.ceil(selected.length / step), Math.ceil(keys / step)]
  const counts = Array.from({ length: rows }, () => new Uint32Array(columns))
  for (const [t, list] of selected.entries())
    for (const key of positions(list, keys)) counts[Math.floor(t / step)]![Math.floor(key / step)]!++
  const full = step * step
  const level = (count: number): number => (count === 0 ? 0 : shades.findIndex(end => count <= full * end) + 1)
  const levels = counts.map(row => Uint8Array.from(row, count => level(Math.min(count, full))))
  const codes = step === 1 ? [shades.length] : shades.map((_, i) => i + 1)
  const fill = (code: number): string => mix(code / shades.length)
  const share = (code: number): string => `${100 * (shades[code - 2] ?? 0)} to ${100 * shades[code - 1]!} %`
  const text = (code: number): string => (step === 1 ? 'selected' : `selected: ${share(code)}`)
  return {
    layers: codes.map(code => ({ fill: fill(code), runs: runsOf(levels, code) })),
    legend: [
      ...codes.map(code => ({ sample: swatch(fill(code)), text: text(code) })),
      ...(step === 1 ? [] : [{ sample: '', text: `of a cell of ${step} tokens by ${step} keys` }]),
    ],
  }
}

function* positions(list: ArrayLike<number>, keys: number): Generator<number, void> {
  for (let i = 0; i < list.length; i++) if (list[i]! >= 0 && list[i]! < keys) yield list[i]!
}

function runsOf(rows: readonly Uint8Array[], code: number): [number, number, number][] {
  const runs: [number, number, number][] = []
  for (const [row, classes] of rows.entries())
    for (let start = 0; start < classes.length; start++) {
      if (classes[start] !== code) continue
      let end = start + 1
      while (classes[end] === code) end++
      runs.push([row, start, end - start])
      start = end
    }
  return runs
}

function cells(frame: Frame, { fill, runs }: Layer, step: number): string {
  if (runs.length === 0) return ''
  const scale = `scale(${(frame.width * step) / frame.x[1]} ${(frame.height * step) / frame.y[0]})`
  const d = runs.map(([row, column, length]) => `M${column} ${row}h${length}v1h-${length}z`).join('')
  return element('path', {
    transform: `translate(${frame.left} ${frame.top}) ${scale}`,
    d,
    fill,
    'shape-rendering': 'crispEdges',
  })
}

/** Corners of the step at each token: it sees the keys left of `firstPosition + t + 1`. */
function edgePoints(frame: Frame, { selected, keys, firstPosition }: SelectionData): string[] {
  const points: string[] = []
  const stride = Math.max(1, Math.floor(selected.length / fineCells))
  for (let t = 0; t < selected.length; t += stride) {
    const x = xAt(frame, Math.max(0, Math.min(keys, firstPosition + t + 1)))
    points.push(`${x} ${yAt(frame, t)}`, `${x} ${yAt(frame, Math.min(selected.length, t + stride))}`)
  }
  return points.map(point => point.replaceAll(/(\.\d\d)\d+/g, '$1'))
}

function futureArea(frame: Frame, data: SelectionData): string {
  const right = frame.left + frame.width
  const corners = `M${edgePoints(frame, data).join('L')}L${right} ${frame.top + frame.height}L${right} ${frame.top}z`
  return element('path', { d: corners, fill: future })
}

const causalEdge = (frame: Frame, data: SelectionData): string =>
  element('path', { d: `M${edgePoints(frame, data).join('L')}`, fill: 'none', stroke: '#b3382c', 'stroke-width': 1 })

const swatch = (fill: string): string => element('rect', { width: 14, height: 14, fill })

const edgeLegend: readonly LegendEntry[] = [
  {
    sample: element('rect', { width: 14, height: 14, fill: '#ffffff', stroke: '#d5d8dd' }),
    text: 'visible, not selected',
  },
  {
    sample: element('rect', { width: 14, height: 14, fill: future, stroke: '#d5d8dd' }),
    text: 'later than the token: not visible',
  },
  { sample: element('path', { d: 'M0 7h14', stroke: '#b3382c', 'stroke-width': 2 }), text: 'causal edge' },
]

/** From near white to the full colour. */
function mix(share: number): string {
  const channel = (at: number): string => {
    const full = Number.parseInt(both.slice(at, at + 2), 16)
    return Math.round(240 + (full - 240) * share)
      .toString(16)
      .padStart(2, '0')
  }
  return `#${channel(1)}${channel(3)}${channel(5)}`
}
