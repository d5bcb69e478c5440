/** Picture of where a step's time goes: a bar a case, a piece of it for each stage. */

import type { BenchResult } from '../bench/bench.ts'
import {
  element,
  type Frame,
  faintInk,
  ink,
  type LegendEntry,
  label,
  legend,
  picture,
  rule,
  ticks,
  xAt,
} from './plot-svg.ts'

/** One bar: a case and its stages, in their order. */
export interface StageBar {
  readonly name: string
  readonly stages: readonly { readonly name: string; readonly us: number }[]
}

export interface StageChart {
  readonly title: string
  readonly subtitle: string
  /** Bars that share an axis, one list below the other. */
  readonly panels: readonly (readonly StageBar[])[]
}

const [left, width, rowHeight, barHeight, panelGap] = [210, 620, 34, 22, 76]
const colours = ['#4a6785', '#7d9bb5', '#8aa68b', '#c9a24d', '#b3382c', '#8a6f9e', '#c3c8d0']

/** Bars of the results that have stages: those of a kind, by the first word of their names, share an axis. */
export function stageChart(title: string, subtitle: string, results: readonly BenchResult[]): string | undefined {
  const bars = results.flatMap(({ name, stages }) => (stages === null ? [] : [{ name, stages }]))
  if (bars.length === 0) return undefined
  const kindOf = ({ name }: StageBar): string => /^\w*/.exec(name)![0]
  const panels = [...new Set(bars.map(kindOf))].map(kind => bars.filter(bar => kindOf(bar) === kind))
  return stagePicture({ title, subtitle, panels })
}

export function stagePicture({ title, subtitle, panels }: StageChart): string {
  const names = [...new Set(panels.flat(2).flatMap(({ stages }) => stages.map(({ name }) => name)))]
  const parts: string[] = []
  let top = 74
  for (const bars of panels) {
    parts.push(panelOf(bars, names, top))
    top += bars.length * rowHeight + panelGap
  }
  const entries = names.map((name, i): LegendEntry => ({ sample: swatch(colourOf(i)), text: name }))
  return picture(
    left + width + 190,
    Math.max(top, 74 + 22 * names.length + 20),
    title,
    label(24, 28, title, { 'font-size': 16, 'font-weight': 600 }),
    label(24, 48, subtitle, { fill: faintInk }),
    ...parts,
    legend(left + width + 60, 74, entries),
  )
}

const colourOf = (i: number): string => colours[i % colours.length]!

const swatch = (fill: string): string => element('rect', { width: 14, height: 14, fill })

const totalOf = ({ stages }: StageBar): number => stages.reduce((sum, { us }) => sum + us, 0)

function panelOf(bars: readonly StageBar[], names: readonly string[], top: number): string {
  const most = Math.max(...bars.map(totalOf), Number.MIN_VALUE)
  const height = bars.length * rowHeight
  const frame: Frame = { left, top, width, height, x: [0, 1.08 * most], y: [0, 1] }
  const [unit, perUnit] = most >= 2000 ? ['ms', 1000] : ['µs', 1]
  const bottom = top + height
  const marks = ticks(0, frame.x[1] / perUnit, 8).flatMap(tick => {
    const x = xAt(frame, tick * perUnit)
    return [
      element('path', { d: `M${x} ${top}V${bottom}`, stroke: rule }),
      label(x, bottom + 16, String(Number(tick.toPrecision(6))), { 'text-anchor': 'middle' }),
    ]
  })
  const axis = label(left + width / 2, bottom + 34, `${unit} a step`, { 'text-anchor': 'middle' })
  return [...marks, axis, ...bars.map((bar, row) => barOf(bar, names, frame, top + row * rowHeight, perUnit))].join('')
}

function barOf(bar: StageBar, names: readonly string[], frame: Frame, top: number, perUnit: number): string {
  const y = top + (rowHeight - barHeight) / 2
  const parts = [label(left - 10, y + barHeight / 2 + 4, bar.name, { 'text-anchor': 'end', fill: ink })]
  let done = 0
  for (const { name, us } of bar.stages) {
    const [from, to] = [xAt(frame, done), xAt(frame, done + Math.max(0, us))]
    const tip = element('title', {}, `${name} ${us.toFixed(1)} µs`)
    const box = { x: from, y, width: to - from, height: barHeight, fill: colourOf(names.indexOf(name)) }
    parts.push(element('rect', box, tip))
    done += Math.max(0, us)
  }
  const total = (totalOf(bar) / perUnit).toPrecision(3)
  parts.push(label(xAt(frame, done) + 6, y + barHeight / 2 + 4, total))
  return parts.join('')
}
