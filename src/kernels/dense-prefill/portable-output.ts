/** What a block of the portable kernel leaves: results of its rows, or partial ones for a merge. */

import type { Buffer } from '../../lang/buffer.ts'
import type { KernelBuilder } from '../../lang/builder.ts'
import type { Val } from '../../lang/value.ts'
import { finishRow, finishValue } from '../attention-finish.ts'
import type { AttentionTile } from '../attention-tile.ts'
import type { Lane, Lanes } from './portable-lanes.ts'

type U32 = Val<'u32'>
type F32 = Val<'f32'>

/** Columns of V that a block takes at most. */
export const sliceColumns = 512

export interface OutputBound {
  readonly sink: Buffer<'f32'>
  readonly vDim: U32
  readonly out: Buffer<'f32' | 'bf16'>
  readonly outTokenStride: U32
  readonly outHeadStride: U32
  readonly lse: Buffer<'f32'>
  readonly lseTokenStride: U32
  readonly heads: U32
  readonly splits: U32
  readonly partial: Buffer<'f32'>
  readonly states: Buffer<'f32'>
}

/** What a block has computed. */
export interface BlockOutput {
  readonly tile: AttentionTile
  readonly lanes: Lanes
  /** Which 512 columns of V. */
  readonly slice: U32
}

/** out and lse; a barrier comes before. */
export function finishLanes(k: KernelBuilder, p: OutputBound, block: BlockOutput, sink: boolean, unit: number): void {
  const { tile, lanes, slice } = block
  const factors = tile.scoreLanes().map(index => {
    const { real, token, head } = lanes.at(index)
    const { m, l } = tile.stateOf(index)
    const { factor, lse } = finishRow(k, m, l, sink ? p.sink.loadIf(real, head) : undefined, unit)
    k.when(real.and(tile.key.eq(0)).and(slice.eq(0)), () => p.lse.store(k.offset(head, token, p.lseTokenStride), lse))
    return factor
  })
  tile.shareFactors(factors)
  k.barrier()
  eachOutput(k, p, block, ({ token, head }, lane) => {
    const factor = tile.factorOf(lane)
    const first = k.offset(k.offset(0, token, p.outTokenStride), head, p.outHeadStride)
    return (column, o) => p.out.store(k.offset(first, column, 1), finishValue(o, factor))
  })
}

/** O, m and l of a split of the keys; a barrier comes before. */
export function leaveLanes(k: KernelBuilder, p: OutputBound, block: BlockOutput, split: U32): void {
  const { tile, lanes, slice } = block
  const rowOf = ({ local, head }: Lane): U32 => local.mul(p.heads).add(head).mul(p.splits).add(split)
  for (const index of tile.scoreLanes()) {
    const lane = lanes.at(index)
    k.when(lane.real.and(tile.key.eq(0)).and(slice.eq(0)), () => {
      const at = k.offset(0, rowOf(lane), 2)
      const { m, l } = tile.stateOf(index)
      p.states.store(at, m)
      p.states.store(k.offset(at, 1, 1), l)
    })
  }
  eachOutput(k, p, block, lane => {
    const first = k.offset(0, rowOf(lane), p.vDim)
    return (column, o) => p.partial.store(k.offset(first, column, 1), o)
  })
}

/** Stores the thread's columns of O of lanes that are tokens. */
function eachOutput(
  k: KernelBuilder,
  { vDim }: OutputBound,
  { tile, lanes, slice }: BlockOutput,
  storeOf: (lane: Lane, index: U32) => (column: U32, o: F32) => void,
): void {
  const firstColumn = slice.mul(sliceColumns)
  tile.eachOutput((index, outputs) => {
    const lane = lanes.at(index)
    k.when(lane.real, () => {
      const store = storeOf(lane, index)
      for (const { column, o } of outputs) {
        const at = firstColumn.add(column)
        k.when(at.lt(vDim), () => store(at, o))
      }
    })
  })
}
