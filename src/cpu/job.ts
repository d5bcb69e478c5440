/**
 * A launch laid out in WASM memory: a control block of i32 words (stop flag, then a counter and a barrier per stage),
 * followed by each stage's argument words.
 */

import { AbortedError } from '../errors.ts'
import type { CpuMemory } from './memory.ts'
import { type CpuStage, lines } from './plan.ts'

/** A stage as a worker receives it: addresses instead of words. */
export interface PlacedStage {
  readonly kernel: string
  readonly items: number
  readonly args: number
}

export interface Job {
  readonly op: string
  /** Address of the control block. */
  readonly control: number
  readonly stages: readonly PlacedStage[]
  /** Worker scratch: worker `w` has `[scratch + w * scratchStride, …)`. */
  readonly scratch: number
  readonly scratchStride: number
}

/** Runs jobs one at a time. */
export interface Executor {
  readonly workers: number
  /** Resolves when all workers are there. @throws the reason why one could not start */
  ready(): Promise<void>
  /** Resolves when every stage has run. @throws AbortedError | FaultError */
  run(job: Job, signal: AbortSignal | undefined): Promise<void>
  dispose(): Promise<void>
}

const controlWords = (stages: number): number => 1 + 2 * stages

/** Bytes of the block that `placeJob` fills. */
export const jobBytes = (stages: readonly CpuStage[]): number =>
  lines(4 * controlWords(stages.length)) + stages.reduce((sum, stage) => sum + lines(stage.args.byteLength), 0)

/** Writes control block and arguments at `address`. */
export function placeJob(memory: CpuMemory, address: number, stages: readonly CpuStage[]): PlacedStage[] {
  const controlBytes = lines(4 * controlWords(stages.length))
  memory.bytesAt(address, controlBytes).fill(0)
  let at = address + controlBytes
  return stages.map(({ kernel, items, args }) => {
    const placed = { kernel, items, args: at }
    new Uint32Array(memory.memory.buffer, at, args.length).set(args)
    at += lines(args.byteLength)
    return placed
  })
}

/** The control block's words. */
export const controlOf = (memory: WebAssembly.Memory, job: Job): Int32Array =>
  new Int32Array(memory.buffer, job.control, controlWords(job.stages.length))

/**
 * Tells every worker to leave its loop or its barrier. The barriers are opened too, since a worker between its look at
 * the stop flag and its wait would otherwise sleep for ever. `worker.js` has the same function.
 */
export function stopWorkers(control: Int32Array): void {
  Atomics.store(control, 0, 1)
  for (let barrier = 2; barrier < control.length; barrier += 2) {
    Atomics.store(control, barrier, 1 << 30)
    Atomics.notify(control, barrier)
  }
}

export const abortedError = ({ op }: Job, { reason }: AbortSignal): AbortedError =>
  new AbortedError({ where: op, allowed: 'to run to its end', cause: reason })
