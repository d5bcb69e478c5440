import { describe, expect, test } from 'vitest'
import type { Swizzle } from '../lang/swizzle.ts'
import { chunkAddress } from './tensor-operand.ts'

/**
 * Canonical layouts of operands as CUTLASS writes them beside `make_umma_desc`, in units of 16 bytes: K-major ((8, m), 2) and
 * MN-major ((w, n), (8, k)), under `Swizzle<B, 4, 3>` of byte addresses, w = 2^B.
 */
const turned = (address: number, bits: number): number => address ^ ((address & ((2 ** bits - 1) << 7)) >> 3)

const bitsOf: Readonly<Record<Swizzle, number>> = { 0: 0, 32: 1, 64: 2, 128: 3 }

const kMajor = (swizzle: Swizzle, row: number, half: number, leading: number, stride: number): number => {
  const width = 2 ** bitsOf[swizzle]
  const [inner, outer] = [row % 8, Math.floor(row / 8)]
  return 16 * (inner * width + outer * stride + half * (swizzle === 0 ? leading : 1))
}

const mnMajor = (swizzle: Swizzle, chunk: number, k: number, leading: number, stride: number): number => {
  const width = 2 ** bitsOf[swizzle]
  const [inK, outK] = [k % 8, Math.floor(k / 8)]
  if (swizzle === 0) return 16 * (chunk * stride + inK + outK * leading)
  return 16 * ((chunk % width) + Math.floor(chunk / width) * leading + inK * width + outK * stride)
}

describe.each([0, 32, 64, 128] as const)('swizzle %i', swizzle => {
  const start = 8192
  const [leading, stride] = [512, 2 * swizzle]
  const descriptor = { start, leading: 16 * leading, stride: 16 * (stride || 24), swizzle }
  const rows = stride || 24

  test('K-major: 8 rows and the swizzle of CUTLASS', () => {
    for (let row = 0; row < 64; row++)
      for (const half of [0, 1])
        expect(chunkAddress(descriptor, row, 16 * half, false)).toBe(
          turned(start + kMajor(swizzle, row, half, leading, rows), bitsOf[swizzle]),
        )
  })

  test('MN-major: panels and rows of K', () => {
    for (let k = 0; k < 32; k++)
      for (let chunk = 0; chunk < 16; chunk++)
        expect(chunkAddress(descriptor, k, 16 * chunk, true)).toBe(
          turned(start + mnMajor(swizzle, chunk, k, leading, rows), bitsOf[swizzle]),
        )
  })
})
