/** The top k of the float64 scores rounded to f32, on host tensors: the references of the two steps, one after the other. */

import type { IndexTopKArgs } from '../../ops/index-top-k.ts'
import { tensor } from '../../tensor/tensor.ts'
import { indexScoresReference } from '../index-scores/reference.ts'
import { type TopKReference, topKReference } from '../top-k/reference.ts'

/** All tensors of `args` on the host. */
export function indexTopKReference(args: IndexTopKArgs): TopKReference {
  const { k, order, slots, rowOffsets, validLength } = args
  const { tokens, width, scores } = indexScoresReference({ ...args, into: undefined })
  const matrix = tensor('f32', [tokens, width], Float32Array.from(scores))
  return topKReference({ scores: matrix, k, order, slots, rowOffsets, validLength })
}
