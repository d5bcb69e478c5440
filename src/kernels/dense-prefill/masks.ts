/**
 * The masks of dense attention (spec section 5). `q` and `k` are absolute positions in a sequence: query t of L new ones
 * stands at numKeys - L + t. Keys at or past numKeys are never visible, whatever the mask.
 */

import { DtypeError, ShapeError, ValueError } from '../../errors.ts'
import { type AnyTensor, DeviceTensor } from '../../tensor/device-tensor.ts'
import { Tensor } from '../../tensor/tensor.ts'
import { type BiasDtype, Mask, type MaskStep } from './mask.ts'

/** Leaves of one mask, counted through `and` and `or`. */
export const maxMaskLeaves = 16

/** Every key of the sequence. */
export const none = (): Mask => new Mask('none()', [{ kind: 'none', window: 0 }])

/** k <= q. */
export const causal = (): Mask => new Mask('causal()', [{ kind: 'causal', window: 0 }])

/** q - window < k <= q: the query's own position and the `window - 1` before it. @throws ValueError unless window >= 1 */
export const slidingWindow = (window: number): Mask => windowed('slidingWindow', window)

/** k + window > q: as `slidingWindow`, and every later key. @throws ValueError unless window >= 1 */
export const slidingWindowBoth = (window: number): Mask => windowed('slidingWindowBoth', window)

/** floor(q / window) = floor(k / window). @throws ValueError unless window >= 1 */
export const chunked = (window: number): Mask => windowed('chunked', window)

/** As `chunked`, and k <= q. @throws ValueError unless window >= 1 */
export const chunkedCausal = (window: number): Mask => windowed('chunkedCausal', window)

/** k <= q and k < valid[sequence]. @param valid u32 `[batch]` @throws DtypeError | ShapeError */
export function causalPadding(valid: AnyTensor<'u32'>): Mask {
  checkTensor('causalPadding', 'valid', valid, ['u32'], [1])
  return new Mask(`causalPadding(u32 [${valid.shape.join(', ')}])`, [{ kind: 'causalPadding', valid }])
}

/**
 * A bias for every pair, added to the score after the score mod: -inf hides the pair, any finite value is a number (two
 * of -3.4e38 do not hide a pair), outside the tensor a pair is hidden. Rows count from the sequence's first query.
 *
 * Joined with other masks, the bias counts where this mask shows the pair by itself: `or(causal(), materialized(b))`
 * shows the causal pairs without bias where b is -inf.
 *
 * @param bias `[batch, q, k]` or `[batch, heads, q, k]`, f32, bf16 or f16
 * @throws DtypeError | ShapeError
 */
export function materialized(bias: AnyTensor<BiasDtype>): Mask {
  checkTensor('materialized', 'bias', bias, ['f32', 'bf16', 'f16'], [3, 4])
  return new Mask(`materialized(${bias.dtype} [${bias.shape.join(', ')}])`, [{ kind: 'materialized', bias }])
}

/** Pairs visible in both. @throws ValueError beyond 16 leaves */
export const and = (a: Mask, b: Mask): Mask => join('and', a, b)

/** Pairs visible in either. @throws ValueError beyond 16 leaves */
export const or = (a: Mask, b: Mask): Mask => join('or', a, b)

type WindowKind = 'slidingWindow' | 'slidingWindowBoth' | 'chunked' | 'chunkedCausal'

function windowed(kind: WindowKind, window: number): Mask {
  if (!(Number.isInteger(window) && window >= 1 && window < 2 ** 31))
    throw new ValueError({ where: kind, argument: 'window', given: window, allowed: 'an integer in 1..2147483647' })
  return new Mask(`${kind}(${window})`, [{ kind, window }])
}

function join(kind: 'and' | 'or', a: Mask, b: Mask): Mask {
  const program: MaskStep[] = [...a.program, ...b.program, { kind }]
  const leaves = (program.length + 1) / 2
  if (leaves > maxMaskLeaves)
    throw new ValueError({
      where: kind,
      argument: 'leaves',
      given: leaves,
      allowed: `at most ${maxMaskLeaves} masks in all`,
    })
  return new Mask(`${kind}(${a.name}, ${b.name})`, program)
}

function checkTensor(
  where: string,
  argument: string,
  value: AnyTensor,
  dtypes: readonly string[],
  ranks: readonly number[],
): void {
  const allowed = `a tensor of ${dtypes.join(', ')} with ${ranks.join(' or ')} ${ranks[0] === 1 ? 'axis' : 'axes'}`
  if (!(value instanceof Tensor) && !(value instanceof DeviceTensor))
    throw new DtypeError({ where, argument, given: value, allowed })
  if (!dtypes.includes(value.dtype)) throw new DtypeError({ where, argument, given: value.dtype, allowed })
  if (!ranks.includes(value.shape.length)) throw new ShapeError({ where, argument, given: [...value.shape], allowed })
}
