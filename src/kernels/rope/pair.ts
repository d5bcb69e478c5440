/** A rotated pair whose two columns one lane holds; lane i has pair i of 32. */

import type { Buffer } from '../../lang/buffer.ts'
import type { KernelBuilder } from '../../lang/builder.ts'
import type { Val } from '../../lang/value.ts'
import type { RopeStyle } from './problem.ts'

type U32 = Val<'u32'>
type F32 = Val<'f32'>

/** Pairs of 64 rotated columns. */
const pairs = 32

/** The columns of pair `i`, counted from the first rotated one. */
export const pairColumns = (style: RopeStyle, i: U32): readonly [a: U32, b: U32] =>
  style === 'interleaved' ? [i.mul(2), i.mul(2).add(1)] : [i, i.add(pairs)]

export interface RopeTables {
  readonly cos: Buffer<'f32'>
  readonly sin: Buffer<'f32'>
  readonly positions: Buffer<'u32'>
  readonly angles: U32
  readonly cosStride: U32
  readonly sinStride: U32
}

/** Cosine and sine of the lane's pair at a token's position, where the tables have it; beyond they are not read. */
export interface Turn {
  readonly cos: F32
  readonly sin: F32
  readonly inside: Val<'pred'>
}

export function turnOf(k: KernelBuilder, p: RopeTables, token: U32): Turn {
  const position = p.positions.load(token)
  const inside = position.lt(p.angles)
  const [cos, sin] = [k.var('f32', 0), k.var('f32', 0)]
  k.when(inside, () => {
    cos.set(p.cos.load(k.offset(k.lane, position, p.cosStride)))
    sin.set(p.sin.load(k.offset(k.lane, position, p.sinStride)))
  })
  return { cos, sin, inside }
}

/** (a, b) -> (a cos - b sin, b cos + a sin), products and sums rounded to f32; NaN beyond the tables. */
export const turned = ({ cos, sin, inside }: Turn, a: F32, b: F32): readonly [F32, F32] => [
  inside.select(a.mul(cos).add(b.mul(sin.neg())), Number.NaN),
  inside.select(b.mul(cos).add(a.mul(sin)), Number.NaN),
]
