/**
 * Runs jobs on worker threads over the shared WASM memory. A worker that dies fails the job it was in; another takes
 * its seat before the next job.
 */

import { DisposedError, FaultError } from '../errors.ts'
import { abortedError, controlOf, type Executor, type Job, stopWorkers } from './job.ts'

/** The part of Node's and the browser's Worker that is used here. */
interface Port {
  post(message: unknown): void
  terminate(): Promise<unknown>
  /** Whether the worker keeps the process alive. */
  hold(on: boolean): void
}

interface PortEvents {
  message(data: WorkerReply): void
  died(reason: unknown): void
}

interface WorkerReply {
  readonly ready?: true
  readonly job?: number
  readonly error?: string
}

function spawnWorker(events: PortEvents): Port {
  const threads = globalThis.process?.getBuiltinModule?.('node:worker_threads')
  if (threads !== undefined) {
    // The process's own flags, such as --input-type, may not be legal in a worker.
    const worker = new threads.Worker(new URL('./worker.js', import.meta.url), { execArgv: [] })
    worker.on('message', events.message)
    worker.on('error', events.died)
    worker.on('exit', code => events.died(new Error(`worker exited with code ${code}`)))
    worker.unref()
    return {
      post: message => worker.postMessage(message),
      terminate: () => worker.terminate(),
      hold: on => (on ? worker.ref() : worker.unref()),
    }
  }
  const worker = new Worker(new URL('./worker.js', import.meta.url), { type: 'module' })
  worker.onmessage = event => events.message(event.data)
  worker.onerror = event => events.died(event.error ?? new Error(event.message ?? 'the worker script did not load'))
  return { post: message => worker.postMessage(message), terminate: async () => worker.terminate(), hold: () => {} }
}

/** One worker. */
interface Seat {
  port: Port
  /** Resolves when the worker is ready or dead. */
  settled: Promise<void>
  death: { readonly reason: unknown } | undefined
}

/** The job that the workers are in. */
interface Running {
  readonly id: number
  readonly control: Int32Array
  readonly inside: Set<Seat>
  error: unknown
  readonly finish: () => void
}

export class WorkerExecutor implements Executor {
  readonly workers: number
  private readonly module: WebAssembly.Module
  private readonly memory: WebAssembly.Memory
  private seats: Seat[]
  private running: Running | undefined
  private jobs = 0
  private disposed = false

  constructor(module: WebAssembly.Module, memory: WebAssembly.Memory, workers: number) {
    this.module = module
    this.memory = memory
    this.workers = workers
    this.seats = Array.from({ length: workers }, () => this.fillSeat())
  }

  async ready(): Promise<void> {
    this.seats = this.seats.map(seat => (seat.death === undefined ? seat : this.fillSeat()))
    this.hold(true)
    await Promise.all(this.seats.map(seat => seat.settled))
    this.hold(false)
    const lost = this.seats.find(seat => seat.death !== undefined)
    if (lost !== undefined) throw lost.death!.reason
  }

  async run(job: Job, signal: AbortSignal | undefined): Promise<void> {
    if (this.disposed) throw new DisposedError({ where: job.op, allowed: 'a device not yet disposed' })
    await this.ready().catch(cause => fault(job, cause))
    if (signal?.aborted) throw abortedError(job, signal)
    const control = controlOf(this.memory, job)
    const stop = (): void => stopWorkers(control)
    signal?.addEventListener('abort', stop, { once: true })
    this.hold(true)
    const failure = await this.runOnAll(job, control)
    this.hold(false)
    signal?.removeEventListener('abort', stop)
    if (failure !== undefined) fault(job, failure)
    if (signal?.aborted) throw abortedError(job, signal)
  }

  async dispose(): Promise<void> {
    this.disposed = true
    await Promise.all(this.seats.map(seat => seat.port.terminate()))
  }

  /** Resolves when every worker has left the job, with the first failure. */
  private async runOnAll({ control, stages, scratch, scratchStride }: Job, words: Int32Array): Promise<unknown> {
    const { seats, workers } = this
    const id = ++this.jobs
    let finish: () => void
    const everyoneLeft = new Promise<void>(resolve => {
      finish = resolve
    })
    const running: Running = { id, control: words, inside: new Set(seats), error: undefined, finish: () => finish() }
    this.running = running
    seats.forEach(({ port }, w) =>
      port.post({ job: id, control, stages, workers, scratch: scratch + w * scratchStride }),
    )
    await everyoneLeft
    this.running = undefined
    return running.error
  }

  private hold(on: boolean): void {
    for (const { port } of this.seats) port.hold(on)
  }

  private fillSeat(): Seat {
    let settle: () => void
    const settled = new Promise<void>(resolve => {
      settle = resolve
    })
    const port = spawnWorker({
      message: reply => (reply.ready ? settle() : this.left(seat, reply.job, reply.error)),
      died: reason => {
        settle()
        if (seat.death !== undefined || this.disposed) return
        seat.death = { reason }
        if (this.running === undefined) return
        stopWorkers(this.running.control)
        this.left(seat, this.running.id, reason)
      },
    })
    const seat: Seat = { port, settled, death: undefined }
    port.post({ module: this.module, memory: this.memory })
    return seat
  }

  /** A worker has left job `id`. */
  private left(seat: Seat, id: number | undefined, error: unknown): void {
    const { running } = this
    if (running === undefined || running.id !== id || !running.inside.delete(seat)) return
    running.error ??= error
    if (running.inside.size === 0) running.finish()
  }
}

function fault({ op }: Job, cause: unknown): never {
  throw new FaultError({ where: op, allowed: 'every worker to finish its stages', hint: String(cause), cause })
}
