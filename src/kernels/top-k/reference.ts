/** Top k by sorting every score of the window, on host tensors (spec §2). */

import type { TopKArgs } from '../../ops/top-k.ts'
import { type Tensor, tensor } from '../../tensor/tensor.ts'
import { integersOf, sequencesOfTokens, slotReference } from '../remap-indices/reference.ts'

export interface TopKReference {
  readonly indices: Tensor<'i32'>
  readonly counts: Tensor<'i32'>
}

/** The columns of a row from the best score to the worst, NaN and -inf left out. Differences of equal infinities are NaN. */
function ranked(row: Float32Array, lo: number, hi: number): number[] {
  const columns: number[] = []
  for (let j = lo; j < hi; j++) if (row[j]! > -Infinity) columns.push(j)
  return columns.sort((a, b) => row[b]! - row[a]! || a - b)
}

/** All tensors of `args` on the host. */
export function topKReference({ scores, k, order, slots, window, ...args }: TopKArgs): TopKReference {
  const [tokens, width] = scores.shape as [number, number]
  const floats = (scores as Tensor).floats()
  const sequences = sequencesOfTokens(args, tokens)
  const bounds = window === undefined || window === 'all' ? undefined : window
  const lo = bounds?.lo && integersOf(bounds.lo)
  const hi = bounds && integersOf(bounds.hi)
  const clamp = (j: number): number => Math.max(0, Math.min(j, width))
  const indices = new Int32Array(tokens * k).fill(-1)
  const counts = new Int32Array(tokens)
  for (let t = 0; t < tokens; t++) {
    if (sequences[t] === -1) continue
    const row = floats.subarray(t * width, (t + 1) * width)
    const best = ranked(row, clamp(lo?.[t] ?? 0), clamp(hi?.[t] ?? width)).slice(0, k)
    if (order === 'index') best.sort((a, b) => a - b)
    counts[t] = best.length
    indices.set(slots === undefined ? best : best.map(j => slotReference(slots, sequences[t]!, j)), t * k)
  }
  return { indices: tensor('i32', [tokens, k], indices), counts: tensor('i32', [tokens], counts) }
}
