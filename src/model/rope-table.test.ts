import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { OptionError, ValueError } from '../errors.ts'
import { parseSafetensors } from '../tensor/safetensors.ts'
import { ropeTable, type YarnOptions, yarnSoftmaxScale } from './rope-table.ts'

/** `rope_scaling` of DeepSeek-V3.2. */
const yarn: YarnOptions = {
  factor: 40,
  originalMaxPositions: 4096,
  betaFast: 32,
  betaSlow: 1,
  mscale: 1,
  mscaleAllDim: 1,
}

/** Angle per position of each pair, from the entries of position 1. */
const frequencies = (spec: Parameters<typeof ropeTable>[0]): number[] => {
  const { cos, sin } = ropeTable({ ...spec, positions: 2 })
  return Array.from(cos.select(0, 1).floats(), (c, i) => Math.atan2(sin.select(0, 1).floats()[i]!, c))
}

describe('ropeTable', () => {
  test('is that of Hugging Face, as far as f32 angles go', () => {
    const file = parseSafetensors(
      readFileSync(new URL('../../test/golden/hf_dsv32_layer.safetensors', import.meta.url)),
    )
    const { cos, sin } = ropeTable({ positions: 160, dim: 64, theta: 10_000 })
    for (const [name, own] of [
      ['cos', cos],
      ['sin', sin],
    ] as const) {
      const theirs = file.get(name).floats()
      const off = own.floats().map((value, at) => Math.abs(value - theirs[Math.floor(at / 32) * 64 + (at % 32)]!))
      expect(Math.max(...off)).toBeLessThan(160 * 2 ** -24 + 2 ** -23)
    }
  })

  test('position 0 turns nothing, the first pair turns by one radian a position', () => {
    const { cos, sin } = ropeTable({ positions: 3, dim: 8, theta: 10_000 })
    expect([...cos.select(0, 0).floats()]).toEqual([1, 1, 1, 1])
    expect([...sin.select(0, 0).floats()]).toEqual([0, 0, 0, 0])
    expect(sin.select(0, 2).floats()[0]).toBe(Math.fround(Math.sin(2)))
  })
})

describe('YaRN', () => {
  const spec = { positions: 2, dim: 64, theta: 10_000 }
  const plain = frequencies(spec)
  const slowed = frequencies({ ...spec, yarn })

  test('keeps pairs 0..10, slows pairs from 23 on by the factor, blends linearly between', () => {
    const ratios = plain.map((frequency, i) => slowed[i]! / frequency)
    for (const [i, ratio] of ratios.entries()) {
      const expected = 1 - Math.min(Math.max((i - 10) / 13, 0), 1) * (1 - 1 / 40)
      expect(ratio).toBeCloseTo(expected, 4)
    }
  })

  test('the length of the entries is m(mscale) / m(mscaleAllDim), or m(1) without both', () => {
    const length = (options: Partial<YarnOptions>): number =>
      ropeTable({ ...spec, yarn: { ...yarn, ...options } }).cos.floats()[0]!
    const m = (mscale: number): number => 0.1 * mscale * Math.log(40) + 1
    expect(length({})).toBe(1)
    expect(length({ mscale: 0.75 })).toBeCloseTo(m(0.75) / m(1), 6)
    expect(length({ mscale: 0, mscaleAllDim: 0 })).toBeCloseTo(m(1), 6)
    expect(length({ mscale: 0.5, mscaleAllDim: 0 })).toBeCloseTo(m(1), 6)
    expect(length({ factor: 1, mscale: 0.5 })).toBe(1)
  })

  test('a factor of 1 changes nothing', () => {
    expect(frequencies({ ...spec, yarn: { ...yarn, factor: 1 } })).toEqual(plain)
  })

  test('SA-17: the softmax scale of DeepSeek-V3.2', () => {
    expect(yarnSoftmaxScale(128)).toBe(192 ** -0.5)
    expect(yarnSoftmaxScale(128, yarn)).toBeCloseTo(0.1352, 4)
    expect(yarnSoftmaxScale(128, yarn) / 192 ** -0.5).toBeCloseTo((0.1 * Math.log(40) + 1) ** 2, 12)
    expect(yarnSoftmaxScale(128, { ...yarn, mscaleAllDim: 0 })).toBe(192 ** -0.5)
  })
})

describe('refusals', () => {
  const spec = { positions: 4, dim: 8, theta: 10_000 }

  test.each([
    ['positions', { positions: -1 }],
    ['positions', { positions: 1.5 }],
    ['dim', { dim: 7 }],
    ['dim', { dim: 0 }],
    ['theta', { theta: 1 }],
    ['theta', { theta: Number.NaN }],
    ['yarn.factor', { yarn: { ...yarn, factor: 0.5 } }],
    ['yarn.originalMaxPositions', { yarn: { ...yarn, originalMaxPositions: 0 } }],
    ['yarn.betaFast', { yarn: { ...yarn, betaFast: 0.5 } }],
    ['yarn.betaSlow', { yarn: { ...yarn, betaSlow: -1 } }],
    ['yarn.mscale', { yarn: { ...yarn, mscale: Number.NaN } }],
    ['yarn.mscaleAllDim', { yarn: { ...yarn, mscaleAllDim: -1 } }],
  ])('%s', (argument, wrong) => {
    expect(() => ropeTable({ ...spec, ...wrong })).toThrow(ValueError)
    expect(() => ropeTable({ ...spec, ...wrong })).toThrow(`ropeTable: ${argument} is`)
  })

  test('a missing mscale has no default: with and without it are different models', () => {
    const { mscaleAllDim: _, ...rest } = yarn
    expect(() => yarnSoftmaxScale(128, rest as YarnOptions)).toThrow(OptionError)
    expect(() => yarnSoftmaxScale(-1)).toThrow(ValueError)
  })
})
