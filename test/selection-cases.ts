/** Arguments and checks for tests of the selecting operations. */

import type { Device } from '../src/device.ts'
import { topKReference } from '../src/kernels/top-k/reference.ts'
import { type TopKArgs, topK } from '../src/ops/top-k.ts'
import { fromFloats, type Tensor, tensor } from '../src/tensor/tensor.ts'
import { expectGate, poisoned, sameBits } from './gates.ts'

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
