/** What a block of the key-streaming Blackwell indexer works on, and where. */

import type { Buffer } from '../../lang/buffer.ts'
import type { KernelBuilder } from '../../lang/builder.ts'
import type { Barriers } from '../../lang/mbarrier.ts'
import type { Pipeline } from '../../lang/pipeline.ts'
import type { SharedArray } from '../../lang/shared.ts'
import type { SmemTile } from '../../lang/smem-tile.ts'
import type { TensorAccumulator } from '../../lang/tensor-accumulator.ts'
import type { TensorMemory } from '../../lang/tensor-memory.ts'
import type { Val } from '../../lang/value.ts'
import { type E4m3Params } from './e4m3-config.ts'
import { groupWords } from './groups.ts'
import { columns, streamedKeys } from './sm100-config.ts'
import type { KeySequence } from './sm100-keys.ts'

type U32 = Val<'u32'>

export const keyStages = 5
export const scoreStages = 2
/** A part of a group's keys is worth its Q and pipeline start from this many tiles on. */
const minPartTiles = 4

export interface StreamParams extends E4m3Params {
  readonly groups: Buffer<'u32'>
  readonly parts: U32
}

export interface StreamShared {
  readonly queries: SmemTile
  readonly keys: SmemTile
  /** f32 [128]: of each column. */
  readonly weights: SharedArray<'f32'>
  /** u32 [tokens][2]. */
  readonly windows: SharedArray<'u32'>
  readonly queried: Barriers
  readonly rings: { readonly keys: Pipeline; readonly scores: Pipeline }
}

export const accumulatorAt = (memory: TensorMemory, stage: U32): TensorAccumulator =>
  memory.accumulator({ m: streamedKeys, n: columns, column: stage.mul(columns) })

export interface StreamWork extends KeySequence {
  readonly firstToken: U32
  readonly tokens: U32
  /** Tiles of this part: first, and how many. */
  readonly firstTile: U32
  readonly tiles: U32
  /** Keys [from, to) that the parts of the group cover with tiles. */
  readonly from: U32
  readonly to: U32
  readonly part: U32
}

/** Blocks: the parts of a group side by side. A group with few tiles has fewer parts. */
export function streamWork(k: KernelBuilder, p: StreamParams): StreamWork {
  const group = k.blockIdx.x.div(p.parts)
  const part = k.blockIdx.x.sub(group.mul(p.parts))
  const real = group.lt(p.groups.load(0))
  const at = group.add(1).mul(groupWords)
  const [firstToken, tokens, lo, hi, sequence, firstRow] = [0, 1, 2, 3, 4, 5].map(i =>
    p.groups.loadIf(real, at.add(i)),
  ) as [U32, U32, U32, U32, U32, U32]
  const first = lo.div(streamedKeys)
  const end = hi.add(streamedKeys - 1).div(streamedKeys)
  const all = first.lt(end).select(end.sub(first), 0)
  const parts = all
    .add(minPartTiles - 1)
    .div(minPartTiles)
    .max(1)
    .min(p.parts)
  const share = all.add(parts).sub(1).div(parts)
  const skipped = part.mul(share).min(all)
  const tiles = all.sub(skipped).min(share)
  const some = all.gt(0)
  return {
    firstToken,
    tokens,
    sequence,
    firstRow,
    keyEnd: hi,
    firstTile: first.add(skipped),
    tiles,
    from: some.select(first.mul(streamedKeys), p.width).min(p.width),
    to: some.select(end.mul(streamedKeys), p.width).min(p.width),
    part,
  }
}

/** -inf where no tile of the group is: a part takes its share of the columns. */
export function fillAround(
  k: KernelBuilder,
  p: StreamParams,
  { firstToken, tokens, from, to, part }: StreamWork,
): void {
  const share = p.width.add(p.parts).sub(1).div(p.parts)
  const start = part.mul(share).min(p.width)
  const end = start.add(share).min(p.width)
  const spans = [
    [start, from.min(end)],
    [to.max(start), end],
  ] as const
  for (const index of k.range(tokens)) {
    const row = k.offset(0, firstToken.add(index), p.scoresStride)
    for (const [first, last] of spans)
      for (const j of k.range(last, { start: first.add(k.threadIdx), step: 256 }))
        p.scores.store(k.offset(row, j, 1), Number.NEGATIVE_INFINITY)
  }
}
