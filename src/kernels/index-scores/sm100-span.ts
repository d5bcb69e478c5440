/** Where the tokens of a sequence are, and which of them see a tile of keys; each warp finds out for itself. */

import type { Buffer } from '../../lang/buffer.ts'
import type { KernelBuilder } from '../../lang/builder.ts'
import type { Val } from '../../lang/value.ts'
import { windowWords } from './windows.ts'

type U32 = Val<'u32'>

interface SpanParams {
  readonly windows: Buffer<'u32'>
  readonly tokens: U32
  readonly sequences: U32
}

export interface TokenSpan {
  readonly first: U32
  /** One past the last. */
  readonly end: U32
}

/**
 * Tokens of `sequence`: two searches, 32 probes at a time, in the windows, whose sequences never fall. The last
 * sequence takes all that follow it, which no sequence holds.
 */
export function tokensOf(k: KernelBuilder, p: SpanParams, sequence: U32): TokenSpan {
  const low = [k.var('u32', 0), k.var('u32', sequence.add(1).lt(p.sequences).select(k.const('u32', 0), p.tokens))]
  const count = [k.var('u32', p.tokens), k.var('u32', p.tokens.sub(low[1]!))]
  k.whenUniform(p.sequences.gt(1), () =>
    k.repeat(() => {
      low.forEach((from, i) => {
        const left = count[i]!
        const step = left.add(31).shr(5)
        const probe = k.lane.add(1).mul(step).sub(1)
        const at = from.add(probe.min(left)).mul(windowWords).add(2)
        const before = probe.lt(left).and(p.windows.loadIf(probe.lt(left), at).lt(sequence.add(i)))
        const skipped = k.countOnes(k.ballot(before)).mul(step)
        from.set(from.add(skipped))
        count[i]!.set(step.gt(0).select(step.sub(1).min(left.sub(skipped)), 0))
      })
      return count[0]!.bitOr(count[1]!).ne(0)
    }),
  )
  return { first: low[0]!, end: low[1]! }
}

export interface Viewers extends TokenSpan {
  /** One past the last key that one of them sees. */
  readonly keyEnd: U32
}

/** The tokens of a span from the first to the last that see a key of [from, to); none: `first` is not below `end`. */
export function viewersOf(k: KernelBuilder, p: SpanParams, span: TokenSpan, from: U32, to: U32): Viewers {
  const first = k.var('u32', span.end)
  const end = k.var('u32', span.first)
  const keyEnd = k.var('u32', 0)
  for (const token of k.range(span.end, { start: span.first.add(k.lane), step: 32 })) {
    const at = token.mul(windowWords)
    const [lo, hi] = [p.windows.load(at), p.windows.load(at.add(1))]
    const sees = lo.lt(to).and(hi.gt(from)).and(lo.lt(hi))
    first.set(sees.select(first.min(token), first))
    end.set(sees.select(token.add(1), end))
    keyEnd.set(sees.select(keyEnd.max(hi), keyEnd))
  }
  const [least, most, last] = [k.reduce('min', first), k.reduce('max', end), k.reduce('max', keyEnd)]
  return { first: least, end: most, keyEnd: last }
}
