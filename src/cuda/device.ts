/**
 * The cuda device: one card, one in-order stream, the driver API and nothing else. Kernels arrive as traces, are
 * printed as PTX and compiled by the driver.
 */

import type { Bindings, CallOptions, Device, DeviceLimits, Plan } from '../device.ts'
import { type Dtype, dtypeInfo, type StorageOf } from '../dtypes/dtype.ts'
import { AbortedError, DeviceError, DisposedError, MemoryError, ValueError } from '../errors.ts'
import type { GpuPlan } from '../lang/launch.ts'
import { DeviceTensor } from '../tensor/device-tensor.ts'
import { checkWrite } from '../tensor/owned-block.ts'
import { checkShape, reachOf, rowMajor, type Shape, sizeOf } from '../tensor/shape.ts'
import { Tensor, tensor } from '../tensor/tensor.ts'
import { addressOf, allocationOf, CudaAllocation } from './allocation.ts'
import { CudaContext, cudaVersion } from './context.ts'
import { openDriver } from './driver.ts'
import { Events } from './events.ts'
import { CudaGraph, type GraphHost, Recording } from './graph.ts'
import { launchKernel } from './launch.ts'
import { DeviceMemory } from './memory.ts'
import { type KernelReport, Modules } from './modules.ts'
import { type CudaOptions, type CudaSetup, checkCudaOptions } from './options.ts'
import { Staging } from './staging.ts'

/**
 * Opens a card.
 *
 * @throws DeviceError when koffi, the driver or the card is missing; OptionError | ValueError
 */
export async function openCudaDevice(ordinal = 0, options: CudaSetup = {}): Promise<CudaDevice> {
  if (!Number.isInteger(ordinal) || ordinal < 0)
    throw new ValueError({
      where: "openDevice('cuda')",
      argument: 'ordinal',
      given: ordinal,
      allowed: 'an integer >= 0',
    })
  const checked = checkCudaOptions(options)
  return new CudaDevice(new CudaContext(options.driver ?? openDriver(), ordinal), checked)
}

export class CudaDevice implements Device {
  readonly kind = 'cuda'
  readonly name: string
  readonly limits: DeviceLimits
  private readonly context: CudaContext
  private readonly memory: DeviceMemory
  private readonly staging: Staging
  private readonly events: Events
  private readonly modules: Modules
  private readonly graphHost: GraphHost
  private readonly graphs = new Set<CudaGraph>()
  private readonly debug: boolean
  private readonly reading = new Set<Promise<unknown>>()
  private recording: Recording | undefined
  private unreported: Error | undefined
  private disposal: Promise<void> | undefined

  /** @internal */
  constructor(context: CudaContext, { scratchBytes, debug, overlap }: Required<CudaOptions>) {
    const { ordinal, multiprocessors, target } = context.card
    this.context = context
    this.debug = debug
    this.name = `cuda:${ordinal}`
    this.limits = { workers: multiprocessors, scratchBytes, target }
    this.memory = new DeviceMemory(context)
    this.staging = new Staging(context)
    this.events = new Events(context)
    this.modules = new Modules(context, overlap)
    this.graphHost = {
      context,
      memory: this.memory,
      assertLive: where => this.begin(where),
      launched: kernels => this.launched(kernels),
      forget: graph => void this.graphs.delete(graph),
    }
  }

  get isDisposed(): boolean {
    return this.disposal !== undefined
  }

  /** Bytes of device memory held by tensors, running launches and graphs. */
  get bytesInUse(): number {
    return this.memory.bytesInUse
  }

  /** Whether operations are being recorded: what is allocated belongs to the graph. */
  get isRecording(): boolean {
    return this.recording !== undefined
  }

  /** The kernels loaded so far: their registers and memory, and what compiling them took. */
  get kernels(): readonly KernelReport[] {
    return this.modules.reports
  }

  alloc<D extends Dtype>(dtype: D, shape: Shape, dims?: readonly string[]): DeviceTensor<D> {
    return this.place(dtype, shape, dims, false)
  }

  /** In a recording the values become a constant of the graph. */
  upload<D extends Dtype>(source: Tensor<D>): DeviceTensor<D> {
    const target = this.place(source.dtype, source.shape, source.dims, this.recording !== undefined)
    this.copyIn(target, source.codes(), 0)
    return source.space === undefined ? target : target.withSpace(source.space)
  }

  write<D extends Dtype>(target: DeviceTensor<D>, source: Tensor<D>): void {
    this.begin('write')
    this.assertOwn('write', 'target', target)
    this.refuseRecording('write')
    checkWrite(target, source)
    this.copyRows(target, source.codes())
    allocationOf(target).losses.restore(target)
  }

  async read<D extends Dtype>(source: DeviceTensor<D>): Promise<Tensor<D>> {
    this.begin('read')
    this.assertOwn('read', 'source', source)
    this.refuseRecording('read')
    const failure = allocationOf(source).losses.failureIn(source)
    if (failure !== undefined) {
      if (this.unreported === failure) this.unreported = undefined
      throw failure
    }
    const reading = this.copyOut(source)
    this.reading.add(reading)
    try {
      const result = await reading
      return source.space === undefined ? result : result.withSpace(source.space)
    } finally {
      this.reading.delete(reading)
    }
  }

  submit(plan: Plan, { inputs, outputs }: Bindings, { signal }: CallOptions = {}): void {
    const { op, scratchBytes } = plan
    this.begin(op)
    if (scratchBytes > this.limits.scratchBytes)
      throw new MemoryError({
        where: op,
        argument: 'scratchBytes',
        given: this.limits.scratchBytes,
        allowed: `at least ${scratchBytes} for this problem`,
      })
    const read = Object.values(inputs).filter(t => t !== undefined)
    const written = Object.values(outputs).filter(t => t !== undefined)
    const failure = aborted(op, signal) ?? (this.recording === undefined ? lost(read) : undefined)
    if (failure !== undefined) {
      if (this.recording !== undefined) throw failure
      for (const t of written) allocationOf(t).losses.lose(t, failure)
      this.unreported ??= failure
      return
    }
    try {
      this.run(plan as GpuPlan)
      this.recording?.calls.push({ inputs: read, outputs: written })
      for (const t of written) allocationOf(t).losses.restore(t)
    } catch (error) {
      for (const t of written) allocationOf(t).losses.lose(t, error as Error)
      throw error
    }
  }

  async sync(): Promise<void> {
    this.begin('sync')
    this.refuseRecording('sync')
    await this.drain('sync')
    const failure = this.unreported
    this.unreported = undefined
    if (failure !== undefined) throw failure
  }

  /** Milliseconds between two events around the work. */
  async time(work: () => void): Promise<number> {
    await this.sync()
    this.context.enter()
    using span = this.events.span()
    work()
    span.end()
    await this.sync()
    return span.milliseconds()
  }

  /**
   * Records the operations that `work` calls, without running them. Host tensors among their arguments become constants.
   * Tensors that are allocated meanwhile belong to the graph; `write`, `read` and `sync` are refused meanwhile.
   *
   * @throws the error of an operation that cannot be recorded; ValueError when `work` is asynchronous
   * @example const graph = device.capture(() => { scores = indexScores(device, args).scores }); graph.replay()
   */
  capture(work: () => void): CudaGraph {
    this.begin('capture')
    this.refuseRecording('capture')
    const recording = new Recording(this.context)
    recording.begin()
    this.recording = recording
    let executable: bigint
    try {
      const returned: unknown = work()
      if (returned instanceof Promise)
        throw new ValueError({ where: 'capture', argument: 'work', given: returned, allowed: 'a synchronous function' })
      executable = recording.end()
    } catch (error) {
      recording.abandon()
      for (const allocation of recording.allocations) allocation.disposed = true
      this.memory.absorb(recording.memory)
      throw error
    } finally {
      this.recording = undefined
    }
    const graph = new CudaGraph(this.graphHost, recording, executable)
    this.graphs.add(graph)
    return graph
  }

  explain(): string {
    const { name, capability, multiprocessors, memoryBytes, driverVersion } = this.context.card
    const card = `${name}, compute capability ${capability.join('.')}, ${multiprocessors} multiprocessors`
    return `${this.name}: ${card}, ${Math.round(memoryBytes / 2 ** 30)} GiB, driver for CUDA ${cudaVersion(driverVersion)}`
  }

  /** Rejects with a fault that nobody has seen; everything is freed even so. */
  dispose(): Promise<void> {
    this.disposal ??= this.close()
    return this.disposal
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.dispose()
  }

  private async close(): Promise<void> {
    try {
      if (!this.context.isBroken) await this.drain('dispose')
    } finally {
      await Promise.allSettled(this.reading)
      this.context.enter()
      for (const graph of this.graphs) graph.dispose()
      this.modules.dispose()
      this.events.dispose()
      this.staging.dispose()
      this.memory.dispose()
      this.context.dispose()
    }
  }

  private place<D extends Dtype>(
    dtype: D,
    shape: Shape,
    dims: readonly string[] | undefined,
    constant: boolean,
  ): DeviceTensor<D> {
    this.begin('alloc')
    checkShape('alloc', shape)
    const bytes = sizeOf(shape) * dtypeInfo[dtype].bytes
    const memory = this.recording?.memory ?? this.memory
    const purpose = `${dtype} [${shape.join(', ')}]`
    // A constant is copied while the graph is recorded: work recorded before or after it must not have its block.
    const address = constant ? memory.takeUnused(purpose, bytes) : memory.take(purpose, bytes)
    const allocation = new CudaAllocation(this, address, bytes, () => !constant && memory.give(address))
    this.recording?.allocations.push(allocation)
    const spec = { dtype, shape: [...shape], strides: rowMajor(shape), offset: 0, dims, space: undefined }
    return new DeviceTensor(spec, allocation)
  }

  private run({ op, scratch, launches }: GpuPlan): void {
    const memory = this.recording?.memory ?? this.memory
    const regions = new Map<string, bigint>()
    try {
      for (const [name, bytes] of Object.entries(scratch)) regions.set(name, memory.take(`${op} ${name}`, bytes))
      for (const launch of launches) {
        launchKernel(this.context, this.modules, launch, regions)
        this.launched([launch.kernel.name])
      }
    } finally {
      for (const address of regions.values()) memory.give(address)
    }
  }

  /** Kernels have been queued, or recorded. */
  private launched(kernels: Iterable<string>): void {
    for (const kernel of kernels)
      if (this.recording === undefined) this.context.launched(kernel)
      else this.recording.kernels.add(kernel)
    if (this.debug && this.recording === undefined) {
      const launch = this.context.lastLaunch
      this.context.call('debug', 'cuStreamSynchronize', this.context.stream)
      this.context.settled(launch)
    }
  }

  /** Copies codes to the view's element `at` on; the values are taken now. */
  private copyIn<D extends Dtype>(target: DeviceTensor<D>, codes: StorageOf<D>, at: number): void {
    if (codes.length === 0) return
    const to = addressOf(target) + BigInt(at * dtypeInfo[target.dtype].bytes)
    const bytes = BigInt(codes.byteLength)
    if (this.recording === undefined)
      this.context.call('upload', 'cuMemcpyHtoDAsync_v2', to, codes, bytes, this.context.stream)
    else this.context.call('upload', 'cuMemcpyHtoD_v2', to, codes, bytes)
  }

  /** The same for a strided view: a copy for each stretch of rows without gaps. */
  private copyRows<D extends Dtype>(target: DeviceTensor<D>, codes: StorageOf<D>): void {
    const width = target.shape.at(-1) ?? 1
    const copy = (from: number, end: number, at: number): void =>
      this.copyIn(target, codes.subarray(from, end) as StorageOf<D>, at)
    let [from, end, start] = [0, 0, 0]
    for (const to of new Tensor({ ...target, offset: 0 }, codes).rowOffsets()) {
      if (to !== start + end - from) {
        copy(from, end, start)
        from = end
        start = to
      }
      end += width
    }
    copy(from, end, start)
  }

  /** Queues the copy of a view to the host, and waits for it. */
  private async copyOut<D extends Dtype>(source: DeviceTensor<D>): Promise<Tensor<D>> {
    const { storage, bytes } = dtypeInfo[source.dtype]
    const count = reachOf(source.shape, source.strides)
    const length = count * bytes
    const block = this.staging.take('read', length)
    try {
      if (length > 0)
        this.context.call(
          'read',
          'cuMemcpyDtoHAsync_v2',
          block.address,
          addressOf(source),
          BigInt(length),
          this.context.stream,
        )
      await this.drain('read')
      const reach = new storage(block.bytes.buffer as ArrayBuffer, block.bytes.byteOffset, count) as StorageOf<D>
      const { data } = new Tensor({ ...source, offset: 0 }, reach).clone()
      return tensor(source.dtype, source.shape, data, source.dims)
    } finally {
      this.staging.give(block)
    }
  }

  /** Waits for the work queued before the call, without blocking the event loop. */
  private async drain(where: string): Promise<void> {
    const launch = this.context.lastLaunch
    await this.events.reached(where)
    this.context.settled(launch)
  }

  /** Starts a synchronous piece of work. @throws DisposedError | DeviceError */
  private begin(where: string): void {
    if (this.isDisposed)
      throw new DisposedError({ where, argument: 'device', given: this.name, allowed: 'a device not yet disposed' })
    this.context.assertUsable(where)
    this.context.enter()
  }

  private refuseRecording(where: string): void {
    if (this.recording === undefined) return
    throw new DeviceError({
      where,
      argument: 'device',
      given: `${this.name} while it records a graph`,
      allowed: 'operations only',
    })
  }

  /** @throws DisposedError | DeviceError */
  private assertOwn(where: string, argument: string, t: DeviceTensor): void {
    t.assertLive(where, argument)
    if (t.device !== this)
      throw new DeviceError({
        where,
        argument,
        given: `on another ${t.device.name}`,
        allowed: 'a tensor of this device',
      })
  }
}

const aborted = (op: string, signal: AbortSignal | undefined): Error | undefined =>
  signal?.aborted ? new AbortedError({ where: op, allowed: 'to run to its end', cause: signal.reason }) : undefined

const lost = (read: readonly DeviceTensor[]): Error | undefined =>
  read.map(t => allocationOf(t).losses.failureIn(t)).find(failure => failure !== undefined)
