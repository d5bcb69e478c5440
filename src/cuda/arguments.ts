/** The arguments of a kernel, laid out once and filled for each launch. */

import { ShapeError } from '../errors.ts'
import type { Kernel } from '../lang/kernel.ts'
import { KernelError } from '../lang/kernel-error.ts'
import type { LaunchArg, ScratchRef } from '../lang/launch.ts'
import type { Param, ScalarParam } from '../lang/params.ts'
import { DeviceTensor } from '../tensor/device-tensor.ts'
import { addressOf } from './allocation.ts'
import type { CudaContext } from './context.ts'
import { TensorMaps, tensorMapBytes } from './tensor-map.ts'

/** Device addresses of scratch regions by name. */
export type ScratchAddresses = ReadonlyMap<string, bigint>

/** Tensor maps are read at multiples of this. */
const alignment = 64

interface Slot {
  readonly name: string
  readonly param: Param
  /** The maps of a parameter that is one. */
  readonly maps: TensorMaps | undefined
  /** First byte in the block. */
  readonly at: number
}

export class ArgumentBlock {
  /** Address of each argument, as the driver takes them. */
  readonly pointers: BigUint64Array
  private readonly kernel: string
  private readonly bytes: Uint8Array
  private readonly view: DataView
  private readonly slots: readonly Slot[]

  constructor(context: CudaContext, { name, params }: Kernel) {
    this.kernel = name
    const entries = Object.entries(params)
    this.bytes = new Uint8Array(alignment + entries.length * Math.max(alignment, tensorMapBytes))
    this.view = new DataView(this.bytes.buffer)
    const start = context.driver.addressOf(this.bytes)
    let at = Number(-start & BigInt(alignment - 1))
    this.slots = entries.map(([param, spec]) => {
      const maps = spec.kind === 'tensorMap' ? new TensorMaps(context, name, spec) : undefined
      const slot = { name: param, param: spec, maps, at }
      at += spec.kind === 'tensorMap' ? tensorMapBytes : alignment
      return slot
    })
    this.pointers = BigUint64Array.from(this.slots, slot => start + BigInt(slot.at))
  }

  /** Writes the arguments of one launch. @throws KernelError | ShapeError */
  fill(args: Readonly<Record<string, LaunchArg>>, scratch: ScratchAddresses): void {
    for (const { name, param, maps, at } of this.slots) {
      const arg = args[name]
      if (param.kind === 'buffer') this.view.setBigUint64(at, this.bufferAddress(name, arg, scratch), true)
      else if (param.kind === 'scalar') this.setScalar(name, param, arg, at)
      else if (arg instanceof DeviceTensor) maps!.write(arg, this.bytes.subarray(at, at + tensorMapBytes))
      else throw this.refusal(name, 'a tensor to map')
    }
  }

  private bufferAddress(name: string, arg: LaunchArg, scratch: ScratchAddresses): bigint {
    if (arg === undefined) return 0n
    if (arg instanceof DeviceTensor) return addressOf(arg)
    const region = typeof arg === 'number' ? undefined : scratch.get(arg.scratch)
    if (region === undefined) throw this.refusal(name, 'a tensor, or scratch of the plan')
    return region + BigInt((arg as ScratchRef).byteOffset ?? 0)
  }

  private setScalar(name: string, { type }: ScalarParam, arg: LaunchArg, at: number): void {
    if (typeof arg !== 'number') throw this.refusal(name, 'a number')
    if (type === 'f32') this.view.setFloat32(at, arg, true)
    else if (type === 'u32' ? arg >>> 0 === arg : (arg | 0) === arg) this.view.setInt32(at, arg, true)
    else throw new ShapeError({ where: this.kernel, argument: name, given: arg, allowed: `a ${type}` })
  }

  private refusal(name: string, expected: string): KernelError {
    return new KernelError(this.kernel, `argument ${name} of the launch must be ${expected}`)
  }
}
