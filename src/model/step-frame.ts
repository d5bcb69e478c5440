/** Steps of one shape whose numbers lie in the same place on a device each time: what a recorded step reads. */

import type { Device } from '../device.ts'
import { MemoryError, OptionError, ShapeError } from '../errors.ts'
import { Contract } from '../ops/contract.ts'
import type { DeviceTensor } from '../tensor/device-tensor.ts'
import type { AppendRequest } from '../tensor/page-table.ts'
import type { PagedCache } from '../tensor/paged-cache.ts'
import { beginStep, type StepBatch } from './step-batch.ts'
import { allocStepWords, type StepExtents, type StepTensors, stepTensors, stepWords } from './step-tensors.ts'

export interface StepFrameSpec {
  /** Its pools on the device. */
  readonly cache: PagedCache
  /** Most sequences of a step. */
  readonly sequences: number
  /** New tokens of every sequence: up to 8 are decoded. Or else `tokens`. */
  readonly queries?: number | undefined
  /** Most new tokens of all sequences together, shared out among them as each step says. */
  readonly tokens?: number | undefined
  /** Longest that a sequence may become. */
  readonly maxKeys: number
}

const where = 'StepFrame'

/**
 * Room for the numbers of steps of up to so many sequences and tokens. A step of the layer on a frame reads them from the
 * device alone, so it can be recorded once and replayed for any step that `begin` has put into the frame.
 *
 * @example
 *   const frame = new StepFrame(device, { cache, sequences: 16, queries: 1, maxKeys: 32_768 })
 *   attention.reserve(frame.longest)
 *   frame.begin(ids.map(id => ({ id, tokens: 1 })))
 *   const graph = device.capture(() => { out = attention.step({ x, cache, sequences: frame }).out })
 *   graph.replay()      // and then, again and again: frame.begin(…), device.write(x, …), graph.replay()
 */
export class StepFrame implements Disposable {
  readonly cache: PagedCache
  /** Rows of x, whether or not a step fills them. */
  readonly tokens: number
  /** New tokens of every sequence, where they all have as many. */
  readonly queries: number | undefined
  /** One more than the largest position. */
  readonly longest: number
  readonly tensors: StepTensors
  private readonly device: Device
  private readonly extents: StepExtents
  private readonly words: DeviceTensor<'u32'>

  /** @throws OptionError | ValueError | MemoryError */
  constructor(device: Device, spec: StepFrameSpec) {
    const c = new Contract(where, spec, ['cache', 'sequences', 'queries', 'tokens', 'maxKeys'])
    const { cache, queries, tokens } = spec
    const batch = c.integer('sequences', spec.sequences, 1)
    if ((queries === undefined) === (tokens === undefined))
      throw new OptionError({
        where,
        argument: 'queries',
        given: queries ?? 'missing',
        allowed: 'a number either here or as tokens',
      })
    this.device = device
    this.cache = cache
    this.queries = queries && c.integer('queries', queries, 1)
    this.tokens = queries === undefined ? c.integer('tokens', tokens, 1) : batch * queries
    this.longest = c.integer('maxKeys', spec.maxKeys, 1)
    this.extents = { batch, tokens: this.tokens, pages: Math.ceil(this.longest / cache.pages.pageSize) }
    this.words = allocStepWords(device, this.extents)
    this.tensors = stepTensors(this.words, this.extents)
  }

  /**
   * Makes room for new tokens at the end of their sequences, all of it or nothing, and puts the step into the frame, after
   * the work queued so far. With fewer sequences or tokens than the frame has room for, the rest of the rows of x belong to
   * no sequence; their outputs mean nothing.
   *
   * @throws ShapeError for more than there is room for; MemoryError when a sequence would become longer than `maxKeys` or
   *   the free pages do not suffice; nothing has changed then
   */
  begin(requests: readonly AppendRequest[]): StepBatch {
    this.check(requests)
    const batch = beginStep(this.cache, requests)
    try {
      if (batch.longest > this.longest)
        throw new MemoryError({ where, argument: 'keys', given: batch.longest, allowed: `at most ${this.longest}` })
      this.device.write(this.words, stepWords(this.extents, batch))
    } catch (error) {
      batch.undo()
      throw error
    }
    return batch
  }

  private check(requests: readonly AppendRequest[]): void {
    const { queries, tokens, extents } = this
    const refuse = (argument: string, given: number, allowed: string): never => {
      throw new ShapeError({ where, argument, given, allowed })
    }
    if (requests.length > extents.batch) refuse('requests', requests.length, `at most ${extents.batch} sequences`)
    const odd = requests.find(request => queries !== undefined && request.tokens !== queries)
    if (odd !== undefined) refuse('tokens', odd.tokens, `${queries}, as every sequence of the frame has`)
    const total = requests.reduce((sum, request) => sum + request.tokens, 0)
    if (total > tokens) refuse('tokens', total, `at most ${tokens}`)
  }

  dispose(): void {
    this.words.dispose()
  }

  [Symbol.dispose](): void {
    this.dispose()
  }
}
