/** The sequences of one step: where their new tokens stand and lie. All layers of a stack share it. */

import type { AppendRequest } from '../tensor/page-table.ts'
import type { PagedCache } from '../tensor/paged-cache.ts'
import { type Indices, slots as slotIndices } from '../tensor/spaces.ts'
import { type Tensor, tensor } from '../tensor/tensor.ts'

/** New tokens of several sequences, one after the other, with their pages taken. Made by {@link beginStep}. */
export class StepBatch {
  readonly cache: PagedCache
  readonly requests: readonly AppendRequest[]
  /** Tokens of all sequences. */
  readonly tokens: number
  /** u32 `[batch + 1]`: sequence b has the tokens `rowOffsets[b] .. rowOffsets[b+1]-1`. */
  readonly rowOffsets: Tensor<'u32'>
  /** i32 `[tokens]`: position of each token in its sequence. */
  readonly positions: Tensor<'i32'>
  /** i32 `[tokens]`: slot of each token in the cache. */
  readonly slots: Indices<'slot'>
  /** u32 `[batch, pages]`. */
  readonly blockTable: Tensor<'u32'>
  /** u32 `[batch]`: tokens cached before this step. */
  readonly cacheLength: Tensor<'u32'>
  /** One more than the largest position. */
  readonly longest: number

  constructor(cache: PagedCache, requests: readonly AppendRequest[], slots: Int32Array, starts: readonly number[]) {
    this.cache = cache
    this.requests = requests
    this.tokens = slots.length
    const offsets = new Uint32Array(requests.length + 1)
    const positions = new Int32Array(slots.length)
    for (const [b, { tokens }] of requests.entries()) {
      offsets[b + 1] = offsets[b]! + tokens
      for (let i = 0; i < tokens; i++) positions[offsets[b]! + i] = starts[b]! + i
    }
    this.rowOffsets = tensor('u32', [offsets.length], offsets)
    this.positions = tensor('i32', [positions.length], positions)
    this.slots = slotIndices(tensor('i32', [slots.length], slots))
    this.blockTable = cache.pages.blockTable(requests.map(({ id }) => id))
    this.cacheLength = tensor('u32', [starts.length], Uint32Array.from(starts))
    this.longest = positions.reduce((most, position) => Math.max(most, position + 1), 0)
  }

  /** Tokens of every sequence where they have the same number, else undefined. */
  get queries(): number | undefined {
    const [first, ...others] = this.requests.map(({ tokens }) => tokens)
    return others.every(tokens => tokens === first) ? first : undefined
  }

  /** Sequences. */
  get batch(): number {
    return this.requests.length
  }

  /** Columns of the block table. */
  get pages(): number {
    return this.blockTable.shape[1]!
  }

  /** Takes the step back: its tokens leave their sequences. */
  undo(): void {
    const starts = this.cacheLength.codes()
    for (const [b, { id }] of [...this.requests.entries()].reverse()) this.cache.truncate(id, starts[b]!)
  }
}

/**
 * Makes room for new tokens at the end of their sequences, all of it or nothing.
 *
 * @throws MemoryError when the free pages of the cache do not suffice; DisposedError | ValueError; nothing has changed then
 */
export function beginStep(cache: PagedCache, requests: readonly AppendRequest[]): StepBatch {
  const { slots, starts } = cache.pages.appendBatch(requests)
  return new StepBatch(cache, requests, slots, starts)
}
