/** Arguments and checks for tests of the selecting operations. */

import { expect, test } from 'vitest'
import type { Device } from '../src/device.ts'
import { topKReference } from '../src/kernels/top-k/reference.ts'
import { type TopKArgs, topK } from '../src/ops/top-k.ts'
import { fromFloats, type Tensor, tensor } from '../src/tensor/tensor.ts'
import { expectGate, poisoned, sameBits } from './gates.ts'
import { seeded } from './random.ts'

export interface HostSelection {
  readonly indices: Tensor<'i32'>
  readonly counts: Tensor<'i32'>
}

export type TopKCase = Omit<TopKArgs, 'into'>

/** The outputs of topK, which held poison before. */
export async function selectionOf(device: Device, args: TopKCase): Promise<HostSelection> {
  const tokens = args.scores.shape[0]!
  using indices = device.upload(poisoned('i32', [tokens, args.k]))
  using counts = device.upload(poisoned('i32', [tokens]))
  topK(device, { ...args, into: { indices, counts } })
  return { indices: await indices.read(), counts: await counts.read() }
}

/** Runs topK on host tensors and holds it against the full sort. */
export async function expectTopK(device: Device, args: TopKCase): Promise<HostSelection> {
  const found = await selectionOf(device, args)
  expectSelection(found, topKReference(args))
  return found
}

/** @throws Error unless both hold the same bits */
export function expectSelection(found: HostSelection, expected: HostSelection): void {
  expectGate(sameBits(found.indices, expected.indices, 'indices'))
  expectGate(sameBits(found.counts, expected.counts, 'counts'))
}

/** One row of f32. */
export const rowOf = (length: number, score: (i: number) => number): Tensor<'f32'> =>
  fromFloats(
    'f32',
    [1, length],
    Float32Array.from({ length }, (_, i) => score(i)),
  )

/** Rows of the same length. */
export const rowsOf = (...rows: readonly Tensor<'f32'>[]): Tensor<'f32'> => {
  const width = rows[0]!.shape[1]!
  const data = new Float32Array(rows.length * width)
  for (const [r, row] of rows.entries()) data.set(row.codes(), r * width)
  return tensor('f32', [rows.length, width], data)
}

/** A permutation of 0 .. n-1 that sends neighbours far apart; n a power of two. */
export const scatter =
  (n: number) =>
  (i: number): number =>
    (Math.imul(i, 40503) >>> 0) % n

/** Edges of shapes and layouts that every kernel of topK must pass, each a test. */
export function selectionEdges(device: Device): void {
  test('k 8192 of fewer keys, and no columns or rows at all', async () => {
    await expectTopK(device, { scores: rowOf(2100, seeded(1).normal), k: 8192, order: 'index' })
    await expectTopK(device, { scores: tensor('f32', [2, 0], new Float32Array()), k: 3 })
    await expectTopK(device, { scores: tensor('f32', [0, 7], new Float32Array()), k: 3 })
  })

  test('bf16 rows of a wider matrix into rows of a wider result', async () => {
    const { normal } = seeded(32)
    const wide = fromFloats('bf16', [3, 401], Float32Array.from({ length: 1203 }, normal))
    const into = device.upload(tensor('i32', [3, 50], new Int32Array(150).fill(-9)))
    topK(device, { scores: device.upload(wide).narrow(1, 3, 300), k: 30, into: { indices: into.narrow(1, 9, 30) } })
    const expected = await expectTopK(device, { scores: wide.narrow(1, 3, 300), k: 30 })
    const whole = await into.read()
    expectGate(sameBits(whole.narrow(1, 9, 30), expected.indices))
    expect(new Set([...whole.narrow(1, 0, 9).codes(), ...whole.narrow(1, 39, 11).codes()])).toEqual(new Set([-9]))
  })
}
