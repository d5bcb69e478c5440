/** Picture of indexer score against key position, a panel a token: what the selection was made from. */

import {
  axes,
  element,
  type Frame,
  faintInk,
  type LegendEntry,
  label,
  legend,
  picture,
  rule,
  ticks,
  xAt,
  yAt,
} from './plot-svg.ts'

export interface TokenScores {
  readonly token: number
  /** Score of each key; -inf where the token does not see it. */
  readonly scores: ArrayLike<number>
  readonly selected: ArrayLike<number>
}

export interface ScoreData {
  readonly title: string
  readonly subtitle: string
  readonly panels: readonly TokenScores[]
}

const width = 760
const panelHeight = 150
const panelStep = 216

const taken = '#4a6785'
const left = '#c3c8d0'
const cut = '#b3382c'

export function scorePicture({ title, subtitle, panels }: ScoreData): string {
  const height = 100 + panels.length * panelStep
  return picture(
    72 + width + 200,
    height,
    title,
    label(72, 28, title, { 'font-size': 16, 'font-weight': 600 }),
    label(72, 48, subtitle, { fill: faintInk }),
    ...panels.map((panel, i) => panelOf(panel, 86 + i * panelStep)),
    legend(72 + width + 20, 86, keyLegend),
  )
}

function panelOf({ token, scores, selected }: TokenScores, top: number): string {
  const finite = Array.from(scores, (score, key) => ({ key, score })).filter(({ score }) => Number.isFinite(score))
  const values = finite.map(({ score }) => score)
  const frame: Frame = {
    left: 72,
    top,
    width,
    height: panelHeight,
    x: [0, Math.max(1, scores.length)],
    y: yRange(values),
  }
  const chosen = new Set(Array.from(selected).filter(key => key >= 0))
  const lowest = finite.reduce((least, { key, score }) => (chosen.has(key) ? Math.min(least, score) : least), Infinity)
  const [above, below] = [true, false].map(side => finite.filter(({ key }) => chosen.has(key) === side))
  return [
    label(72, top - 8, `token ${token}: ${above!.length} of ${finite.length} visible keys selected`, {
      'font-weight': 600,
    }),
    zeroLine(frame),
    dots(frame, below!, left),
    dots(frame, above!, taken),
    Number.isFinite(lowest) ? cutLine(frame, lowest) : '',
    axes(frame, 'key (position in the sequence)', 'score'),
  ].join('')
}

/** The values with a margin, on round numbers. */
function yRange(values: readonly number[]): [number, number] {
  const low = values.reduce((least, x) => Math.min(least, x), 0)
  const high = values.reduce((most, x) => Math.max(most, x), 0)
  const margin = low === high ? 1 : (high - low) * 0.06
  return [low === 0 ? 0 : low - margin, high + margin]
}

/** A dot a key; where several keys share a column of pixels, the highest and the lowest of them stay. */
function dots(frame: Frame, points: readonly { readonly key: number; readonly score: number }[], fill: string): string {
  const kept = new Map<number, { high: number; low: number }>()
  for (const { key, score } of points) {
    const x = Math.round(xAt(frame, key + 0.5) * 2) / 2
    const seen = kept.get(x)
    kept.set(x, { high: Math.max(seen?.high ?? score, score), low: Math.min(seen?.low ?? score, score) })
  }
  const at = (x: number, score: number): string => `M${x} ${yAt(frame, score).toFixed(1)}h0`
  const d = [...kept].map(([x, { high, low }]) => at(x, high) + (low === high ? '' : at(x, low))).join('')
  return d === '' ? '' : element('path', { d, stroke: fill, 'stroke-width': 4, 'stroke-linecap': 'round' })
}

const zeroLine = (frame: Frame): string =>
  ticks(...frame.y, 4).includes(0)
    ? element('path', { d: `M${frame.left} ${yAt(frame, 0)}h${frame.width}`, stroke: rule })
    : ''

const cutLine = (frame: Frame, score: number): string =>
  element('path', {
    d: `M${frame.left} ${yAt(frame, score)}h${frame.width}`,
    stroke: cut,
    'stroke-dasharray': '5 4',
  })

const dot = (stroke: string): string =>
  element('path', { d: 'M7 7h0', stroke, 'stroke-width': 7, 'stroke-linecap': 'round' })

const keyLegend: readonly LegendEntry[] = [
  { sample: dot(taken), text: 'selected key' },
  { sample: dot(left), text: 'visible, not selected' },
  {
    sample: element('path', { d: 'M0 7h14', stroke: cut, 'stroke-width': 2, 'stroke-dasharray': '5 4' }),
    text: 'lowest selected score',
  },
]
