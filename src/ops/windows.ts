/** The window of keys that each query token sees, as operations take it (spec §1). */

import { OptionError } from '../errors.ts'
import type { AnyTensor } from '../tensor/device-tensor.ts'
import type { Contract } from './contract.ts'
import type { TensorTable } from './op.ts'

/** Keys `lo[t] <= j < hi[t]` of the token's own sequence; `hi <= lo` is an empty window. */
export interface GivenWindow {
  /** `[tokens]` i32 or u32, clamped to the keys there are. Default 0. */
  readonly lo?: AnyTensor<'i32' | 'u32'> | undefined
  /** `[tokens]` i32 or u32, clamped to the keys there are. */
  readonly hi: AnyTensor<'i32' | 'u32'>
}

/**
 * `causal`: keys up to the token's own position, counted so that the last token of a sequence sits on its last key.
 * `all`: every key of the sequence. Else the window of each token.
 */
export type Window = 'causal' | 'all' | GivenWindow

export type WindowKind = 'causal' | 'all' | 'given'

export interface CheckedWindow {
  readonly kind: WindowKind
  /** `window.lo` and `window.hi`. */
  readonly tensors: TensorTable
}

/** @throws OptionError | DtypeError | ShapeError */
export function checkWindow(c: Contract, window: Window | undefined): CheckedWindow {
  if (window === 'causal' || window === 'all') return { kind: window, tensors: {} }
  if (typeof window !== 'object' || window === null)
    throw new OptionError({
      where: c.op,
      argument: 'window',
      given: window ?? 'missing',
      allowed: "'causal', 'all' or { lo, hi }",
    })
  const { lo, hi } = c.object('window', window, ['lo', 'hi'])
  const rule = { dtypes: ['i32', 'u32'], shape: ['tokens'] } as const
  const tensors = { 'window.lo': c.optional('window.lo', lo, rule), 'window.hi': c.tensor('window.hi', hi, rule) }
  return { kind: 'given', tensors }
}
