import { describe, expect, test } from 'vitest'
import { runTensor, type TensorCase } from '../../test/tensor-kernel.ts'

const check = (c: TensorCase): void => {
  for (const landing of ['early', 'late'] as const) {
    const { d, expected, findings, warnings } = runTensor(c, undefined, { landing })
    expect({ findings, warnings }).toEqual({ findings: [], warnings: [] })
    expect(d).toEqual(expected)
  }
}

describe('multiplies of every form give the exact product', () => {
  test.each([
    { dtype: 'bf16', m: 128, n: 32, depth: 64 },
    { dtype: 'e4m3', m: 128, n: 48, depth: 128 },
    { dtype: 'e4m3', m: 64, n: 24, depth: 128 },
    { dtype: 'bf16', m: 64, n: 16, depth: 32, lane: 16, column: 40 },
    { dtype: 'e4m3', m: 64, n: 64, depth: 64, stationary: true },
    { dtype: 'bf16', m: 32, n: 64, depth: 16, stationary: true, column: 8 },
    { dtype: 'e4m3', m: 128, n: 64, depth: 64, stationary: true },
    { dtype: 'bf16', m: 256, n: 32, depth: 32, pair: true },
    { dtype: 'e4m3', m: 128, n: 64, depth: 64, pair: true },
  ] as const satisfies readonly TensorCase[])('%o', check)
})

describe('operands from every place', () => {
  test.each([
    { dtype: 'bf16', m: 128, n: 16, depth: 32, a: 'tensor' },
    { dtype: 'e4m3', m: 64, n: 32, depth: 64, a: 'tensor' },
    { dtype: 'e4m3', m: 64, n: 64, depth: 64, stationary: true, a: 'tensor' },
    { dtype: 'bf16', m: 128, n: 32, depth: 32, pair: true, a: 'tensor' },
    { dtype: 'bf16', m: 256, n: 32, depth: 32, pair: true, a: 'tensor' },
    { dtype: 'bf16', m: 128, n: 64, depth: 64, transposed: { b: true } },
    { dtype: 'bf16', m: 128, n: 128, depth: 32, transposed: { a: true, b: true }, swizzle: 64 },
    { dtype: 'e4m3', m: 64, n: 256, depth: 64, stationary: true, transposed: { b: true }, swizzle: 64 },
    { dtype: 'e4m3', m: 128, n: 64, depth: 32, pair: true, transposed: { a: true, b: true }, swizzle: 32 },
    { dtype: 'e4m3', m: 128, n: 16, depth: 192, swizzle: 64 },
    { dtype: 'e4m3', m: 128, n: 16, depth: 96, swizzle: 32 },
  ] as const satisfies readonly TensorCase[])('%o', check)
})

describe('results through every shape', () => {
  test.each([
    { dtype: 'bf16', m: 64, n: 64, depth: 16, shape: '16x64b' },
    { dtype: 'bf16', m: 64, n: 64, depth: 16, shape: '16x128b', lane: 16 },
    { dtype: 'bf16', m: 64, n: 64, depth: 16, shape: '16x256b' },
  ] as const satisfies readonly TensorCase[])('%o', check)
})
