/**
 * Indexer scores in float64, on host tensors, to be read next to the formula (spec §1):
 *
 *   score[t, j] = kScale[j] · Σ_h max(0, dot(q[t,h], k[j])) · qScale[t,h]        lo[t] <= j < hi[t], else -inf
 */

import type { IndexScoresArgs } from '../../ops/index-scores.ts'
import type { ContiguousIndexKeys, PagedIndexKeys } from '../../ops/scoring-args.ts'
import { planarParts } from '../../tensor/byte-views.ts'
import type { AnyTensor } from '../../tensor/device-tensor.ts'
import type { Tensor } from '../../tensor/tensor.ts'

export interface ScoresReference {
  readonly tokens: number
  readonly width: number
  /** `[tokens, width]`. */
  readonly scores: Float64Array
}

interface Key {
  readonly values: Float32Array
  readonly scale: number
}

/** One sequence: its rows, and its keys by logical position; a key without a page is undefined. */
interface Sequence {
  readonly first: number
  readonly length: number
  /** Tokens that have a place among the keys. */
  readonly total: number
  readonly numKeys: number
  key(j: number): Key | undefined
}

const floats = (t: AnyTensor): Float32Array => (t as Tensor).floats()
const numbers = (t: AnyTensor<'u32' | 'i32'>): ArrayLike<number> => (t as Tensor<'u32' | 'i32'>).codes()

/** All tensors of `args` on the host. */
export function indexScoresReference(args: IndexScoresArgs): ScoresReference {
  const [tokens, heads, depth] = args.q.shape as [number, number, number]
  const sequences = sequencesOf(args, tokens, depth)
  const width = args.width ?? Math.max(0, ...sequences.map(({ numKeys }) => numKeys))
  const scores = new Float64Array(tokens * width).fill(-Infinity)
  const [q, qScale] = [floats(args.q), floats(args.qScale)]
  for (const sequence of sequences)
    for (let t = sequence.first; t < sequence.first + sequence.length; t++) {
      const [lo, hi] = windowOf(args, sequence, t)
      for (let j = lo; j < Math.min(hi, width); j++) {
        const key = sequence.key(j)
        if (key === undefined) continue
        let sum = 0
        for (let h = 0; h < heads; h++)
          sum += Math.max(0, dot(q, (t * heads + h) * depth, key.values)) * qScale[t * heads + h]!
        scores[t * width + j] = key.scale * sum
      }
    }
  return { tokens, width, scores }
}

function dot(q: Float32Array, at: number, k: Float32Array): number {
  let sum = 0
  for (let d = 0; d < k.length; d++) sum += q[at + d]! * k[d]!
  return sum
}

function windowOf({ window, pool = 1 }: IndexScoresArgs, sequence: Sequence, t: number): [number, number] {
  const { first, length, total, numKeys } = sequence
  const clamp = (j: number): number => Math.max(0, Math.min(j, numKeys))
  if (window === 'all') return [0, numKeys]
  if (window === 'causal') return [0, clamp(Math.floor((total - length + (t - first) + 1) / pool))]
  return [window.lo === undefined ? 0 : clamp(numbers(window.lo)[t]!), clamp(numbers(window.hi)[t]!)]
}

/** First row and number of tokens of each sequence. */
function rowsOf({ rowOffsets, validLength }: IndexScoresArgs, tokens: number): [first: number, length: number][] {
  if (validLength !== undefined) {
    const lengths = Array.from(numbers(validLength))
    return lengths.map((length, b) => [(b * tokens) / lengths.length, length])
  }
  const offsets = rowOffsets === undefined ? [0, tokens] : Array.from(numbers(rowOffsets))
  return offsets.slice(1).map((end, b) => [offsets[b]!, end - offsets[b]!])
}

function sequencesOf(args: IndexScoresArgs, tokens: number, depth: number): Sequence[] {
  const rows = rowsOf(args, tokens)
  const { keys, pool = 1 } = args
  return 'pool' in keys ? pagedSequences(keys, rows, depth, pool) : contiguousSequences(keys, rows, depth)
}

function contiguousSequences(keys: ContiguousIndexKeys, rows: [number, number][], depth: number): Sequence[] {
  const values = floats(keys.values)
  const scales = keys.scales && floats(keys.scales)
  const offsets = keys.kvRowOffsets ? numbers(keys.kvRowOffsets) : [0, keys.values.shape[0]!]
  return rows.map(([first, length], b) => {
    const numKeys = offsets[b + 1]! - offsets[b]!
    const key = (j: number): Key => {
      const row = offsets[b]! + j
      return { values: values.subarray(row * depth, (row + 1) * depth), scale: scales?.[row] ?? 1 }
    }
    return { first, length, total: numKeys, numKeys, key }
  })
}

function pagedSequences(keys: PagedIndexKeys, rows: [number, number][], depth: number, pool: number): Sequence[] {
  const parts = keys.pool.format === 'planar' ? planarParts(keys.pool) : keys.pool
  const [blocks, layers, pageSize] = parts.values.shape as [number, number, number]
  const values = floats(parts.values)
  const scales = parts.scales && floats(parts.scales)
  const maxPages = keys.blockTable.shape[1]!
  const [table, cached] = [numbers(keys.blockTable), numbers(keys.cacheLength)]
  return rows.map(([first, length], b) => {
    const total = cached[b]! + (keys.lengthsIncludeNew ? 0 : length)
    const key = (j: number): Key | undefined => {
      const page = Math.floor(j / pageSize)
      const block = page < maxPages ? table[b * maxPages + page]! : blocks
      if (block >= blocks) return undefined
      const row = (block * layers + keys.pool.layer) * pageSize + (j % pageSize)
      return { values: values.subarray(row * depth, (row + 1) * depth), scale: scales?.[row] ?? 1 }
    }
    return { first, length, total, numKeys: Math.floor(total / pool), key }
  })
}
