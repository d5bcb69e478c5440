/**
 * How an operation runs: check the arguments (host only), plan for the device, launch. Host tensors are uploaded for
 * the duration of the call; outputs are allocated here unless the caller brought them.
 */

import type { CallOptions, Device, DeviceKind, DeviceLimits, Plan } from '../device.ts'
import type { Dtype } from '../dtypes/dtype.ts'
import { dtypeInfo } from '../dtypes/dtype.ts'
import { DeviceError, DisposedError, OverlapError, UnsupportedError } from '../errors.ts'
import type { GpuPlan } from '../lang/launch.ts'
import { type AnyTensor, DeviceTensor } from '../tensor/device-tensor.ts'
import type { IndexSpace } from '../tensor/spaces.ts'
import type { Tensor } from '../tensor/tensor.ts'
import {
  CallCache,
  type FoundCall,
  type KeptCall,
  keepCall,
  noMemory,
  placed,
  placedPlan,
  type StandIns,
  standsFor,
} from './plan-cache.ts'

/** An output tensor: allocated by the call, or the caller's own (`into`), already checked. */
export interface OutputSpec {
  readonly dtype: Dtype
  readonly shape: readonly number[]
  readonly dims?: readonly string[]
  readonly space?: IndexSpace
  readonly into?: DeviceTensor | undefined
  /** Read and written: an update in place, such as a cache pool. */
  readonly inPlace?: boolean
}

export type TensorTable = Readonly<Record<string, AnyTensor | undefined>>
export type DeviceTable = Readonly<Record<string, DeviceTensor | undefined>>

/** What the check of a call yields: the problem (shapes, dtypes, options; never data) and the tensors by name. */
export interface CheckedCall<P> {
  readonly problem: P
  readonly inputs: TensorTable
  readonly outputs: Readonly<Record<string, OutputSpec>>
  readonly signal?: AbortSignal | undefined
}

/** What a planner sees: the problem, the tensors' shapes and strides, the device's limits. */
export interface PlanRequest<P> {
  readonly problem: P
  readonly inputs: DeviceTable
  readonly outputs: DeviceTable
  readonly limits: DeviceLimits
}

/** Kernels of one operation by device kind; undefined or a planner that returns undefined means "not here". */
export type KernelTable<P> = { readonly [K in DeviceKind]?: (request: PlanRequest<P>) => Plan | undefined }

/** A public operation: enqueues and returns its outputs; `await out.read()` synchronises. */
export interface Op<Args, Result> {
  (device: Device, args: Args): Result
  /** Kinds of device that have a kernel for it, if not for every variant. */
  readonly devices: readonly DeviceKind[]
  /** What a call would need, without running it: kernel kind and scratch bytes. @throws as the call itself */
  plan(device: Device, args: Args): Plan
}

interface OpSpec<Args, P, Result> {
  readonly name: string
  readonly kernels: KernelTable<P>
  check(args: Args): CheckedCall<P>
  result(outputs: Readonly<Record<string, DeviceTensor>>): Result
}

export function defineOp<Args extends object, P, Result>(spec: OpSpec<Args, P, Result>): Op<Args, Result> {
  const cache = new CallCache()
  const call = (device: Device, args: Args): Result => {
    const found = cache.find(device, args, standIns => keep(device, spec, standIns))
    if (found !== undefined) return spec.result(launchKept(device, spec.name, found))
    return spec.result(launch(device, spec.name, spec.kernels, spec.check(args)))
  }
  return Object.assign(call, {
    devices: Object.keys(spec.kernels) as DeviceKind[],
    plan: (device: Device, args: Args): Plan => {
      const { problem, inputs, outputs } = spec.check(args)
      const views = mapTable(outputs, output => output.into ?? describe(device, output))
      return planFor(device, spec.name, spec.kernels, {
        problem,
        inputs: mapTable(inputs, input =>
          input === undefined ? undefined : onDevice(input) ? input : describe(device, input),
        ),
        outputs: views,
        limits: device.limits,
      })
    },
  })
}

/** Checks and plans a call on stand-ins. @returns undefined for a plan that is not of kernels on a GPU */
function keep<Args, P, Result>(
  device: Device,
  { name, kernels, check }: OpSpec<Args, P, Result>,
  standIns: StandIns,
): KeptCall | undefined {
  const { problem, inputs, outputs } = check(standIns.args as Args)
  const made = mapTable(outputs, (output, key) => output.into ?? standIns.output(key, output))
  const bound = inputs as DeviceTable
  const plan = planFor(device, name, kernels, { problem, inputs: bound, outputs: made, limits: device.limits })
  return plan.kind === 'gpu' ? keepCall(standIns, bound, outputs, plan as GpuPlan) : undefined
}

/** Enqueues a kept call on its tensors. */
function launchKept(device: Device, op: string, { call, tensors }: FoundCall): Record<string, DeviceTensor> {
  assertLive(device, op)
  const all: Record<string | number, DeviceTensor> = Object.fromEntries(tensors.entries())
  const inputs: Record<string, DeviceTensor | undefined> = {}
  for (const [name, view] of call.inputs) inputs[name] = view && placed(view, all)
  const specs: Record<string, OutputSpec> = {}
  for (const [name, { spec, into }] of call.outputs)
    specs[name] = into === undefined ? spec : { ...spec, into: placed(into, all) }
  checkPlacement(device, op, inputs, specs)
  const fresh: DeviceTensor[] = []
  try {
    const outputs = mapTable(specs, (spec, name) => (all[name] = place(device, spec, fresh)))
    device.submit(placedPlan(call, all), { inputs, outputs })
    return outputs
  } catch (error) {
    for (const t of fresh) t.dispose()
    throw error
  }
}

/** An output's tensor; one that is made here is added to `fresh`. */
function place(device: Device, output: OutputSpec, fresh: DeviceTensor[]): DeviceTensor {
  const target = output.into ?? device.alloc(output.dtype, output.shape, output.dims)
  if (output.into === undefined) fresh.push(target)
  return output.space === undefined ? target : target.withSpace(output.space)
}

function assertLive(device: Device, op: string): void {
  if (!device.isDisposed) return
  throw new DisposedError({ where: op, argument: 'device', given: device.name, allowed: 'a device not yet disposed' })
}

/** Plans and enqueues one checked call. */
function launch<P>(
  device: Device,
  op: string,
  kernels: KernelTable<P>,
  { problem, inputs, outputs, signal }: CheckedCall<P>,
): Record<string, DeviceTensor> {
  assertLive(device, op)
  checkPlacement(device, op, inputs, outputs)
  const uploads: DeviceTensor[] = []
  const fresh: DeviceTensor[] = []
  try {
    const upload = (source: Tensor): DeviceTensor => {
      const target = device.upload(source)
      uploads.push(target)
      return target
    }
    const bound = mapTable(inputs, input => (input === undefined || onDevice(input) ? input : upload(input)))
    const made = mapTable(outputs, output => place(device, output, fresh))
    const plan = planFor(device, op, kernels, { problem, inputs: bound, outputs: made, limits: device.limits })
    const options: CallOptions = { signal }
    device.submit(plan, { inputs: bound, outputs: made }, options)
    return made
  } catch (error) {
    for (const t of fresh) t.dispose()
    throw error
  } finally {
    for (const t of uploads) t.dispose()
  }
}

const onDevice = (t: AnyTensor): t is DeviceTensor => t instanceof DeviceTensor

function mapTable<A, B>(table: Readonly<Record<string, A>>, map: (value: A, name: string) => B): Record<string, B> {
  const mapped: Record<string, B> = {}
  for (const name in table) mapped[name] = map(table[name]!, name)
  return mapped
}

/** A view without memory, for planning only. */
const describe = (device: Device, t: OutputSpec | AnyTensor): DeviceTensor => {
  const strides =
    'strides' in t ? t.strides : t.shape.map((_, axis) => t.shape.slice(axis + 1).reduce((a, b) => a * b, 1))
  const spec = { dtype: t.dtype, shape: t.shape, strides, offset: 0, dims: t.dims, space: t.space }
  const memory = noMemory(device)
  standsFor.set(memory, t)
  return new DeviceTensor(spec, memory)
}

function planFor<P>(device: Device, op: string, kernels: KernelTable<P>, request: PlanRequest<P>): Plan {
  const plan = kernels[device.kind]?.(request)
  if (plan !== undefined) return plan
  throw new UnsupportedError({
    where: op,
    argument: 'device',
    given: device.name,
    allowed: `a device of kind ${Object.keys(kernels).join(' or ')}`,
  })
}

/** Every tensor on this device, no output over an input or another output. @throws DeviceError | OverlapError */
function checkPlacement(
  device: Device,
  op: string,
  inputs: TensorTable,
  outputs: Readonly<Record<string, OutputSpec>>,
): void {
  const all: [argument: string, t: DeviceTensor][] = []
  const add = (argument: string, t: DeviceTensor): void => {
    t.assertLive(op, argument)
    if (t.device !== device)
      throw new DeviceError({
        where: op,
        argument,
        given: `on ${t.device.name}`,
        allowed: `a tensor of the device ${device.name} given`,
      })
    all.push([argument, t])
  }
  for (const name in inputs) {
    const t = inputs[name]
    if (t !== undefined && onDevice(t)) add(name, t)
  }
  const reads = all.length
  for (const name in outputs) {
    const { into, inPlace } = outputs[name]!
    if (into !== undefined) add(inPlace ? name : `into.${name}`, into)
  }
  for (let i = reads; i < all.length; i++)
    for (let j = 0; j < i; j++)
      if (overlaps(all[i]![1], all[j]![1]))
        throw new OverlapError({
          where: op,
          argument: all[i]![0],
          given: `memory of ${all[j]![0]}`,
          allowed: 'an output that shares no memory with another tensor',
        })
}

function overlaps(a: DeviceTensor, b: DeviceTensor): boolean {
  if (a.allocation !== b.allocation) return false
  const startA = a.offset * dtypeInfo[a.dtype].bytes
  const startB = b.offset * dtypeInfo[b.dtype].bytes
  return startA < startB + b.reachBytes && startB < startA + a.reachBytes
}
