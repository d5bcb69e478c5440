/**
 * Graphs: work recorded once and launched again as a whole, for a few microseconds of host time. Kernels keep the
 * addresses they were recorded with, so a graph owns all memory that was allocated while it was recorded, and refuses
 * to run when a tensor it borrowed is gone.
 */

import { DeviceError, DisposedError } from '../errors.ts'
import type { DeviceTensor } from '../tensor/device-tensor.ts'
import { allocationOf, type CudaAllocation } from './allocation.ts'
import type { CudaContext } from './context.ts'
import { DeviceMemory } from './memory.ts'

const relaxed = 2

/** One operation of a graph. */
interface RecordedCall {
  readonly inputs: readonly DeviceTensor[]
  readonly outputs: readonly DeviceTensor[]
}

/** What is recorded between begin and end. */
export class Recording {
  /** Where allocations come from meanwhile: nothing of it goes to work outside the graph. */
  readonly memory: DeviceMemory
  readonly allocations: CudaAllocation[] = []
  readonly calls: RecordedCall[] = []
  readonly kernels: Set<string> = new Set()
  private readonly context: CudaContext

  constructor(context: CudaContext) {
    this.context = context
    this.memory = new DeviceMemory(context)
  }

  /** From here on the stream records. */
  begin(): void {
    this.context.call('capture', 'cuStreamBeginCapture_v2', this.context.stream, relaxed)
  }

  /** Ends the recording: what it writes holds nothing until it runs. Returns the executable graph. */
  end(): bigint {
    const { context } = this
    const error = new DeviceError({
      where: 'read',
      argument: 'tensor',
      given: 'the output of a graph that has not run',
      allowed: 'a tensor that has been written',
      hint: 'call replay()',
    })
    for (const { outputs } of this.calls) for (const t of outputs) allocationOf(t).losses.lose(t, error)
    const [graph, executable] = [new BigUint64Array(1), new BigUint64Array(1)]
    context.call('capture', 'cuStreamEndCapture', context.stream, graph)
    try {
      context.call('capture', 'cuGraphInstantiateWithFlags', executable, graph[0]!, 0n)
    } finally {
      context.driver.call('cuGraphDestroy', graph[0]!)
    }
    return executable[0]!
  }

  /** Ends a recording that has failed. */
  abandon(): void {
    const graph = new BigUint64Array(1)
    this.context.driver.call('cuStreamEndCapture', this.context.stream, graph)
    if (graph[0] !== 0n) this.context.driver.call('cuGraphDestroy', graph[0]!)
  }
}

/** What a graph needs of its device. */
export interface GraphHost {
  readonly context: CudaContext
  /** Receives the graph's memory at its end. */
  readonly memory: DeviceMemory
  /** @throws DisposedError | DeviceError; makes the context current */
  assertLive(where: string): void
  /** A graph with these kernels has been queued. */
  launched(kernels: Iterable<string>): void
  /** The graph has been disposed. */
  forget(graph: CudaGraph): void
}

/** Recorded work. Outputs made while recording hold values after a replay, and live as long as the graph. */
export class CudaGraph implements Disposable {
  private readonly host: GraphHost
  private readonly recording: Recording
  private readonly executable: bigint
  private readonly owned: ReadonlySet<CudaAllocation>
  private disposed = false

  /** @internal */
  constructor(host: GraphHost, recording: Recording, executable: bigint) {
    this.host = host
    this.recording = recording
    this.executable = executable
    this.owned = new Set(recording.allocations)
  }

  get isDisposed(): boolean {
    return this.disposed
  }

  /**
   * Queues all of the recorded work. It reads and writes the very memory it was recorded with; change inputs with
   * `device.write`.
   *
   * @throws DisposedError when the graph, the device or a tensor that the work uses has been disposed; the failure of an
   * input that was never written
   */
  replay(): void {
    const { context } = this.host
    this.host.assertLive('replay')
    if (this.disposed)
      throw new DisposedError({
        where: 'replay',
        argument: 'graph',
        given: 'disposed',
        allowed: 'a graph not yet disposed',
      })
    const written = this.checkTensors()
    context.call('replay', 'cuGraphLaunch', this.executable, context.stream)
    for (const t of written) allocationOf(t).losses.restore(t)
    this.host.launched(this.recording.kernels)
  }

  /** Frees the graph and the memory allocated for it, once the work queued so far has ended. A second call does nothing. */
  dispose(): void {
    if (this.disposed) return
    this.disposed = true
    for (const allocation of this.owned) allocation.disposed = true
    this.host.context.enter()
    this.host.context.driver.call('cuGraphExecDestroy', this.executable)
    this.host.memory.absorb(this.recording.memory)
    this.host.forget(this)
  }

  [Symbol.dispose](): void {
    this.dispose()
  }

  /** Every tensor from outside is there and holds values when its turn comes. Returns what will have been written. */
  private checkTensors(): Set<DeviceTensor> {
    const written = new Set<DeviceTensor>()
    const blocks = new Set<CudaAllocation>()
    for (const { inputs, outputs } of this.recording.calls) {
      for (const t of inputs) {
        if (!this.owned.has(allocationOf(t))) t.assertLive('replay', 'input')
        const failure = blocks.has(allocationOf(t)) ? undefined : allocationOf(t).losses.failureIn(t)
        if (failure !== undefined) throw failure
      }
      for (const t of outputs) {
        if (!this.owned.has(allocationOf(t))) t.assertLive('replay', 'output')
        written.add(t)
        blocks.add(allocationOf(t))
      }
    }
    return written
  }
}
