import { expect, test } from 'vitest'
import { stageChart, stagePicture } from './plot-stages.ts'

const stages = (...us: number[]) => us.map((value, i) => ({ name: `stage ${i}`, us: value }))

test('pieces follow each other, as long as their stages', () => {
  const svg = stagePicture({
    title: 'a <title>',
    subtitle: 'b',
    panels: [[{ name: 'one', stages: stages(10, 30) }], [{ name: 'two', stages: stages(1000, 2000, 1000) }]],
  })
  const pieces = [...svg.matchAll(/<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)" height="22" fill="(#\w+)">/g)]
  const [x, width] = [1, 2].map(group => pieces.map(piece => Number(piece[group])))
  expect(pieces).toHaveLength(5)
  expect(width![1]! / width![0]!).toBeCloseTo(3, 2)
  expect(x![1]).toBeCloseTo(x![0]! + width![0]!, 1)
  expect(width![3]! / width![2]!).toBeCloseTo(2, 2)
  expect(pieces[0]![3]).toBe(pieces[2]![3])
  expect(new Set(pieces.slice(2).map(piece => piece[3])).size).toBe(3)
  expect(svg).toContain('a &lt;title&gt;')
  expect([...svg.matchAll(/>(ms|µs) a step</g)].map(match => match[1])).toEqual(['µs', 'ms'])
})

test('results without stages have no chart; kinds have an axis each', () => {
  const result = (name: string, parts: ReturnType<typeof stages> | null) => ({ name, stages: parts }) as never
  expect(stageChart('a', 'b', [result('x', null)])).toBeUndefined()
  const svg = stageChart('a', 'b', [
    result('prefill, 8', stages(5)),
    result('decode, 1', stages(2)),
    result('prefill, 9', stages(4)),
  ])!
  expect(svg.match(/a step</g)).toHaveLength(2)
  expect(svg.indexOf('prefill, 9')).toBeLessThan(svg.indexOf('decode, 1'))
})
