/** Conformance of strided operands: outputs and inputs that are views of wider rows. */

import type { Device } from '../device.ts'
import { indexScores } from '../ops/index-scores.ts'
import { rmsNorm } from '../ops/rms-norm.ts'
import { sparsePrefill } from '../ops/sparse-prefill.ts'
import { topK } from '../ops/top-k.ts'
import type { DeviceTensor } from '../tensor/device-tensor.ts'
import { slots } from '../tensor/spaces.ts'
import { both, type ConformanceCase, holds, judge, type Verdict } from './case.ts'
import { collect, ints, normals } from './data.ts'
import { sameBits } from './gates.ts'
import { countPoison, poisoned } from './poison.ts'
import { seeded } from './random.ts'

const tokens = 3
const keys = 40
const heads = 2

type Outputs = Readonly<Record<string, DeviceTensor>>

/** A call with one output into a view of wider rows: the bits of the dense call, and nothing between the rows is touched. */
async function intoView(device: Device, name: string, call: (into: Outputs) => object): Promise<Verdict> {
  const dense = (await collect(call({}) as Outputs))[name]!
  const width = dense.shape.at(-1)!
  const last = dense.shape.length - 1
  const wide = device.upload(poisoned(dense.dtype, dense.shape.with(-1, width + 9)))
  const { [name]: _, ...others } = call({ [name]: wide.narrow(last, 4, width) }) as Outputs
  await collect(others)
  const { all } = await collect({ all: wide })
  const gaps = countPoison(all)
  const expected = (dense.size / width) * 9
  return both(
    judge(sameBits(all.narrow(last, 4, width), dense, 'a view of wider rows')),
    holds(gaps === expected, `${gaps} elements between the rows are as before, ${expected} lie there`),
  )
}

const random = seeded(12)
const x = normals(random, 'f32', [tokens, heads, 40])
const scoring = {
  q: normals(random, 'bf16', [tokens, heads, 32]),
  qScale: normals(random, 'f32', [tokens, heads]),
  keys: { values: normals(random, 'bf16', [keys, 32]) },
  window: 'all',
} as const
const attention = {
  q: normals(random, 'bf16', [tokens, heads, 576]),
  cache: { format: 'plain', values: normals(random, 'bf16', [1, 1, keys, 576]), scaleBlock: 0, layer: 0 },
  indices: slots(
    ints(
      'i32',
      [tokens, 8],
      Array.from({ length: tokens * 8 }, () => random.int(keys)),
    ),
  ),
  scale: 0.07,
} as const

export const viewCases: readonly ConformanceCase[] = [
  {
    op: 'sparsePrefill',
    name: 'into a view of wider rows',
    run: device => intoView(device, 'out', into => sparsePrefill(device, { ...attention, into })),
  },
  {
    op: 'indexScores',
    name: 'into a view of wider rows',
    run: device => intoView(device, 'scores', into => indexScores(device, { ...scoring, into })),
  },
  {
    op: 'topK',
    name: 'into a view of wider rows, from a view of wider rows',
    run(device) {
      const scores = normals(seeded(13), 'f32', [tokens, 60]).narrow(1, 7, keys)
      return intoView(device, 'indices', into => topK(device, { scores, k: 9, into }))
    },
  },
  {
    op: 'rmsNorm',
    name: 'into a view of wider rows, from a view of wider rows',
    run(device) {
      const args = { x: x.narrow(2, 3, 30), weight: normals(seeded(14), 'f32', [30]), eps: 1e-6 }
      return intoView(device, 'out', into => rmsNorm(device, { ...args, into }))
    },
  },
]
