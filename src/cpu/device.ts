/**
 * The cpu device: WASM SIMD kernels over one memory, worker threads, an in-order queue. Tensors live in the WASM
 * memory (at most 4 GiB in all), so kernels read them where they are.
 */

import type { Bindings, CallOptions, Device, DeviceLimits, Plan } from '../device.ts'
import { type Dtype, dtypeInfo, type StorageOf } from '../dtypes/dtype.ts'
import { DeviceError, DisposedError, MemoryError } from '../errors.ts'
import { DeviceTensor } from '../tensor/device-tensor.ts'
import { checkWrite } from '../tensor/owned-block.ts'
import { checkShape, reachOf, rowMajor, type Shape, sizeOf } from '../tensor/shape.ts'
import { Tensor, tensor } from '../tensor/tensor.ts'
import { addressOf, Block, lossesOf } from './block.ts'
import { InlineExecutor } from './inline-executor.ts'
import { type Executor, jobBytes, placeJob } from './job.ts'
import { CpuMemory, maxMemoryBytes } from './memory.ts'
import { type Build, compileKernels } from './modules.ts'
import { type CpuOptions, checkCpuOptions } from './options.ts'
import { type CpuAddresses, type CpuPlan, lines } from './plan.ts'
import { WorkerExecutor } from './worker-executor.ts'

/**
 * Opens the cpu device.
 *
 * @param notes what `explain()` adds, a line each: why `auto` did not take another device
 * @throws OptionError | ValueError; DeviceError when the engine lacks the kernels' build, the memory or the workers
 */
export async function openCpuDevice(options: CpuOptions = {}, notes: readonly string[] = []): Promise<CpuDevice> {
  const { threads, scratchBytes, build } = checkCpuOptions(options)
  try {
    const module = await compileKernels(build)
    const memory = new WebAssembly.Memory({ initial: 256, maximum: maxMemoryBytes / 65_536, shared: true })
    const device = new CpuDevice(module, memory, { limits: { workers: threads, scratchBytes }, build, notes })
    await device.ready()
    return device
  } catch (cause) {
    throw new DeviceError({
      where: "openDevice('cpu')",
      allowed: `an engine that runs the ${build} kernels on ${threads} threads`,
      hint: String(cause),
      cause,
    })
  }
}

interface CpuSetup {
  readonly limits: DeviceLimits
  readonly build: Build
  readonly notes: readonly string[]
}

export class CpuDevice implements Device {
  readonly kind = 'cpu'
  readonly name = 'cpu'
  readonly limits: DeviceLimits
  readonly build: Build
  private readonly notes: readonly string[]
  private readonly memory: CpuMemory
  private readonly executor: Executor
  private tail: Promise<void> = Promise.resolve()
  private queued = 0
  private unreported: Error | undefined
  private disposal: Promise<void> | undefined

  constructor(module: WebAssembly.Module, memory: WebAssembly.Memory, setup: CpuSetup) {
    this.limits = setup.limits
    this.build = setup.build
    this.notes = setup.notes
    const inline = new InlineExecutor(module, memory)
    this.executor = this.limits.workers === 1 ? inline : new WorkerExecutor(module, memory, this.limits.workers)
    this.memory = new CpuMemory(memory, inline.staticBytes)
  }

  /** Resolves when the workers are there. @throws the reason why one could not start */
  async ready(): Promise<void> {
    try {
      await this.executor.ready()
    } catch (error) {
      await this.dispose()
      throw error
    }
  }

  get isDisposed(): boolean {
    return this.disposal !== undefined
  }

  /** Bytes of WASM memory held by tensors and running launches. */
  get bytesInUse(): number {
    return this.memory.bytesInUse
  }

  alloc<D extends Dtype>(dtype: D, shape: Shape, dims?: readonly string[]): DeviceTensor<D> {
    this.assertLive('alloc')
    checkShape('alloc', shape)
    const bytes = sizeOf(shape) * dtypeInfo[dtype].bytes
    const address = this.memory.alloc(bytes, `${dtype} [${shape.join(', ')}]`)
    const block = new Block(this, address, bytes, () => this.afterQueue(() => this.memory.release(address)))
    return new DeviceTensor(
      { dtype, shape: [...shape], strides: rowMajor(shape), offset: 0, dims, space: undefined },
      block,
    )
  }

  upload<D extends Dtype>(source: Tensor<D>): DeviceTensor<D> {
    const target = this.alloc(source.dtype, source.shape, source.dims)
    this.codesAt(target).set(source.codes() as never)
    return source.space === undefined ? target : target.withSpace(source.space)
  }

  write<D extends Dtype>(target: DeviceTensor<D>, source: Tensor<D>): void {
    this.assertLive('write')
    this.assertOwn('write', 'target', target)
    checkWrite(target, source)
    const snapshot = source.clone()
    void this.enqueue(async () => {
      const storage = this.codesAt(target)
      const host = new Tensor({ ...snapshot, strides: target.strides, offset: 0 }, storage)
      const width = target.shape.at(-1) ?? 1
      let from = 0
      for (const to of host.rowOffsets()) storage.set(snapshot.data.subarray(from, (from += width)) as never, to)
      lossesOf(target).restore(target)
    })
  }

  async read<D extends Dtype>(source: DeviceTensor<D>): Promise<Tensor<D>> {
    this.assertLive('read')
    this.assertOwn('read', 'source', source)
    let result: Tensor<D> | undefined
    await this.enqueue(async () => {
      const failure = lossesOf(source).failureIn(source)
      if (failure !== undefined) {
        if (this.unreported === failure) this.unreported = undefined
        throw failure
      }
      const view = new Tensor({ ...source, offset: 0 }, this.codesAt(source))
      result = tensor(source.dtype, source.shape, view.codes().slice() as StorageOf<D>, source.dims)
    })
    return source.space === undefined ? result! : result!.withSpace(source.space)
  }

  submit(plan: Plan, bindings: Bindings, options: CallOptions = {}): void {
    this.assertLive(plan.op)
    const { sharedBytes, workerBytes, stages } = plan as CpuPlan
    if (plan.scratchBytes > this.limits.scratchBytes)
      throw new MemoryError({
        where: plan.op,
        argument: 'scratchBytes',
        given: this.limits.scratchBytes,
        allowed: `at least ${plan.scratchBytes} for this problem`,
      })
    const scratchStride = lines(workerBytes)
    const scratch = this.memory.alloc(lines(sharedBytes) + scratchStride * this.executor.workers, `${plan.op} scratch`)
    const outputs = Object.values(bindings.outputs).filter(t => t !== undefined)
    const inputs = Object.values(bindings.inputs).filter(t => t !== undefined)
    const task = async (): Promise<void> => {
      let control = 0
      try {
        const lost = inputs.map(t => lossesOf(t).failureIn(t)).find(failure => failure !== undefined)
        if (lost !== undefined) throw lost
        const placed = stages(this.addresses(bindings, scratch)).filter(stage => stage.items > 0)
        control = this.memory.alloc(jobBytes(placed), `${plan.op} arguments`)
        const job = { op: plan.op, control, stages: placeJob(this.memory, control, placed), scratchStride }
        await this.executor.run({ ...job, scratch: scratch + lines(sharedBytes) }, options.signal)
        for (const t of outputs) lossesOf(t).restore(t)
      } catch (error) {
        const failure = error as Error
        for (const t of outputs) lossesOf(t).lose(t, failure)
        this.unreported ??= failure
      } finally {
        this.memory.release(scratch)
        if (control !== 0) this.memory.release(control)
      }
    }
    void this.enqueue(task)
  }

  async sync(): Promise<void> {
    this.assertLive('sync')
    await this.enqueue(async () => {})
    const failure = this.unreported
    this.unreported = undefined
    if (failure !== undefined) throw failure
  }

  async time(work: () => void): Promise<number> {
    await this.sync()
    const start = performance.now()
    work()
    await this.sync()
    return performance.now() - start
  }

  explain(): string {
    const threads = `${this.limits.workers} thread${this.limits.workers === 1 ? '' : 's'}`
    return [`cpu: WASM ${this.build === 'relaxed' ? 'relaxed SIMD' : 'SIMD'}, ${threads}`, ...this.notes].join('\n')
  }

  dispose(): Promise<void> {
    this.disposal ??= this.tail.then(() => this.executor.dispose())
    return this.disposal
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.dispose()
  }

  private assertLive(where: string): void {
    if (this.isDisposed)
      throw new DisposedError({ where, argument: 'device', given: 'cpu', allowed: 'a device not yet disposed' })
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

  private addresses({ inputs, outputs }: Bindings, shared: number): CpuAddresses {
    return { shared, input: name => addressOf(inputs[name]), output: name => addressOf(outputs[name]) }
  }

  /** Codes from the view's first element to its last, in place. */
  private codesAt<D extends Dtype>(t: DeviceTensor<D>): StorageOf<D> {
    const { storage } = dtypeInfo[t.dtype]
    const length = reachOf(t.shape, t.strides)
    return new storage(this.memory.memory.buffer, addressOf(t), length) as StorageOf<D>
  }

  private enqueue(task: () => Promise<void>): Promise<void> {
    this.queued++
    const done = this.tail.then(task)
    this.tail = done.catch(() => {}).finally(() => this.queued--)
    return done
  }

  private afterQueue(action: () => void): void {
    if (this.queued === 0) action()
    else void this.enqueue(async () => action())
  }
}
