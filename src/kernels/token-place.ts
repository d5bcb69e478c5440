/** Which sequence a query token belongs to and where it stands in it, inside a kernel. */

import type { Buffer } from '../lang/buffer.ts'
import type { KernelBuilder } from '../lang/builder.ts'
import type { Val } from '../lang/value.ts'
import type { DeviceTable } from '../ops/op.ts'

type U32 = Val<'u32'>
type I32 = Val<'i32'>

/** How the tokens of a call form sequences: by row offsets, in rows of equal number, or all as one. */
export type TokenLayout = 'offsets' | 'padded' | 'single'

export interface TokenPlaceParams {
  /** Row offsets `[batch + 1]`, or lengths `[batch]` of padded sequences. */
  readonly rowOffsets: Buffer<'i32'>
  readonly tokens: U32
  readonly batch: U32
  /** Rows of a padded sequence. */
  readonly rows: U32
}

export interface TokenPlace {
  readonly sequence: U32
  /** First token of the sequence. */
  readonly first: I32
  /** Tokens of the sequence; 0 when no sequence holds the token. */
  readonly length: I32
}

export const tokenLayout = ({ rowOffsets, validLength }: DeviceTable): TokenLayout =>
  rowOffsets !== undefined ? 'offsets' : validLength !== undefined ? 'padded' : 'single'

export function tokenPlace(k: KernelBuilder, layout: TokenLayout, p: TokenPlaceParams, token: U32): TokenPlace {
  if (layout === 'single') return { sequence: k.const('u32', 0), first: k.const('i32', 0), length: p.tokens.to('i32') }
  if (layout === 'padded') {
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

/** Smallest b with offsets[b + 1] > token, or batch: a binary search. */
function sequenceOf(k: KernelBuilder, offsets: Buffer<'i32'>, batch: U32, token: U32): U32 {
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
