/**
 * The window of keys of every query token, on a GPU: one thread a token. What the scoring kernels of all targets read
 * instead of sequence offsets and lengths.
 *
 *   out[t] = { lo, hi, sequence, firstRow }      lo <= hi; empty for tokens that no sequence holds
 *
 * Lengths and offsets are clamped to what exists, so values only the device knows cannot lead out of a tensor.
 */

import { kernel } from '../../lang/kernel.ts'
import { type KernelLaunch, specialize } from '../../lang/launch.ts'
import { input, output, u32 } from '../../lang/params.ts'
import type { Target } from '../../lang/types.ts'
import type { Val } from '../../lang/value.ts'
import type { DeviceTable } from '../../ops/op.ts'
import type { DeviceTensor } from '../../tensor/device-tensor.ts'
import { type TokenLayout, tokenLayout, tokenPlace } from '../token-place.ts'
import type { TokenWindowsProblem } from './problem.ts'

const threads = 128
/** Words of one token's window. */
export const windowWords = 4

interface WindowsConfig {
  readonly target: Target
  readonly tokens: TokenLayout
  readonly keys: 'paged' | 'offsets' | 'single'
  readonly window: TokenWindowsProblem['window']
  readonly lo: 'none' | 'i32' | 'u32'
  readonly hi: 'none' | 'i32' | 'u32'
  readonly lengthsIncludeNew: boolean
}

const params = {
  rowOffsets: input('i32', '[batch + 1], or lengths [batch] of padded sequences'),
  keyLengths: input('i32', 'cache lengths [batch], or row offsets [batch + 1] of contiguous keys'),
  lo: input('i32', '[tokens]'),
  hi: input('i32', '[tokens]'),
  out: output('i32', '[tokens, 4]: lo, hi, sequence, first row'),
  tokens: u32('query tokens'),
  batch: u32('sequences'),
  rows: u32('rows of a padded sequence'),
  keys: u32('contiguous keys in all'),
  pool: u32('tokens that a key stands for'),
  width: u32('columns'),
}

type I32 = Val<'i32'>

/** A given bound, at least 0; unsigned ones beyond 2^31 stay large. */
const bound = (value: I32, type: 'none' | 'i32' | 'u32'): I32 =>
  type === 'i32'
    ? value.max(0)
    : value
        .to('u32')
        .min(2 ** 31 - 1)
        .to('i32')

const traceWindows = specialize((c: WindowsConfig) =>
  kernel({ name: 'token_windows', target: c.target, threads, params }, (k, p) => {
    const token = k.blockIdx.x.mul(threads).add(k.threadIdx)
    k.when(token.lt(p.tokens), () => {
      const { sequence, first, length } = tokenPlace(k, c.tokens, p, token)
      const all = k.var('i32', p.keys.to('i32'))
      const firstRow = k.var('i32', 0)
      const inside = length.gt(0)
      k.when(inside, () => {
        if (c.keys === 'paged') {
          const cached = p.keyLengths.load(sequence)
          all.set(c.lengthsIncludeNew ? cached : cached.add(length))
        } else if (c.keys === 'offsets') {
          const limit = p.keys.to('i32')
          const start = p.keyLengths.load(sequence).max(0).min(limit)
          firstRow.set(start)
          all.set(p.keyLengths.load(sequence.add(1)).min(limit).max(start).sub(start))
        }
      })
      const pool = p.pool.to('i32')
      const most = (c.keys === 'paged' ? all.div(pool) : all).min(p.width.to('i32'))
      const lo = k.var('i32', 0)
      const hi = k.var('i32', inside.select(most, 0))
      if (c.window === 'causal') {
        const position = all.sub(length).add(token.to('i32').sub(first))
        hi.set(position.add(1).max(0).div(pool).min(hi))
      } else if (c.window === 'given') {
        hi.set(bound(p.hi.load(token), c.hi).min(hi))
        if (c.lo !== 'none') lo.set(bound(p.lo.load(token), c.lo).min(hi))
      }
      const at = token.mul(windowWords)
      ;[lo, hi, sequence.to('i32'), firstRow].forEach((value, i) => p.out.store(at.add(i), value))
    })
  }),
)

const boundType = (t: DeviceTensor | undefined): 'none' | 'i32' | 'u32' =>
  t === undefined ? 'none' : (t.dtype as 'i32' | 'u32')

/** The launch that fills scratch region `windows`, `windowsBytes` long. */
export function windowsLaunch(target: Target, problem: TokenWindowsProblem, inputs: DeviceTable): KernelLaunch {
  const { tokens, batch, rows, keys, pool, width, window } = problem
  const lengths = inputs['keys.cacheLength']
  const offsets = inputs['keys.kvRowOffsets']
  const config: WindowsConfig = {
    target,
    tokens: tokenLayout(inputs),
    keys: lengths !== undefined ? 'paged' : offsets !== undefined ? 'offsets' : 'single',
    window,
    lo: boundType(inputs['window.lo']),
    hi: boundType(inputs['window.hi']),
    lengthsIncludeNew: problem.lengthsIncludeNew,
  }
  return {
    kernel: traceWindows(config),
    grid: [Math.ceil(tokens / threads), 1],
    args: {
      rowOffsets: inputs.rowOffsets ?? inputs.validLength,
      keyLengths: lengths ?? offsets,
      lo: inputs['window.lo'],
      hi: inputs['window.hi'],
      out: { scratch: 'windows' },
      tokens,
      batch,
      rows,
      keys,
      pool,
      width,
    },
  }
}

export const windowsBytes = (tokens: number): number => 4 * windowWords * tokens
