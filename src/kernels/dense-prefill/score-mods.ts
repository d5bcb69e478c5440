/**
 * Score mods: what happens to a scaled score before the softmax (spec section 5). They are evaluated on visible pairs only.
 */

import { ValueError } from '../../errors.ts'

/** A score mod: its data for the kernels and its formula for the reference. */
export interface ScoreMod {
  readonly kind: 'identity' | 'alibi' | 'softcap'
  /** Slope of each head; empty unless `alibi`. */
  readonly slopes: readonly number[]
  /** The cap; 0 unless `softcap`. */
  readonly cap: number
  /** The score of the query at absolute position `q` against key `k`. */
  apply(score: number, q: number, k: number, head: number): number
}

/** s unchanged. */
export const identity = (): ScoreMod => ({ kind: 'identity', slopes: [], cap: 0, apply: score => score })

/**
 * s - (q - k) slope_h for k <= q, s for later keys.
 *
 *   H a power of two: slope_h = 2^(-8 (h+1) / H)
 *   else, P the largest power of two below H: as for P heads when h < P, else 2^(-8 (2 (h-P) + 1) / (2P))
 *
 * @throws ValueError unless heads >= 1
 */
export function alibi(heads: number): ScoreMod {
  if (!(Number.isInteger(heads) && heads >= 1))
    throw new ValueError({ where: 'alibi', argument: 'heads', given: heads, allowed: 'a positive integer' })
  const power = 2 ** Math.floor(Math.log2(heads))
  const slopes = Array.from({ length: heads }, (_, h) =>
    h < power ? 2 ** ((-8 * (h + 1)) / power) : 2 ** ((-8 * (2 * (h - power) + 1)) / (2 * power)),
  )
  return {
    kind: 'alibi',
    slopes,
    cap: 0,
    apply: (score, q, k, head) => score - Math.max(q - k, 0) * slopes[head]!,
  }
}

/** cap · tanh(s / cap). @throws ValueError unless cap is positive and finite */
export function softcap(cap: number): ScoreMod {
  if (!(Number.isFinite(cap) && cap > 0))
    throw new ValueError({ where: 'softcap', argument: 'cap', given: cap, allowed: 'a positive finite number' })
  return { kind: 'softcap', slopes: [], cap, apply: score => cap * Math.tanh(score / cap) }
}
