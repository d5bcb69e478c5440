/**
 * Checked and planned calls, kept to be run again on other tensors. What is checked and planned are stand-ins, each in an
 * allocation of its own, so that every view made of them tells which tensor of the call it is of.
 */

import type { Device } from '../device.ts'
import { type Dtype, dtypeInfo } from '../dtypes/dtype.ts'
import type { GpuPlan, KernelLaunch, LaunchArg } from '../lang/launch.ts'
import { type Allocation, type AnyTensor, DeviceTensor } from '../tensor/device-tensor.ts'
import { type CallSignature, offsetWithin, signatureOf } from './call-signature.ts'
import type { DeviceTable, OutputSpec } from './op.ts'

/** Tensor `source` of the call: by its number among the arguments, or the name of an output made by the call. */
type Source = number | string

/** A view of a tensor of the call; its offset counts from that tensor's start. */
interface BoundView {
  readonly source: Source
  readonly view: DeviceTensor
}

type Named<T> = readonly (readonly [name: string, value: T])[]

interface KeptLaunch {
  readonly launch: KernelLaunch
  readonly views: Named<BoundView>
}

/** A call without its tensors. */
export interface KeptCall {
  readonly inputs: Named<BoundView | undefined>
  readonly outputs: Named<{ readonly spec: OutputSpec; readonly into: BoundView | undefined }>
  readonly plan: GpuPlan
  readonly launches: readonly KeptLaunch[]
}

/** Memory that planning needs none of. */
export const noMemory = (device: Device): Allocation => ({
  owner: device,
  address: 0,
  bytes: 0,
  disposed: false,
  failure: undefined,
  dispose: () => {},
})

/** What the memory of a plan's tensors stands for: to run a plan that was made for its own sake. */
export const standsFor: WeakMap<Allocation, OutputSpec | AnyTensor> = new WeakMap()

/** The arguments of a call with a stand-in for each of its device tensors, and the tensors' numbers. */
export class StandIns {
  readonly args: object
  /** `start`: byte at which the stand-in begins in its allocation. */
  private readonly sources = new Map<Allocation, { readonly source: Source; readonly start: number }>()
  private readonly device: Device

  constructor(device: Device, args: object) {
    this.device = device
    this.args = this.replace(args) as object
  }

  /** A stand-in for an output that the call makes. */
  output(name: string, { dtype, shape, dims, space }: OutputSpec): DeviceTensor {
    const strides = shape.map((_, axis) => shape.slice(axis + 1).reduce((a, b) => a * b, 1))
    const memory = noMemory(this.device)
    this.sources.set(memory, { source: name, start: 0 })
    return new DeviceTensor({ dtype, shape, strides, offset: 0, dims, space }, memory)
  }

  /** The tensor of the call that a view is of. @returns undefined for one that is not of the call */
  bound(view: DeviceTensor): BoundView | undefined {
    const known = this.sources.get(view.allocation)
    return known && { source: known.source, view: moved(view, view.allocation, -known.start) }
  }

  /** In the order of {@link signatureOf}. */
  private replace(value: unknown): unknown {
    if (typeof value !== 'object' || value === null) return value
    if (value instanceof DeviceTensor) {
      const { dtype, shape, strides, dims, space } = value
      const memory = noMemory(this.device)
      const offset = offsetWithin(value)
      this.sources.set(memory, { source: this.sources.size, start: offset * dtypeInfo[dtype as Dtype].bytes })
      return new DeviceTensor({ dtype, shape, strides, offset, dims, space }, memory)
    }
    if (Array.isArray(value)) return value.map(item => this.replace(item))
    const copy: Record<string, unknown> = {}
    for (const key in value) copy[key] = this.replace((value as Record<string, unknown>)[key])
    return copy
  }
}

/** Keeps a call that was checked and planned on stand-ins. @returns undefined when it has other tensors too */
export function keepCall(
  standIns: StandIns,
  inputs: DeviceTable,
  outputs: Readonly<Record<string, OutputSpec>>,
  plan: GpuPlan,
): KeptCall | undefined {
  let complete = true
  const bound = (view: DeviceTensor | undefined): BoundView | undefined => {
    const found = view && standIns.bound(view)
    if (view !== undefined && found === undefined) complete = false
    return found
  }
  const kept: KeptCall = {
    inputs: Object.entries(inputs).map(([name, t]) => [name, bound(t)]),
    outputs: Object.entries(outputs).map(([name, spec]) => [name, { spec, into: bound(spec.into) }]),
    plan,
    launches: plan.launches.map(launch => ({
      launch,
      views: Object.entries(launch.args).flatMap(([name, arg]) => {
        const view = arg instanceof DeviceTensor ? bound(arg) : undefined
        return view === undefined ? [] : [[name, view] as const]
      }),
    })),
  }
  return complete ? kept : undefined
}

/** A view on the tensors of a call. */
export const placed = ({ source, view }: BoundView, tensors: Readonly<Record<Source, DeviceTensor>>): DeviceTensor => {
  const { allocation, dtype, offset } = tensors[source]!
  return moved(view, allocation, offset * dtypeInfo[dtype].bytes)
}

/** The plan on the tensors of a call. */
export function placedPlan({ plan, launches }: KeptCall, tensors: Readonly<Record<Source, DeviceTensor>>): GpuPlan {
  return {
    ...plan,
    launches: launches.map(({ launch, views }) => {
      const args: Record<string, LaunchArg> = { ...launch.args }
      for (const [name, view] of views) args[name] = placed(view, tensors)
      return { kernel: launch.kernel, grid: launch.grid, args }
    }),
  }
}

/** A view some bytes further on; a view may have another dtype than the tensor it is of. */
function moved(view: DeviceTensor, allocation: Allocation, bytes: number): DeviceTensor {
  const { dtype, shape, strides, dims, space } = view
  const offset = view.offset + bytes / dtypeInfo[dtype].bytes
  return new DeviceTensor({ dtype, shape, strides, offset, dims, space }, allocation)
}

/** Calls kept for an operation on a device; when there are too many, all are dropped. */
const mostKept = 256

/** The calls of one operation by device and signature. A call is kept when it comes for the second time. */
export class CallCache {
  private readonly devices = new WeakMap<Device, Map<string, KeptCall | undefined>>()

  /** @param keep makes what is kept, on stand-ins */
  find(device: Device, args: object, keep: (standIns: StandIns) => KeptCall | undefined): FoundCall | undefined {
    const signature = signatureOf(args)
    if (signature === undefined) return undefined
    const { text, tensors } = signature
    let calls = this.devices.get(device)
    if (calls === undefined) this.devices.set(device, (calls = new Map()))
    let call = calls.get(text)
    if (call === undefined) {
      if (calls.size >= mostKept) calls.clear()
      if (calls.has(text)) call = keep(new StandIns(device, args))
      calls.set(text, call)
    }
    return call && { call, tensors }
  }
}

export interface FoundCall {
  readonly call: KeptCall
  readonly tensors: CallSignature['tensors']
}
