/** Conformance of `indexTopK`: the same bits as `indexScores` and `topK` one after the other. */

import type { Device } from '../device.ts'
import { indexScores } from '../ops/index-scores.ts'
import { type IndexTopKArgs, indexTopK } from '../ops/index-top-k.ts'
import { topK } from '../ops/top-k.ts'
import type { Tensor } from '../tensor/tensor.ts'
import { type ConformanceCase, judge, type Verdict } from './case.ts'
import { collect, ints, normals, poisonedOutputs, scalesAbove } from './data.ts'
import { sameBits } from './gates.ts'
import { filledIndexPool } from './pools.ts'
import { type Random, seeded } from './random.ts'

type Call = Omit<IndexTopKArgs, 'into'>

/** One call against the two steps on the same device. */
async function asTwoSteps(device: Device, args: Call): Promise<Verdict> {
  const tokens = args.q.shape[0]!
  const into = poisonedOutputs(device, { indices: ['i32', [tokens, args.k]], counts: ['i32', [tokens]] })
  indexTopK(device, { ...args, into } as never)
  const actual = await collect(into)
  const { k, order, slots, fused: _, budgetBytes: __, ...scoring } = args
  const { rowOffsets, validLength } = args
  const { scores } = indexScores(device, scoring)
  const steps = await collect({ ...topK(device, { scores, k, order, slots, rowOffsets, validLength } as never) })
  scores.dispose()
  return judge(
    sameBits(actual.indices, steps.indices as Tensor, 'indices'),
    sameBits(actual.counts, steps.counts as Tensor, 'counts'),
  )
}

/** Queries over 150 contiguous keys. */
function contiguousArgs(random: Random): Call {
  return {
    q: normals(random, 'e4m3', [4, 6, 64]),
    qScale: normals(random, 'f32', [4, 6], 0.1),
    keys: { values: normals(random, 'e4m3', [150, 64]), scales: scalesAbove(random, [150], 0.01) },
    window: 'causal',
    k: 40,
  }
}

/** Two sequences over planar blocks, mapped to slots. */
function pagedArgs(random: Random): Call {
  const { pool, blockTable, blocks, pageSize } = filledIndexPool(
    random,
    { format: 'planar', depth: 128 },
    { lengths: [88, 30], pageSize: 16 },
  )
  return {
    q: normals(random, 'e4m3', [4, 3, 128]),
    qScale: normals(random, 'f32', [4, 3], 0.1),
    keys: { pool, blockTable, cacheLength: ints('u32', [2], [87, 27]) },
    rowOffsets: ints('u32', [3], [0, 1, 4]),
    window: 'causal',
    k: 40,
    slots: { blockTable, pageSize, blocks },
  }
}

const options: Readonly<Record<string, (args: Call) => Call>> = {
  fused: args => args,
  'in two steps': args => ({ ...args, fused: false }),
  "order 'index'": args => ({ ...args, order: 'index' }),
  'k beyond the keys': args => ({ ...args, k: 300 }),
  'all scores equal': args => ({ ...args, qScale: zeroed(args.qScale as Tensor<'f32'>) }),
}

/** Weights of 0: every score is 0. */
function zeroed(t: Tensor<'f32'>): Tensor<'f32'> {
  const copy = t.clone()
  copy.data.fill(0)
  return copy
}

export const indexTopKCases: readonly ConformanceCase[] = Object.entries(options).flatMap(([name, change]) => [
  {
    op: 'indexTopK',
    name: `${name}, contiguous keys`,
    run: (device: Device) => asTwoSteps(device, change(contiguousArgs(seeded(5)))),
  },
  {
    op: 'indexTopK',
    name: `${name}, planar blocks, two sequences, to slots`,
    run: (device: Device) => asTwoSteps(device, change(pagedArgs(seeded(6)))),
  },
])
