/**
 * Cosines and sines of the rotary position embedding, with YaRN context extension as DeepSeek-V3 and Hugging Face
 * transformers define it (`_compute_yarn_parameters`, `DeepseekV3Attention.scaling`).
 */

import { OptionError, ValueError } from '../errors.ts'
import { type Tensor, tensor } from '../tensor/tensor.ts'

/** `rope_scaling` of type `yarn` in a `config.json`. */
export interface YarnOptions {
  /** How many times longer the context becomes, `factor`; at least 1. */
  readonly factor: number
  /** Context length before, `original_max_position_embeddings`. */
  readonly originalMaxPositions: number
  /** A pair that turns this often within the old context keeps its frequency, `beta_fast`. Default 32. */
  readonly betaFast?: number | undefined
  /** A pair that turns this often or less is slowed down by `factor`, `beta_slow`. Default 1. */
  readonly betaSlow?: number | undefined
  /** Numerator of the length of rotated vectors, `mscale`; 0 where the file has none. DeepSeek-V3.2: 1. */
  readonly mscale: number
  /** Its denominator, and the factor of the softmax scale, `mscale_all_dim`; 0 where the file has none. DeepSeek-V3.2: 1. */
  readonly mscaleAllDim: number
}

export interface RopeTableSpec {
  /** Rows of the table: positions 0 .. positions-1. */
  readonly positions: number
  /** Rotated columns, even. */
  readonly dim: number
  /** Base of the frequencies, `rope_theta`. */
  readonly theta: number
  readonly yarn?: YarnOptions | undefined
}

export interface RopeTable {
  /** f32 `[positions, dim / 2]`. */
  readonly cos: Tensor<'f32'>
  /** f32 `[positions, dim / 2]`. */
  readonly sin: Tensor<'f32'>
}

/** Magnitude of vectors in a context `factor` times longer: 0.1 · mscale · ln factor + 1, and 1 for a factor up to 1. */
const magnitude = (factor: number, mscale: number): number => (factor <= 1 ? 1 : 0.1 * mscale * Math.log(factor) + 1)

/**
 * The table that `rope` reads.
 *
 *   cos[p, i] = a · cos(p · f_i)     sin[p, i] = a · sin(p · f_i)     f_i = theta^(-2i/dim)     a = 1
 *
 * With YaRN a pair that turns often keeps its frequency, one that turns seldom has it divided by `factor`, and between
 * pair `low` and pair `high` the two blend linearly:
 *
 *   f_i = r_i · theta^(-2i/dim) / factor + (1 - r_i) · theta^(-2i/dim)     r_i = clamp((i - low) / (high - low), 0, 1)
 *   pair(turns) = dim · ln(originalMaxPositions / (2π · turns)) / (2 ln theta)
 *   low = max(⌊pair(betaFast)⌋, 0)     high = min(⌈pair(betaSlow)⌉, dim - 1)
 *   a = m(mscale) / m(mscaleAllDim), or m(1) if either is 0     m(s) = 0.1 · s · ln factor + 1
 *
 * Angles are in float64, each entry rounded once; PyTorch's f32 angles differ by up to p · 2^-24.
 *
 * @throws ValueError | OptionError
 */
export function ropeTable(spec: RopeTableSpec): RopeTable {
  const { positions, dim, yarn } = spec
  const frequencies = frequenciesOf(spec)
  const length = yarn === undefined ? 1 : attentionFactor(yarn)
  const half = dim / 2
  const entries = (of: (angle: number) => number): Tensor<'f32'> =>
    tensor(
      'f32',
      [positions, half],
      Float32Array.from(
        { length: positions * half },
        (_, at) => length * of(Math.floor(at / half) * frequencies[at % half]!),
      ),
    )
  return { cos: entries(Math.cos), sin: entries(Math.sin) }
}

/**
 * Softmax scale of MLA: (nope + 64)^-½, and with YaRN × (0.1 · mscaleAllDim · ln factor + 1)², which does for all columns
 * what the table's length does for the rotated ones.
 *
 * @param nope columns of a head without rope
 * @throws ValueError | OptionError
 */
export function yarnSoftmaxScale(nope: number, yarn?: YarnOptions): number {
  const where = 'yarnSoftmaxScale'
  check(where, 'nope', nope, Number.isInteger(nope) && nope >= 0, 'an integer, at least 0')
  const scale = (nope + 64) ** -0.5
  if (yarn === undefined) return scale
  checkYarn(where, yarn)
  return scale * magnitude(yarn.factor, yarn.mscaleAllDim) ** 2
}

function attentionFactor({ factor, mscale, mscaleAllDim }: YarnOptions): number {
  if (mscale === 0 || mscaleAllDim === 0) return magnitude(factor, 1)
  return magnitude(factor, mscale) / magnitude(factor, mscaleAllDim)
}

function frequenciesOf({ positions, dim, theta, yarn }: RopeTableSpec): number[] {
  const where = 'ropeTable'
  check(where, 'positions', positions, Number.isInteger(positions) && positions >= 0, 'an integer, at least 0')
  check(where, 'dim', dim, Number.isInteger(dim) && dim > 0 && dim % 2 === 0, 'an even number of columns')
  check(where, 'theta', theta, theta > 1 && theta < Infinity, 'a finite number above 1')
  const plain = Array.from({ length: dim / 2 }, (_, i) => theta ** ((-2 * i) / dim))
  if (yarn === undefined) return plain
  checkYarn(where, yarn)
  const { factor, originalMaxPositions, betaFast = 32, betaSlow = 1 } = yarn
  const pair = (turns: number): number =>
    (dim * Math.log(originalMaxPositions / (2 * Math.PI * turns))) / (2 * Math.log(theta))
  const low = Math.max(Math.floor(pair(betaFast)), 0)
  const high = Math.min(Math.ceil(pair(betaSlow)), dim - 1)
  const steps = high === low ? 0.001 : high - low
  return plain.map((frequency, i) => {
    const slowed = Math.min(Math.max((i - low) / steps, 0), 1)
    return (slowed * frequency) / factor + (1 - slowed) * frequency
  })
}

const isPositive = (x: number): boolean => x > 0 && x < Infinity

function checkYarn(where: string, yarn: YarnOptions): void {
  for (const field of ['factor', 'originalMaxPositions', 'mscale', 'mscaleAllDim'] as const)
    if (yarn[field] === undefined)
      throw new OptionError({ where, argument: `yarn.${field}`, given: 'missing', allowed: 'a number' })
  const { factor, originalMaxPositions, betaFast = 32, betaSlow = 1, mscale, mscaleAllDim } = yarn
  check(where, 'yarn.factor', factor, factor >= 1 && factor < Infinity, 'a finite number, at least 1')
  check(where, 'yarn.originalMaxPositions', originalMaxPositions, isPositive(originalMaxPositions), 'a positive number')
  check(where, 'yarn.betaSlow', betaSlow, isPositive(betaSlow), 'a positive number')
  check(where, 'yarn.betaFast', betaFast, betaFast >= betaSlow && betaFast < Infinity, `at least betaSlow, ${betaSlow}`)
  check(where, 'yarn.mscale', mscale, mscale >= 0 && mscale < Infinity, 'a finite number, at least 0')
  check(
    where,
    'yarn.mscaleAllDim',
    mscaleAllDim,
    mscaleAllDim >= 0 && mscaleAllDim < Infinity,
    'a finite number, at least 0',
  )
}

function check(where: string, argument: string, given: number, holds: boolean, allowed: string): void {
  if (!holds) throw new ValueError({ where, argument, given, allowed })
}
