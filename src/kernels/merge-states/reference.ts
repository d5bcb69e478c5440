/** State merging in float64, over numbers (spec section 4). */

/** Attention of one row over one set of keys. */
export interface AttentionState {
  readonly out: ArrayLike<number>
  /** Natural log; -inf or +inf for no key. */
  readonly lse: number
}

/**
 *   m = max lse_i      w_i = e^(lse_i - m)      lse = m + ln Σ w_i      out = Σ w_i out_i / (Σ w_i + e^(sink - m))
 *
 * over the parts that are not empty. All empty: 0 and -inf.
 */
export function mergeStatesReference(
  parts: readonly AttentionState[],
  sink: number = -Infinity,
): { readonly out: Float64Array; readonly lse: number } {
  const out = new Float64Array(parts[0]!.out.length)
  const full = parts.filter(({ lse }) => Math.abs(lse) !== Infinity)
  if (full.length === 0) return { out, lse: -Infinity }
  const m = full.reduce((most, { lse }) => Math.max(most, lse), -Infinity)
  const weights = full.map(({ lse }) => Math.exp(lse - m))
  const sum = weights.reduce((total, w) => total + w, 0)
  for (const c of out.keys()) {
    const weighted = full.reduce((total, part, i) => total + weights[i]! * part.out[c]!, 0)
    out[c] = weighted / (sum + Math.exp(sink - m))
  }
  return { out, lse: m + Math.log(sum) }
}
