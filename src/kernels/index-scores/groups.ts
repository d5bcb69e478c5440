/**
 * The work list of an indexer that streams keys: neighbouring query tokens of one sequence in groups that share their
 * key tiles. One block; groups never cross a multiple of `size` tokens, so that a token's place in its group does not
 * depend on what precedes it. Later tokens, which see the most keys under a causal window, come first.
 *
 *   groups[0][0] = number of groups      groups[1 + g] = { first token, tokens, lo, hi, sequence, first row, -, - }
 *
 * [lo, hi) is the union of the tokens' windows.
 */

import type { KernelBuilder } from '../../lang/builder.ts'
import { kernel } from '../../lang/kernel.ts'
import { type KernelLaunch, type ScratchRef, specialize } from '../../lang/launch.ts'
import { input, output, u32 } from '../../lang/params.ts'
import type { Target } from '../../lang/types.ts'
import type { Val } from '../../lang/value.ts'
import { windowWords } from './windows.ts'

const threads = 1024
/** Words of one entry. */
export const groupWords = 8

const params = {
  windows: input('u32', '[tokens, 4]: lo, hi, sequence, first row'),
  groups: output('u32', '[1 + tokens, 8]'),
  tokens: u32('query tokens'),
}

const traceGroups = specialize(({ target, size }: { readonly target: Target; readonly size: number }) =>
  kernel({ name: 'index_groups', target, threads, params }, (k, p) => {
    const counts = k.shared('u32', threads)
    const share = p.tokens.add(threads - 1).div(threads)
    const first = k.threadIdx.mul(share).min(p.tokens)
    const last = first.add(share).min(p.tokens)
    const sequenceOf = (token: Val<'u32'>): Val<'u32'> => p.windows.load(token.mul(windowWords).add(2))
    const starts = (token: Val<'u32'>): Val<'pred'> => {
      const aligned = token.rem(size).eq(0)
      const before = token.sub(aligned.select(k.const('u32', 0), 1))
      return aligned.or(sequenceOf(token).ne(sequenceOf(before)))
    }

    const own = k.var('u32', 0)
    for (const token of k.range(last, { start: first })) own.set(starts(token).select(own.add(1), own))
    const before = inclusiveSum(k, counts, own).sub(own)
    const total = counts.load(threads - 1)
    const next = k.var('u32', before)
    for (const token of k.range(last, { start: first })) {
      k.when(starts(token), () => {
        const lo = k.var('u32', 0xffffffff)
        const hi = k.var('u32', 0)
        const end = k.var('u32', token)
        const sequence = sequenceOf(token)
        const limit = token.sub(token.rem(size)).add(size).min(p.tokens)
        k.repeat(() => {
          const at = end.mul(windowWords)
          const [from, to] = [p.windows.load(at), p.windows.load(at.add(1))]
          const any = from.lt(to)
          lo.set(any.select(lo.min(from), lo))
          hi.set(any.select(hi.max(to), hi))
          end.set(end.add(1))
          return end.lt(limit).and(sequenceOf(end.min(p.tokens.sub(1))).eq(sequence))
        })
        const at = total.sub(next).mul(groupWords)
        const firstRow = p.windows.load(token.mul(windowWords).add(3))
        ;[token, end.sub(token), lo, hi, sequence, firstRow].forEach((value, i) => p.groups.store(at.add(i), value))
        next.set(next.add(1))
      })
    }
    k.when(k.threadIdx.eq(0), () => p.groups.store(0, total))
  }),
)

/** Sum of `value` over this and all earlier threads of the block; leaves the sums in `sums`. */
function inclusiveSum(k: KernelBuilder, sums: ReturnType<typeof k.shared<'u32'>>, value: Val<'u32'>): Val<'u32'> {
  const sum = k.var('u32', value)
  sums.store(k.threadIdx, sum)
  for (let step = 1; step < threads; step *= 2) {
    k.barrier()
    const other = k.var('u32', 0)
    k.when(k.threadIdx.ge(step), () => other.set(sums.load(k.threadIdx.sub(step))))
    k.barrier()
    sum.set(sum.add(other))
    sums.store(k.threadIdx, sum)
  }
  k.barrier()
  return sum
}

/** The launch that fills scratch region `groups` from the windows of `tokens` tokens. */
export const groupsLaunch = (target: Target, size: number, tokens: number, windows: ScratchRef): KernelLaunch => ({
  kernel: traceGroups({ target, size }),
  grid: [1, 1],
  args: { windows, groups: { scratch: 'groups' }, tokens },
})

export const groupsBytes = (tokens: number): number => 4 * groupWords * (tokens + 1)
