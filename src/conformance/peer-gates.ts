/** The tolerances of the tests that FlashMLA and DeepGEMM hold themselves to, for golden data of theirs. */

import type { Tensor } from '../tensor/tensor.ts'
import { compare, type GateReport } from './gate.ts'
import { cosineDistance, deepGemmDifference } from './measures.ts'

/** FlashMLA's comparison: an element passes by its absolute or by its relative error. */
interface PeerTolerance {
  readonly absolute: number
  readonly relative: number
  readonly cosineDistance?: number
}

const peerGate = (gate: string, { absolute, relative, cosineDistance: limit }: PeerTolerance) => {
  const measures = limit === undefined ? [] : [cosineDistance(limit)]
  return (actual: Tensor, expected: ArrayLike<number>): GateReport =>
    compare({
      gate,
      actual,
      expected,
      bound: i => Math.max(absolute, relative * (Math.abs(expected[i]!) + 1e-6)),
      measures,
    })
}

type PeerGate = (actual: Tensor, expected: ArrayLike<number>) => GateReport

/** Output against a result of `flash_mla_sparse_fwd`: its own test's tolerance. */
export const flashMlaPrefill: PeerGate = peerGate('FlashMLA prefill', {
  absolute: 8e-4,
  relative: 3.01 / 128,
  cosineDistance: 7e-6,
})

/** Output against a result of `flash_mla_with_kvcache`. */
export const flashMlaDecode: PeerGate = peerGate('FlashMLA decode', {
  absolute: 1e-3,
  relative: 2.01 / 128,
  cosineDistance: 5e-6,
})

/** lse and max_logits of either; its +inf for a row without a valid key has to be turned into -inf before. */
export const flashMlaLse: PeerGate = peerGate('FlashMLA lse', { absolute: 1e-6, relative: 8.01 / 65536 })

/** Logits against a result of DeepGEMM: -inf in the same places, calc_diff < 5e-6. */
export function deepGemmLogits(actual: Tensor, expected: ArrayLike<number>): GateReport {
  return compare({
    gate: 'DeepGEMM logits',
    actual,
    expected,
    bound: () => Number.MAX_VALUE,
    measures: [deepGemmDifference],
  })
}
