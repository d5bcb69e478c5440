/**
 * The simulator as a device. A launch runs at once, lane by lane; broken rules make its outputs fail with the finding.
 */

import type { Bindings, CallOptions, Device, DeviceLimits, Plan } from '../device.ts'
import { type Dtype, dtypeInfo, type StorageOf } from '../dtypes/dtype.ts'
import { AbortedError, DisposedError, FaultError, MemoryError } from '../errors.ts'
import type { Kernel } from '../lang/kernel.ts'
import type { GpuPlan, LaunchArg } from '../lang/launch.ts'
import type { Param } from '../lang/params.ts'
import type { Target } from '../lang/types.ts'
import { type Allocation, DeviceTensor, type TensorOwner } from '../tensor/device-tensor.ts'
import { checkWrite } from '../tensor/owned-block.ts'
import { checkShape, reachOf, rowMajor, type Shape, sizeOf } from '../tensor/shape.ts'
import { Tensor, tensor } from '../tensor/tensor.ts'
import { Counters } from './counters.ts'
import type { Card } from './estimate.ts'
import { type Finding, Findings } from './finding.ts'
import { type GlobalBuffer, GlobalMemory } from './memory.ts'
import { simulate } from './simulate.ts'
import type { TensorMapEntry } from './tensor-copy.ts'
import type { Timeline } from './timeline.ts'

export interface SimOptions {
  /** Chooses the order in which the warps of a block take turns. Default 1. */
  readonly seed?: number
  /** Whether data of copies lands at once, or as late as it may. Default late. */
  readonly landing?: 'early' | 'late'
  /** Upper bound of the scratch memory of one launch, in bytes. Default 64 MiB. */
  readonly scratchBytes?: number
  /** Asked before each launch: where to count it and put its timelines, instead of in the device's counters. */
  readonly observe?: (kernel: Kernel, grid: readonly [x: number, y: number]) => Observation | undefined
}

/** What a launch leaves behind for whoever watches it. */
export interface Observation {
  readonly counters: Counters
  readonly timelines: Timeline[]
  /** The card whose times the timelines have. */
  readonly timedFor: Card
}

class SimAllocation implements Allocation {
  readonly owner: TensorOwner
  readonly buffer: GlobalBuffer
  readonly address: bigint
  readonly bytes: number
  disposed = false
  failure: Error | undefined
  private readonly memory: GlobalMemory

  constructor(owner: TensorOwner, buffer: GlobalBuffer, memory: GlobalMemory) {
    this.owner = owner
    this.buffer = buffer
    this.address = buffer.base
    this.bytes = buffer.bytes.byteLength
    this.memory = memory
  }

  dispose(): void {
    if (!this.disposed) this.memory.remove(this.buffer)
    this.disposed = true
  }
}

const allocationOf = (t: DeviceTensor): SimAllocation => t.allocation as SimAllocation

export class SimDevice implements Device {
  readonly kind = 'sim'
  readonly name: string
  readonly target: Target
  readonly limits: DeviceLimits
  /** What all launches so far have done. */
  readonly counters: Counters = new Counters()
  /** Broken rules of all launches so far that the hardware is known to forgive. */
  readonly warnings: Finding[] = []
  private readonly options: SimOptions
  private findings = new Findings()
  private readonly memory: GlobalMemory = new GlobalMemory({
    report: (...finding: Parameters<Findings['report']>) => this.findings.report(...finding),
  } as Findings)
  private unreported: Error | undefined
  private disposed = false

  constructor(target: Target, options: SimOptions = {}) {
    this.target = target
    this.name = `sim:${target}`
    this.options = options
    this.limits = { workers: 4, scratchBytes: options.scratchBytes ?? 64 << 20, target }
  }

  get isDisposed(): boolean {
    return this.disposed
  }

  alloc<D extends Dtype>(dtype: D, shape: Shape, dims?: readonly string[]): DeviceTensor<D> {
    this.assertLive('alloc')
    checkShape('alloc', shape)
    const buffer = this.memory.add(
      `${dtype} [${shape.join(', ')}]`,
      new Uint8Array(sizeOf(shape) * dtypeInfo[dtype].bytes),
    )
    const spec = { dtype, shape: [...shape], strides: rowMajor(shape), offset: 0, dims, space: undefined }
    return new DeviceTensor(spec, new SimAllocation(this, buffer, this.memory))
  }

  upload<D extends Dtype>(source: Tensor<D>): DeviceTensor<D> {
    const target = this.alloc(source.dtype, source.shape, source.dims)
    this.write(target, source)
    return source.space === undefined ? target : target.withSpace(source.space)
  }

  write<D extends Dtype>(target: DeviceTensor<D>, source: Tensor<D>): void {
    this.assertLive('write')
    target.assertLive('write', 'target')
    checkWrite(target, source)
    allocationOf(target).failure = undefined
    if (source.size === 0) return
    const { bytes } = dtypeInfo[target.dtype]
    const storage = this.codesAt(target)
    const rows = new Tensor({ ...specOf(target), offset: 0 }, storage)
    const codes = source.codes()
    const width = target.shape.at(-1) ?? 1
    let from = 0
    for (const to of rows.rowOffsets()) {
      storage.set(codes.subarray(from, from + width) as never, to)
      allocationOf(target).buffer.initialize((target.offset + to) * bytes, width * bytes)
      from += width
    }
  }

  async read<D extends Dtype>(source: DeviceTensor<D>): Promise<Tensor<D>> {
    source.assertLive('read')
    const { failure } = allocationOf(source)
    if (failure !== undefined) {
      if (this.unreported === failure) this.unreported = undefined
      throw failure
    }
    const view = new Tensor({ ...specOf(source), offset: 0 }, this.codesAt(source)).clone()
    const result = tensor(source.dtype, source.shape, view.data, source.dims)
    return source.space === undefined ? result : result.withSpace(source.space)
  }

  submit(plan: Plan, { inputs, outputs }: Bindings, { signal }: CallOptions = {}): void {
    this.assertLive(plan.op)
    if (plan.scratchBytes > this.limits.scratchBytes)
      throw new MemoryError({
        where: plan.op,
        argument: 'scratchBytes',
        given: this.limits.scratchBytes,
        allowed: `at least ${plan.scratchBytes} for this problem`,
      })
    const inherited = Object.values(inputs).find(t => t !== undefined && allocationOf(t).failure !== undefined)
    const failure = inherited === undefined ? this.run(plan as GpuPlan, signal) : allocationOf(inherited).failure
    for (const t of Object.values(outputs)) if (t !== undefined) allocationOf(t).failure = failure
    this.unreported ??= failure
  }

  async sync(): Promise<void> {
    const failure = this.unreported
    this.unreported = undefined
    if (failure !== undefined) throw failure
  }

  async time(work: () => void): Promise<number> {
    const start = performance.now()
    work()
    await this.sync()
    return performance.now() - start
  }

  explain(): string {
    return `${this.name}: lane-accurate simulation of ${this.target}`
  }

  async dispose(): Promise<void> {
    this.disposed = true
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.dispose()
  }

  private run({ op, launches, scratch }: GpuPlan, signal: AbortSignal | undefined): Error | undefined {
    this.findings = new Findings()
    const regions = new Map(
      Object.entries(scratch).map(([name, bytes]) => [name, this.memory.add(`${op} ${name}`, new Uint8Array(bytes))]),
    )
    const addressOf = (t: DeviceTensor): bigint => allocationOf(t).address + BigInt(t.offset * dtypeInfo[t.dtype].bytes)
    const maps = new Map<bigint, TensorMapEntry>()
    const valueOf = (param: Param, arg: LaunchArg): number | bigint => {
      if (typeof arg === 'number') return arg
      if (arg === undefined) return 0n
      if (!(arg instanceof DeviceTensor)) return regions.get(arg.scratch)!.base + BigInt(arg.byteOffset ?? 0)
      if (param.kind !== 'tensorMap') return addressOf(arg)
      const handle = BigInt(maps.size + 1)
      const { bytes } = dtypeInfo[arg.dtype]
      const byteStrides = arg.strides.toReversed().map(stride => stride * bytes)
      maps.set(handle, { param, address: addressOf(arg), extents: arg.shape.toReversed(), byteStrides })
      return handle
    }
    try {
      for (const { kernel, grid, args } of launches) {
        if (signal?.aborted) return new AbortedError({ where: op, allowed: 'to run to its end', cause: signal.reason })
        const values = Object.fromEntries(
          Object.entries(kernel.params).map(([name, param]) => [name, valueOf(param, args[name])]),
        )
        simulate(kernel, {
          counters: this.counters,
          ...this.options.observe?.(kernel, grid),
          grid,
          args: values,
          maps,
          global: this.memory,
          findings: this.findings,
          seed: this.options.seed ?? 1,
          landing: this.options.landing ?? 'late',
        })
      }
    } finally {
      for (const region of regions.values()) this.memory.remove(region)
      this.warnings.push(...this.findings.warnings)
    }
    const [finding] = this.findings.list
    if (finding === undefined) return undefined
    const against = finding.against === undefined ? '' : `, against ${finding.against}`
    return new FaultError({
      where: op,
      allowed: `kernels without findings: ${finding.rule}: ${finding.message}`,
      hint: `at ${finding.at}${against}`,
    })
  }

  private codesAt<D extends Dtype>(t: DeviceTensor<D>): StorageOf<D> {
    const { storage, bytes } = dtypeInfo[t.dtype]
    const { buffer } = allocationOf(t)
    return new storage(
      buffer.bytes.buffer as ArrayBuffer,
      t.offset * bytes,
      reachOf(t.shape, t.strides),
    ) as StorageOf<D>
  }

  private assertLive(where: string): void {
    if (this.disposed)
      throw new DisposedError({ where, argument: 'device', given: this.name, allowed: 'a device not yet disposed' })
  }
}

const specOf = <D extends Dtype>({ dtype, shape, strides, offset, dims, space }: DeviceTensor<D>) => ({
  dtype,
  shape,
  strides,
  offset,
  dims,
  space,
})
