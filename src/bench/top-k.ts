/** Exact selection against sorting whole rows. */

import { topK } from '../ops/top-k.ts'
import { type Bench, deviceRunner } from './bench.ts'
import { noise } from './data.ts'

const rows = 64
const width = 65_536
const k = 2048

const shared = {
  op: 'topK',
  shape: `${rows} rows of ${width}, k ${k}`,
  flops: 0,
  bytes: 4 * rows * width + 4 * rows * k,
} as const

const sortName = 'Float32Array.prototype.sort of each row'

const select: Bench = {
  ...shared,
  name: 'f32',
  against: sortName,
  prepare(device) {
    const scores = device.upload(noise('f32', [rows, width], 1))
    return deviceRunner(device, [scores], () => Object.values(topK(device, { scores, k })))
  },
}

const sort: Bench = {
  ...shared,
  name: sortName,
  prepare() {
    const scores = noise('f32', [rows, width], 1).data
    return {
      async sample() {
        const copy = scores.slice()
        const start = performance.now()
        for (let row = 0; row < rows; row++) copy.subarray(row * width, (row + 1) * width).sort()
        return performance.now() - start
      },
      [Symbol.dispose]() {},
    }
  },
}

export const topKBenches: readonly Bench[] = [select, sort]
