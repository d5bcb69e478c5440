/**
 * The special function unit. The simulator rounds the exact value once; the hardware is within the stated distance
 * (isa.md §8.4), so results may differ in the last bits.
 */

import { type InstRecord, pure } from '../record.ts'

const cost = { unit: 'mufu', cycles: 2 } as const

/** How far the unit may be off: ulps of the result, or an absolute distance. */
type Error = Pick<InstRecord, 'ulps' | 'within'>

const mufu = (
  name: string,
  ptx: string,
  wgsl: string,
  lane: (a: number) => number,
  error: Error,
  doc: string,
): InstRecord => pure({ name, out: 'f32', in: { a: 'f32' }, ptx: `${ptx} {d}, {a};`, wgsl, cost, lane, ...error, doc })

const smallestNormal = 2 ** -126
/** Subnormals as zero of the same sign, as `.ftz` does to operands and results. */
const flush = (x: number): number =>
  Math.abs(x) >= smallestNormal || Number.isNaN(x) ? x : x < 0 || Object.is(x, -0) ? -0 : 0

export const approximations: Readonly<Record<string, InstRecord>> = {
  'ex2.f32': mufu(
    'ex2.f32',
    'ex2.approx.ftz.f32',
    'exp2({a})',
    a => flush(2 ** flush(a)),
    { ulps: 2 },
    '2^a within 2 ulp; subnormals flush; ex2(-inf) = 0',
  ),
  'lg2.f32': mufu(
    'lg2.f32',
    'lg2.approx.ftz.f32',
    'log2({a})',
    a => Math.log2(flush(a)),
    { ulps: 4, within: 2 ** -22 },
    'log2(a), absolute error 2^-22 near 1',
  ),
  'rcp.f32': mufu(
    'rcp.f32',
    'rcp.approx.ftz.f32',
    '1.0 / {a}',
    a => flush(1 / flush(a)),
    { ulps: 1 },
    '1/a within 1 ulp',
  ),
  'tanh.f32': mufu(
    'tanh.f32',
    'tanh.approx.f32',
    'tanh({a})',
    Math.tanh,
    { ulps: 2 ** 13 },
    'tanh(a), relative error 2^-11',
  ),
}
