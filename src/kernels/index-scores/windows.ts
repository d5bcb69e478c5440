/**
 * The window of keys of every query token, on a GPU: one thread a token. What the scoring kernels of all targets read
 * instead of sequence offsets and lengths.
 *
 *   out[t] = { lo, hi, sequence, firstRow }      lo <= hi; empty for tokens that no sequence holds
 *
 * Lengths and offsets are clamped to what exists, so values only the device knows cannot lead out of a tensor.
 */

import type { Buffer } from '../../lang/buffer.ts'
import type { KernelBuilder } from '../../lang/builder.ts'
import { kernel } from '../../lang/kernel.ts'
import { type KernelLaunch, specialize } from '../../lang/launch.ts'
import { input, output, u32 } from '../../lang/params.ts'
import type { Target } from '../../lang/types.ts'
import type { Val } from '../../lang/value.ts'
import type { DeviceTable } from '../../ops/op.ts'
import type { DeviceTensor } from '../../tensor/device-tensor.ts'
import type { TokenWindowsProblem } from './problem.ts'

const threads = 128
/** Words of one token's window. */
export const windowWords = 4

interface WindowsConfig {
  readonly target: Target
  readonly tokens: 'offsets' | 'padded' | 'single'
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

/** Where a token stands: its sequence, the sequence's first token and length; length 0 when no sequence holds it. */
interface Place {
  readonly sequence: Val<'u32'>
  readonly first: I32
  readonly length: I32
}

/** Smallest b with offsets[b + 1] > token, or batch: a binary search. */
function sequenceOf(k: KernelBuilder, offsets: Buffer<'i32'>, batch: Val<'u32'>, token: Val<'u32'>): Val<'u32'> {
  const low = k.var('u32', 0)
  const high = k.var('u32', batch)
  k.when(batch.gt(0), () =>
    k.repeat(() => {
      const middle = low.add(high).shr(1)
      const above = offsets.load(middle.add(1)).to('u32').gt(token)
      high.set(above.select(middle, high))
      low.set(above.select(low, middle.add(1)))
      return low.lt(high)
    }),
  )
  return low
}

const traceWindows = specialize((c: WindowsConfig) =>
  kernel({ name: 'token_windows', target: c.target, threads, params }, (k, p) => {
    const token = k.blockIdx.x.mul(threads).add(k.threadIdx)
    k.when(token.lt(p.tokens), () => {
      const { sequence, first, length } = placeOf(k, c, p, token)
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

function placeOf(
  k: KernelBuilder,
  c: WindowsConfig,
  p: { rowOffsets: Buffer<'i32'>; tokens: Val<'u32'>; batch: Val<'u32'>; rows: Val<'u32'> },
  token: Val<'u32'>,
): Place {
  if (c.tokens === 'single')
    return { sequence: k.const('u32', 0), first: k.const('i32', 0), length: p.tokens.to('i32') }
  if (c.tokens === 'padded') {
    const sequence = token.div(p.rows)
    const first = sequence.mul(p.rows)
    const valid = p.rowOffsets.load(sequence).min(p.rows.to('i32'))
    return { sequence, first: first.to('i32'), length: token.sub(first).to('i32').lt(valid).select(valid, 0) }
  }
  const sequence = sequenceOf(k, p.rowOffsets, p.batch, token)
  const first = k.var('i32', 0)
  const length = k.var('i32', 0)
  k.when(sequence.lt(p.batch), () => {
    first.set(p.rowOffsets.load(sequence))
    const end = p.rowOffsets.load(sequence.add(1))
    length.set(first.le(token.to('i32')).select(end.sub(first), 0))
  })
  return { sequence, first, length }
}

const boundType = (t: DeviceTensor | undefined): 'none' | 'i32' | 'u32' =>
  t === undefined ? 'none' : (t.dtype as 'i32' | 'u32')

/** The launch that fills scratch region `windows`, `windowsBytes` long. */
export function windowsLaunch(target: Target, problem: TokenWindowsProblem, inputs: DeviceTable): KernelLaunch {
  const { tokens, batch, rows, keys, pool, width, window } = problem
  const lengths = inputs['keys.cacheLength']
  const offsets = inputs['keys.kvRowOffsets']
  const config: WindowsConfig = {
    target,
    tokens: inputs.rowOffsets !== undefined ? 'offsets' : inputs.validLength !== undefined ? 'padded' : 'single',
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
