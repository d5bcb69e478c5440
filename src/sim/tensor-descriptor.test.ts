import { expect, test } from 'vitest'
import { instructionDescriptor } from '../lang/instruction-descriptor.ts'
import { descriptorBits } from '../lang/matrix-descriptor.ts'
import { decodeInstruction, decodeShared, shapeProblem } from './tensor-descriptor.ts'

const decoded = (bits: number, kind: 'f16' | 'f8f6f4') => {
  const problems: string[] = []
  const fields = decodeInstruction(bits, kind, problem => problems.push(problem))
  return { ...fields, problems }
}

const plain = { aNegated: false, bNegated: false, aTransposed: false, bTransposed: false, problems: [] }

test('worked values of the sheet', () => {
  expect(decoded(0x08200490, 'f16')).toEqual({ ...plain, a: 'bf16', b: 'bf16', m: 128, n: 128 })
  expect(decoded(0x10200490, 'f16')).toEqual({ ...plain, a: 'bf16', b: 'bf16', m: 256, n: 128 })
  expect(decoded(0x08210010, 'f8f6f4')).toEqual({ ...plain, a: 'e4m3', b: 'e4m3', m: 128, n: 128, bTransposed: true })
  expect(decoded(0x08206010 + (1 << 7), 'f8f6f4')).toMatchObject({
    a: 'e5m2',
    b: 'e4m3',
    aNegated: true,
    bNegated: true,
  })
  expect(instructionDescriptor({ dtype: 'bf16', m: 128, n: 128, aTransposed: false, bTransposed: false })).toBe(
    0x08200490,
  )
})

test('what the language encodes is what the decoder reads', () => {
  for (const dtype of ['bf16', 'e4m3'] as const)
    for (const m of [32, 64, 128, 256])
      for (const n of [8, 64, 256])
        for (const bits of [0, 1, 2, 3]) {
          const shape = { dtype, m, n, aTransposed: (bits & 1) === 1, bTransposed: (bits & 2) === 2 }
          const expected = { a: dtype, b: dtype, m, n, aTransposed: shape.aTransposed, bTransposed: shape.bTransposed }
          expect(decoded(instructionDescriptor(shape), dtype === 'bf16' ? 'f16' : 'f8f6f4')).toMatchObject(expected)
        }
})

test('descriptors of shared memory', () => {
  for (const swizzle of [128, 64, 32] as const) {
    const { low, high } = descriptorBits('sm_100a', swizzle, 8192)
    const problems: string[] = []
    const bits = (BigInt(high) << 32n) | BigInt(low | (5120 >> 4))
    expect(decodeShared(bits, false, problem => problems.push(problem))).toEqual({
      start: 4096,
      leading: 8192,
      stride: 8 * swizzle,
      swizzle,
    })
    expect(problems).toEqual([])
  }
  // The word of a packed 128-byte tile, from the sheet.
  expect(descriptorBits('sm_100a', 128, 0).high).toBe(0x40004040)
})

test.each([
  [{ m: 64, n: 8 }, { group: 1, stationary: false }, undefined],
  [{ m: 128, n: 8 }, { group: 1, stationary: false }, /8 columns of 128 rows/],
  [{ m: 32, n: 64 }, { group: 1, stationary: false }, /32 rows/],
  [{ m: 32, n: 64 }, { group: 1, stationary: true }, undefined],
  [{ m: 64, n: 48 }, { group: 1, stationary: true }, /48 columns/],
  [{ m: 64, n: 64 }, { group: 2, stationary: false }, /64 rows/],
  [{ m: 256, n: 24 }, { group: 2, stationary: false }, /24 columns/],
  [{ m: 64, n: 24, bTransposed: true }, { group: 1, stationary: false }, /MN-major B/],
  [{ m: 256, n: 48, bTransposed: true }, { group: 2, stationary: false }, /MN-major B/],
] as const)('shape %o with %o', (shape, form, problem) => {
  const whole = { a: 'e4m3', b: 'e4m3', ...plain, ...shape } as const
  const found = shapeProblem(whole, form)
  if (problem === undefined) expect(found).toBeUndefined()
  else expect(found).toMatch(problem)
})
