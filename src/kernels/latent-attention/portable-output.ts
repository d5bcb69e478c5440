/** What a block of the portable kernel leaves: the results of its token's heads, or partial ones for a merge. */

import type { Buffer } from '../../lang/buffer.ts'
import type { KernelBuilder } from '../../lang/builder.ts'
import type { Val } from '../../lang/value.ts'
import { finishRow, finishValue } from '../attention-finish.ts'
import type { AttentionTile } from '../attention-tile.ts'
import { emptySplit } from '../merge-splits-kernel.ts'
import type { TokenPlace } from './portable-keys.ts'

type U32 = Val<'u32'>

/** Columns of V, the first of a row. */
export const nope = 512

export interface OutputBound {
  readonly sink: Buffer<'f32'>
  readonly heads: U32
  readonly splits: U32
  readonly out: Buffer<'f32' | 'bf16'>
  readonly outSequenceStride: U32
  readonly outQueryStride: U32
  readonly outHeadStride: U32
  readonly lse: Buffer<'f32'>
  readonly lseSequenceStride: U32
  readonly lseQueryStride: U32
  readonly maxLogits: Buffer<'f32'>
  readonly maxLogitsSequenceStride: U32
  readonly maxLogitsQueryStride: U32
  readonly partial: Buffer<'f32'>
  readonly states: Buffer<'f32'>
}

/** A block's token, and its number in the launch. */
export interface BlockToken extends TokenPlace {
  readonly local: U32
}

export interface BlockOutput {
  readonly tile: AttentionTile
  readonly token: BlockToken
  readonly firstHead: U32
}

/** out, lse and maxLogits; a barrier comes before. */
export function finish(k: KernelBuilder, p: OutputBound, { tile, token, firstHead }: BlockOutput, sink: boolean): void {
  const at = (head: U32, sequenceStride: U32, queryStride: U32) =>
    k.offset(k.offset(head, token.sequence, sequenceStride), token.query, queryStride)
  const factors = tile.scoreLanes().map(lane => {
    const head = firstHead.add(lane)
    const { m, l } = tile.stateOf(lane)
    const { factor, lse } = finishRow(k, m, l, sink ? p.sink.loadIf(head.lt(p.heads), head) : undefined, 1)
    k.when(tile.key.eq(0).and(head.lt(p.heads)), () => {
      p.lse.store(at(head, p.lseSequenceStride, p.lseQueryStride), lse)
      p.maxLogits.store(at(head, p.maxLogitsSequenceStride, p.maxLogitsQueryStride), m)
    })
    return factor
  })
  tile.shareFactors(factors)
  k.barrier()
  const row = k.offset(k.offset(0, token.sequence, p.outSequenceStride), token.query, p.outQueryStride)
  tile.eachOutput((lane, outputs) => {
    const head = firstHead.add(lane)
    k.when(head.lt(p.heads), () => {
      const factor = tile.factorOf(lane)
      const first = k.offset(row, head, p.outHeadStride)
      for (const { column, o } of outputs) p.out.store(k.offset(first, column, 1), finishValue(o, factor))
    })
  })
}

/** O, m and l of a split that has begun; of another only that it is empty. A barrier comes before. */
export function leavePartial(
  k: KernelBuilder,
  p: OutputBound,
  { tile, token, firstHead }: BlockOutput,
  { split, begun }: { readonly split: U32; readonly begun: Val<'pred'> },
): void {
  const rowOf = (head: U32): U32 => token.local.mul(p.heads).add(head).mul(p.splits).add(split)
  for (const lane of tile.scoreLanes()) {
    const head = firstHead.add(lane)
    k.when(tile.key.eq(0).and(head.lt(p.heads)), () => {
      const at = k.offset(0, rowOf(head), 2)
      const { m, l } = tile.stateOf(lane)
      p.states.store(at, m)
      p.states.store(k.offset(at, 1, 1), begun.select(l, emptySplit))
    })
  }
  tile.eachOutput((lane, outputs) => {
    const head = firstHead.add(lane)
    k.when(begun.and(head.lt(p.heads)), () => {
      for (const { column, o } of outputs) p.partial.store(k.offset(column, rowOf(head), nope), o)
    })
  })
}
