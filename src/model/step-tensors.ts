/**
 * The numbers of a step on a device, one block of words, so that a step brings them in a single copy:
 *
 *   rowOffsets u32 [batch + 1] | cacheLength u32 [batch] | positions i32 [tokens] | slots i32 [tokens] | blockTable u32 [batch, pages]
 */

import type { Device } from '../device.ts'
import { DeviceTensor } from '../tensor/device-tensor.ts'
import { unusedPage } from '../tensor/page-table.ts'
import { sizeOf } from '../tensor/shape.ts'
import { type Indices, slots } from '../tensor/spaces.ts'
import { type Tensor, tensor } from '../tensor/tensor.ts'
import type { StepBatch } from './step-batch.ts'

export interface StepTensors {
  /** u32 `[batch + 1]`: sequence b has the tokens `rowOffsets[b] .. rowOffsets[b+1]-1`. */
  readonly rowOffsets: DeviceTensor<'u32'>
  /** u32 `[batch]`: tokens cached before the step. */
  readonly cacheLength: DeviceTensor<'u32'>
  /** i32 `[tokens]`: position of each token in its sequence. */
  readonly positions: DeviceTensor<'i32'>
  /** i32 `[tokens]`: slot of each token in the cache; -1 for a token of no sequence. */
  readonly slots: Indices<'slot'>
  /** u32 `[batch, pages]`. */
  readonly blockTable: DeviceTensor<'u32'>
}

export interface StepExtents {
  readonly batch: number
  readonly tokens: number
  /** Columns of the block table. */
  readonly pages: number
}

/** First word of each part, and how many there are. */
interface Places extends Readonly<Record<keyof StepTensors, number>> {
  readonly words: number
}

/** Parts start at multiples of 128 bytes. */
const alignedWords = 32

function placesOf({ batch, tokens, pages }: StepExtents): Places {
  let words = 0
  const place = (count: number): number => {
    const at = words
    words += Math.ceil(count / alignedWords) * alignedWords
    return at
  }
  const places = {
    rowOffsets: place(batch + 1),
    cacheLength: place(batch),
    positions: place(tokens),
    slots: place(tokens),
    blockTable: place(batch * pages),
  }
  return { ...places, words }
}

/**
 * The numbers of a step in room for more: sequences that are missing have no tokens, tokens that are missing belong to no
 * sequence and have no slot.
 */
export function stepWords(extents: StepExtents, batch: StepBatch): Tensor<'u32'> {
  const places = placesOf(extents)
  const words = new Uint32Array(places.words)
  const { batch: rows, tokens, pages } = extents
  words.fill(batch.tokens, places.rowOffsets, places.rowOffsets + rows + 1)
  words.set(batch.rowOffsets.codes(), places.rowOffsets)
  words.set(batch.cacheLength.codes(), places.cacheLength)
  words.set(batch.positions.codes(), places.positions)
  words.fill(0xffff_ffff, places.slots, places.slots + tokens)
  words.set((batch.slots as Tensor<'i32'>).codes(), places.slots)
  words.fill(unusedPage, places.blockTable, places.blockTable + rows * pages)
  const [given, columns] = batch.blockTable.shape as [number, number]
  const table = batch.blockTable.codes()
  for (let b = 0; b < given; b++)
    words.set(table.subarray(b * columns, (b + 1) * columns), places.blockTable + b * pages)
  return tensor('u32', [places.words], words)
}

/** Room for the words on a device. @throws MemoryError */
export const allocStepWords = (device: Device, extents: StepExtents): DeviceTensor<'u32'> =>
  device.alloc('u32', [placesOf(extents).words])

/** Views of the words by what they are. */
export function stepTensors(words: DeviceTensor<'u32'>, extents: StepExtents): StepTensors {
  const { batch, tokens, pages } = extents
  const places = placesOf(extents)
  const u32 = (at: number, shape: readonly number[]): DeviceTensor<'u32'> =>
    words.narrow(0, at, sizeOf(shape)).reshape(shape)
  const i32 = (at: number, count: number): DeviceTensor<'i32'> => {
    const { shape, strides, offset } = words.narrow(0, at, count)
    return new DeviceTensor(
      { dtype: 'i32', shape, strides, offset, dims: undefined, space: undefined },
      words.allocation,
    )
  }
  return {
    rowOffsets: u32(places.rowOffsets, [batch + 1]),
    cacheLength: u32(places.cacheLength, [batch]),
    positions: i32(places.positions, tokens),
    slots: slots(i32(places.slots, tokens)),
    blockTable: u32(places.blockTable, [batch, pages]),
  }
}
