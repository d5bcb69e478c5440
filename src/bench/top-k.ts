/** Exact selection against sorting whole rows. */

import { topK } from '../ops/top-k.ts'
import { type Tensor, tensor } from '../tensor/tensor.ts'
import { type Bench, deviceRunner } from './bench.ts'
import { noise } from './data.ts'

const rows = 64
const width = 65_536
const k = 2048

const sortName = 'Float32Array.prototype.sort of each row'

/** Rows that selection by buckets or samples could be slow on. */
const scoresOf: Readonly<Record<string, ((i: number) => number) | undefined>> = {
  f32: undefined,
  'all equal': () => 1,
  ascending: i => i,
  'one crowded bucket': i => 1 + ((i * 40_503) % width) / 2 ** 20,
  'a plateau of zeros': i => Math.max(0, (i % 1000) - 990),
}

const scores = (name: string): Tensor<'f32'> => {
  const score = scoresOf[name]
  if (score === undefined) return noise('f32', [rows, width], 1)
  return tensor(
    'f32',
    [rows, width],
    Float32Array.from({ length: rows * width }, (_, i) => score(i % width)),
  )
}

const shapeOf = (count: number) =>
  ({
    op: 'topK',
    shape: `${rows} rows of ${width}, k ${count}`,
    flops: 0,
    bytes: 4 * rows * width + 4 * rows * count,
  }) as const

const select = (name: string, count: number): Bench => ({
  ...shapeOf(count),
  name,
  against: sortName,
  prepare(device) {
    const uploaded = device.upload(scores(name))
    return deviceRunner(device, [uploaded], () => Object.values(topK(device, { scores: uploaded, k: count })))
  },
})

const sort: Bench = {
  ...shapeOf(k),
  name: sortName,
  prepare() {
    const { data } = scores('f32')
    return {
      async sample() {
        const copy = data.slice()
        const start = performance.now()
        for (let row = 0; row < rows; row++) copy.subarray(row * width, (row + 1) * width).sort()
        return performance.now() - start
      },
      [Symbol.dispose]() {},
    }
  },
}

export const topKBenches: readonly Bench[] = [
  ...Object.keys(scoresOf).map(name => select(name, k)),
  { ...select('f32', k / 2), name: 'f32, half as many' },
  sort,
]
