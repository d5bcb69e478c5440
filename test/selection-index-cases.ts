/** Arguments and checks for tests of scoring with selection. */

import type { Device } from '../src/device.ts'
import { indexScores } from '../src/ops/index-scores.ts'
import { type IndexTopKArgs, indexTopK } from '../src/ops/index-top-k.ts'
import { fromFloats, tensor } from '../src/tensor/tensor.ts'
import { poisoned } from './gates.ts'
import { filled, type HostScoring } from './index-cases.ts'
import { expectSelection, type HostSelection, selectionOf } from './selection-cases.ts'

type Case = Omit<IndexTopKArgs, 'into'>

/** The outputs of indexTopK, which held poison before. */
export async function fusedOf(device: Device, args: Case): Promise<HostSelection> {
  const tokens = args.q.shape[0]!
  using indices = device.upload(poisoned('i32', [tokens, args.k]))
  using counts = device.upload(poisoned('i32', [tokens]))
  indexTopK(device, { ...args, into: { indices, counts } })
  return { indices: await indices.read(), counts: await counts.read() }
}

/** indexScores with -inf outside the windows, then topK over whole rows. */
export async function twoOperations(device: Device, args: Case): Promise<HostSelection> {
  const { k, order, slots, fused: _fused, budgetBytes: _budget, ...scoring } = args
  const { rowOffsets, validLength } = scoring
  using scores = indexScores(device, scoring).scores
  return selectionOf(device, { scores, k, order, slots, rowOffsets, validLength })
}

/** Holds indexTopK against the two operations. */
export async function expectIndexTopK(device: Device, args: Case): Promise<HostSelection> {
  const found = await fusedOf(device, args)
  expectSelection(found, await twoOperations(device, args))
  return found
}

/** One query for which key i has exactly the score `score(i)`. */
export const rankedBy = (keys: number, score: (i: number) => number): HostScoring => {
  const unit = Float32Array.from({ length: 16 }, (_, d) => (d === 0 ? 1 : 0))
  const values = new Float32Array(keys * 16)
  for (let j = 0; j < keys; j++) values[j * 16] = 1
  return {
    q: tensor('f32', [1, 1, 16], unit),
    qScale: filled([1, 1], 1),
    keys: {
      values: tensor('f32', [keys, 16], values),
      scales: fromFloats(
        'f32',
        [keys],
        Float32Array.from({ length: keys }, (_, i) => score(i)),
      ),
    },
  }
}
