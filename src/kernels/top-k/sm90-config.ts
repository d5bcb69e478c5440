/** Sizes of the Hopper top k, and its parameters as its parts see them. */

import type { Buffer } from '../../lang/buffer.ts'
import type { Val } from '../../lang/value.ts'
import type { PoolParams } from '../pool-row.ts'

export interface TopKSm90Config {
  readonly dtype: 'f32' | 'bf16'
  readonly order: 'score' | 'index'
  readonly slots: boolean
  /** Most entries of a result; the real k is at most this. */
  readonly room: number
  /** Blocks that share a row. */
  readonly cluster: number
  readonly threads: number
}

/** Scores of a tile that one thread holds. */
export const ownScores = 16
/** Scores of a sample that one thread holds: 2048 in all, or 8192 in large blocks, which take long rows. */
export const ownSamples = 8
/** Values of a digit of 8 bits. */
export const digitValues = 256

export interface Sizes {
  readonly warps: number
  /** Scores that the block looks at together. */
  readonly tile: number
  /** Scores that a thread loads at once, 16 bytes. */
  readonly vector: number
  /** Entries of the list. */
  readonly capacity: number
  /** Entries that are ordered as they are; more are first cut down to the best k. */
  readonly sorted: number
  readonly buckets: number
  /** Word of the pool at which the buckets begin, or the counts of the radix sort; the word before is theirs too. */
  readonly bucketsAt: number
  /** Words of the pool: scores of the list, its indices, buckets. */
  readonly poolWords: number
}

/**
 * capacity >= room + tile: after a cut to k a whole tile fits, whatever its scores.
 * capacity >= 2 sorted: ordering moves the entries from the first places to the next.
 * sorted >= 45/32 room: a sample of 2048 lets through about 1.25 k of 32 768 scores.
 * The buckets begin where no index of those entries lies; four blocks fit on a multiprocessor at room 2048.
 */
export function sizesOf({ dtype, room, threads }: TopKSm90Config): Sizes {
  const warps = threads / 32
  const tile = threads * ownScores
  const buckets = tile / 2
  const sorted = Math.max(Math.ceil((45 * room) / 1024) * 32, Math.floor((room + tile - buckets - 4) / 64) * 32)
  const capacity = Math.max(room + tile, 2 * sorted)
  const bucketsAt = capacity + 2 * sorted + 4
  const poolWords = Math.max(2 * capacity, bucketsAt + buckets)
  return { warps, tile, vector: dtype === 'f32' ? 4 : 8, capacity, sorted, buckets, bucketsAt, poolWords }
}

/**
 * Blocks that a multiprocessor has shared memory and registers for: 64 registers a thread are enough but for bf16 with
 * slots, which takes a few more.
 */
export function residentBlocks({ room, threads, dtype, slots }: TopKSm90Config): number {
  if (threads > 512 || room > 4096) return 1
  if (room > 2048) return 2
  return Math.floor((dtype === 'bf16' && slots ? 768 : 1024) / threads)
}

type Scalar = 'k' | 'scoresStride' | 'scoresPhase' | 'indicesStride'

/** Documented at the parameter list of sm90.ts. */
export interface TopKSm90Params extends Readonly<Record<Scalar, Val<'u32'>>>, PoolParams {
  readonly scores: Buffer<'f32' | 'bf16'>
  readonly windows: Buffer<'i32'>
  readonly indices: Buffer<'i32'>
  readonly counts: Buffer<'i32'>
}
