/**
 * Where every query token stands among the keys of its sequence, on a GPU: one thread a token.
 *
 *   out[t] = { sequence, row in it, position, keys that have a place, contiguous row of key 0 }
 *
 * Tokens of no sequence, and rows that pad one, have the sequence `nobody`. Lengths and offsets are clamped to what
 * exists, so values only the device knows cannot lead out of a tensor.
 */

import type { Buffer } from '../../lang/buffer.ts'
import type { KernelBuilder } from '../../lang/builder.ts'
import { kernel } from '../../lang/kernel.ts'
import { type KernelLaunch, specialize } from '../../lang/launch.ts'
import { input, output, u32 } from '../../lang/params.ts'
import type { Target } from '../../lang/types.ts'
import type { Val } from '../../lang/value.ts'
import type { PlanRequest } from '../../ops/op.ts'
import { type TokenLayout, tokenLayout, tokenPlace } from '../token-place.ts'
import type { DensePrefillProblem } from './problem.ts'

type U32 = Val<'u32'>

const threads = 128
const spanWords = 5
const maxKeys = 2 ** 31 - 1
/** The sequence of a token that sees nothing. */
export const nobody = 0xffff_ffff

export const spanBytes = (tokens: number): number => 4 * spanWords * tokens

interface Config {
  readonly target: Target
  readonly tokens: TokenLayout
  readonly keys: 'paged' | 'offsets' | 'single'
  readonly lengthsIncludeNew: boolean
}

const params = {
  rowOffsets: input('i32', '[batch + 1], or lengths [batch] of padded sequences'),
  keyLengths: input('u32', 'cache lengths [batch], or row offsets [batch + 1] of contiguous keys'),
  out: output('u32', '[tokens, 5]'),
  tokens: u32('query tokens'),
  batch: u32('sequences'),
  rows: u32('rows of a padded sequence'),
  keys: u32('contiguous keys in all'),
  room: u32('keys of a sequence that the block table has room for'),
}

const traceSpans = specialize((c: Config) =>
  kernel({ name: 'token_spans', target: c.target, threads, params }, (k, p) => {
    const token = k.blockIdx.x.mul(threads).add(k.threadIdx)
    k.when(token.lt(p.tokens), () => {
      const place = tokenPlace(k, c.tokens, p, token)
      const length = place.length.to('u32')
      const row = token.sub(place.first.to('u32'))
      const sequence = k.var('u32', nobody)
      const numKeys = k.var('u32', 0)
      const firstKey = k.var('u32', 0)
      k.when(place.length.gt(0), () => {
        sequence.set(place.sequence)
        if (c.keys === 'paged') {
          const cached = p.keyLengths.load(place.sequence).min(maxKeys)
          numKeys.set(c.lengthsIncludeNew ? cached : cached.add(length).min(maxKeys))
        } else if (c.keys === 'offsets') {
          firstKey.set(p.keyLengths.load(place.sequence).min(p.keys))
          numKeys.set(p.keyLengths.load(place.sequence.add(1)).min(p.keys).max(firstKey).sub(firstKey))
        } else numKeys.set(p.keys)
      })
      const position = numKeys.sub(length).add(row)
      const words = [sequence, row, position, numKeys.min(p.room), firstKey]
      words.forEach((word, i) => p.out.store(k.offset(i, token, spanWords), word))
    })
  }),
)

/** A token's span, inside a kernel. */
export interface Span {
  readonly sequence: U32
  readonly row: U32
  /** Position; negative where there are fewer keys than queries. */
  readonly position: Val<'i32'>
  readonly keyEnd: U32
  readonly firstKey: U32
}

/** The span of a token; where a condition does not hold, zeros. */
export function loadSpan(k: KernelBuilder, spans: Buffer<'u32'>, token: U32, condition?: Val<'pred'>): Span {
  const [sequence, row, position, keyEnd, firstKey] = Array.from({ length: spanWords }, (_, i) => {
    const at = k.offset(i, token, spanWords)
    return condition === undefined ? spans.load(at) : spans.loadIf(condition, at)
  }) as [U32, U32, U32, U32, U32]
  return { sequence, row, position: position.to('i32'), keyEnd, firstKey }
}

/** The launch that fills the scratch region `spans`. */
export function spansLaunch({ problem, inputs, limits }: PlanRequest<DensePrefillProblem>): KernelLaunch {
  const { tokens, batch, paddedRows, keys, pages, lengthsIncludeNew } = problem
  const lengths = inputs['keys.cacheLength']
  const offsets = inputs['keys.kvRowOffsets']
  const config: Config = {
    target: limits.target as Target,
    tokens: tokenLayout(inputs),
    keys: lengths !== undefined ? 'paged' : offsets !== undefined ? 'offsets' : 'single',
    lengthsIncludeNew,
  }
  const room = pages === undefined ? maxKeys : inputs['keys.blockTable']!.shape[1]! * pages.pageSize
  return {
    kernel: traceSpans(config),
    grid: [Math.ceil(tokens / threads), 1],
    args: {
      rowOffsets: inputs.rowOffsets ?? inputs.validLength,
      keyLengths: lengths ?? offsets,
      out: { scratch: 'spans' },
      ...{ tokens, batch, rows: paddedRows, keys, room: Math.min(room, maxKeys) },
    },
  }
}
