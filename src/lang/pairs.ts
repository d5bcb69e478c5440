/** Two f32 in one 64-bit register, from sm_100 on: half the instructions for sums and products (isa.md §8.4). */

import { pairs } from './isa/pairs.ts'
import { type Arg, emitValue, type Val } from './value.ts'

export const packPair = (low: Val<'f32'>, high: Arg<'f32'>): Val<'f32x2'> =>
  emitValue(low.trace, pairs.pack, 'f32x2', { low, high })

/** The same value twice. */
export const bothOf = (value: Val<'f32'>): Val<'f32x2'> => packPair(value, value)

export const unpackPair = (pair: Val<'f32x2'>): readonly [low: Val<'f32'>, high: Val<'f32'>] => [
  emitValue(pair.trace, pairs.low, 'f32', { a: pair }),
  emitValue(pair.trace, pairs.high, 'f32', { a: pair }),
]

/** Both sums, products, and a * b + c; each half rounded once. */
export const addPairs = (a: Val<'f32x2'>, b: Val<'f32x2'>): Val<'f32x2'> =>
  emitValue(a.trace, pairs.add, 'f32x2', { a, b })
export const mulPairs = (a: Val<'f32x2'>, b: Val<'f32x2'>): Val<'f32x2'> =>
  emitValue(a.trace, pairs.mul, 'f32x2', { a, b })
export const fmaPairs = (a: Val<'f32x2'>, b: Val<'f32x2'>, c: Val<'f32x2'>): Val<'f32x2'> =>
  emitValue(a.trace, pairs.fma, 'f32x2', { a, b, c })
