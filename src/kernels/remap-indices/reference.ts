/**
 * Logical positions to slots in plain arithmetic, on host tensors (spec §2):
 *
 *   slots[t, j] = block · pageSize + i mod pageSize      i = indices[t, j], block = blockTable[sequence of t, ⌊i / pageSize⌋]
 */

import type { RemapIndicesArgs } from '../../ops/remap-indices.ts'
import type { SlotArgs } from '../../ops/selection-args.ts'
import type { QuerySequenceArgs } from '../../ops/sequences.ts'
import type { AnyTensor } from '../../tensor/device-tensor.ts'
import { type Tensor, tensor } from '../../tensor/tensor.ts'

/** The integers of a host tensor. */
export const integersOf = (t: AnyTensor<'i32' | 'u32'>): number[] => Array.from((t as Tensor<'i32' | 'u32'>).codes())

/** The sequence of each token, -1 for a token of none. */
export function sequencesOfTokens({ rowOffsets, validLength }: QuerySequenceArgs, tokens: number): number[] {
  if (validLength !== undefined) {
    const lengths = integersOf(validLength)
    const rows = tokens / lengths.length
    return Array.from({ length: tokens }, (_, t) => {
      const b = Math.floor(t / rows)
      return t - b * rows < lengths[b]! ? b : -1
    })
  }
  const offsets = rowOffsets === undefined ? [0, tokens] : integersOf(rowOffsets)
  return Array.from({ length: tokens }, (_, t) => offsets.findLastIndex(first => first <= t))
}

/** Slot of a position of a sequence, -1 when there is none. */
export function slotReference(slots: SlotArgs, sequence: number, position: number): number {
  const { blockTable, pageSize, blocks } = slots
  const maxPages = blockTable.shape[1]!
  const page = Math.floor(position / pageSize)
  if (sequence < 0 || position < 0 || page >= maxPages) return -1
  const block = integersOf(blockTable)[sequence * maxPages + page]!
  return block < blocks ? block * pageSize + (position % pageSize) : -1
}

/** All tensors of `args` on the host. */
export function remapIndicesReference(args: RemapIndicesArgs): Tensor<'i32'> {
  const [tokens, topk] = args.indices.shape as [number, number]
  const sequences = sequencesOfTokens(args, tokens)
  const slots = integersOf(args.indices).map((index, at) =>
    slotReference(args.slots, sequences[Math.floor(at / topk)]!, index | 0),
  )
  return tensor('i32', [tokens, topk], Int32Array.from(slots))
}
