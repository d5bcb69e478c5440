/**
 * A stand-in for the CUDA driver behind the same table: memory as arrays, a queue that runs when the host has looked
 * often enough, kernels as functions of their arguments. It refuses what the real one makes undefined: unknown handles,
 * memory that is freed or too short.
 */

import type { Driver, DriverArg, DriverFunction } from './driver.ts'
import { FakeMemory } from './fake-memory.ts'
import { type FakeFunction, type FakeLaunch, functionOf } from './fake-module.ts'
import { isSticky, result } from './result.ts'

type Code = number

export interface FakeCard {
  readonly name: string
  readonly capability: readonly [number, number]
  readonly multiprocessors: number
  readonly memoryBytes: number
  readonly sharedBytes: number
}

/** An encoded tensor map, as the caller described it. */
export interface FakeTensorMap {
  readonly dtype: number
  readonly address: bigint
  readonly extents: readonly number[]
  readonly byteStrides: readonly number[]
  readonly box: readonly number[]
  readonly swizzle: number
}

type Work = () => void

interface Event {
  reached: boolean
  looks: number
}

const unusable = 201
const invalidValue = 1
const invalidHandle = 400
const captureUnsupported = 900

const names: Readonly<Record<number, string>> = {
  2: 'CUDA_ERROR_OUT_OF_MEMORY',
  100: 'CUDA_ERROR_NO_DEVICE',
  218: 'CUDA_ERROR_INVALID_PTX',
  222: 'CUDA_ERROR_UNSUPPORTED_PTX_VERSION',
  700: 'CUDA_ERROR_ILLEGAL_ADDRESS',
  719: 'CUDA_ERROR_LAUNCH_FAILED',
}

export const hopperCard: FakeCard = {
  name: 'Fake H',
  capability: [9, 0],
  multiprocessors: 4,
  memoryBytes: 1 << 30,
  sharedBytes: 232_448,
}

/** Calls that work after a fault too. */
const always = /^cu(GetError|Init|Driver|DeviceGet|DeviceTotal|DevicePrimaryCtxRelease|CtxSetCurrent)/

export class FakeDriver implements Driver {
  /** Names of the calls so far. */
  readonly calls: DriverFunction[] = []
  readonly launches: FakeLaunch[] = []
  readonly tensorMaps: FakeTensorMap[] = []
  /** What was set on functions: attribute and value. */
  readonly attributes: [number, number][] = []
  readonly memory: FakeMemory = new FakeMemory()
  /** What kernels do, by name. A number is the error they fault with. */
  readonly kernels: Map<string, ((launch: FakeLaunch) => void) | number> = new Map()
  /** Answers `notReady` so often before work is done. */
  looksUntilDone = 2
  version = 13_000
  /** What the compiler answers instead of code. */
  refusal: { readonly code: Code; readonly log: string } | undefined
  /** What the compiler notes beside the code. */
  info = 'ptxas info : nothing to say'
  private readonly cards: readonly FakeCard[]
  private readonly failures = new Map<DriverFunction, Code[]>()
  private readonly objects = new Map<bigint, unknown>()
  private readonly functions: Readonly<Record<DriverFunction, (...args: never[]) => Code>>
  private next = 0x5000n
  private queue: Work[] = []
  private recorded: Work[] | undefined
  private fault: Code = result.ok
  private contexts = 0
  private current = 0n

  constructor(cards: readonly FakeCard[] = [hopperCard]) {
    this.cards = cards
    this.memory.limitBytes = cards[0]?.memoryBytes ?? 0
    this.functions = {
      ...this.machine(),
      ...this.streams(),
      ...this.graphs(),
      ...this.memories(),
      ...this.modules(),
    } as typeof this.functions
  }

  /** The next calls of a function fail, one with each code. */
  failNext(name: DriverFunction, ...codes: Code[]): void {
    this.failures.set(name, codes)
  }

  /** What is held: all zero after everything has been given back. */
  get held(): Readonly<Record<'objects' | 'blocks' | 'hostBlocks' | 'contexts', number>> {
    const { blocks, hostBlocks } = this.memory
    return { objects: this.objects.size, blocks, hostBlocks, contexts: this.contexts }
  }

  call(name: DriverFunction, ...args: DriverArg[]): Code {
    this.calls.push(name)
    const injected = this.failures.get(name)?.shift()
    if (injected !== undefined) return this.failed(injected)
    if (!always.test(name)) {
      if (this.fault !== result.ok && name !== 'cuStreamDestroy_v2') return this.fault
      if (this.current === 0n && name !== 'cuDevicePrimaryCtxRetain') return unusable
    }
    return this.functions[name](...(args as never[]))
  }

  text(address: bigint): string {
    return this.memory.hostText(address)
  }

  view(address: bigint, bytes: number): Uint8Array {
    return this.memory.host(address, bytes)
  }

  addressOf(array: ArrayBufferView): bigint {
    return this.memory.addressOf(array)
  }

  /** How often a function was called. */
  count(name: DriverFunction): number {
    return this.calls.filter(call => call === name).length
  }

  private failed(code: Code): Code {
    if (isSticky(code)) this.fault = code
    return code
  }

  private make(object: unknown): bigint {
    this.objects.set(this.next, object)
    return this.next++
  }

  private get<T>(handle: bigint): T {
    if (!this.objects.has(handle)) throw new Error(`${this.calls.at(-1)}: no object has the handle ${handle}`)
    return this.objects.get(handle) as T
  }

  private destroy(handle: bigint): Code {
    this.get(handle)
    this.objects.delete(handle)
    return result.ok
  }

  private enqueue(work: Work): Code {
    if (this.recorded !== undefined) this.recorded.push(work)
    else this.queue.push(work)
    return result.ok
  }

  /** Runs what is queued, up to a fault. */
  private flush(): Code {
    for (const work of this.queue.splice(0)) if (this.fault === result.ok) work()
    return this.fault
  }

  private machine() {
    const card = (device: number): FakeCard => this.cards[device]!
    const error = (code: Code, out: BigUint64Array, text: string | undefined): Code => {
      if (text === undefined) return invalidValue
      out[0] = this.memory.addressOf(new TextEncoder().encode(`${text}\0`))
      return result.ok
    }
    return {
      cuInit: () => result.ok,
      cuDriverGetVersion: (out: Int32Array) => set(out, this.version),
      cuGetErrorName: (code: Code, out: BigUint64Array) => error(code, out, names[code]),
      cuGetErrorString: (code: Code, out: BigUint64Array) => error(code, out, names[code] && `what ${code} means`),
      cuDeviceGetCount: (out: Int32Array) => set(out, this.cards.length),
      cuDeviceGet: (out: Int32Array, ordinal: number) => set(out, ordinal),
      cuDeviceGetName: (out: Uint8Array, _length: number, device: number) => {
        out.set(new TextEncoder().encode(`${card(device).name}\0`))
        return result.ok
      },
      cuDeviceGetAttribute: (out: Int32Array, attribute: number, device: number) => {
        const { capability, multiprocessors, sharedBytes } = card(device)
        const values: Record<number, number> = {
          16: multiprocessors,
          75: capability[0],
          76: capability[1],
          97: sharedBytes,
        }
        return set(out, values[attribute]!)
      },
      cuDeviceTotalMem_v2: (out: BigUint64Array, device: number) => set(out, BigInt(card(device).memoryBytes)),
      cuDevicePrimaryCtxRetain: (out: BigUint64Array) => {
        this.contexts++
        return set(out, 0xc0n)
      },
      cuDevicePrimaryCtxRelease_v2: () => {
        this.contexts--
        return result.ok
      },
      cuCtxSetCurrent: (context: bigint) => {
        this.current = context
        return result.ok
      },
    }
  }

  private streams() {
    const busy = (): Code => (this.recorded === undefined ? result.ok : captureUnsupported)
    return {
      cuStreamCreate: (out: BigUint64Array) => set(out, this.make('stream')),
      cuStreamDestroy_v2: (stream: bigint) => this.destroy(stream),
      cuStreamSynchronize: () => busy() || this.flush(),
      cuEventCreate: (out: BigUint64Array) => set(out, this.make({ reached: false, looks: 0 })),
      cuEventRecord: (handle: bigint) => {
        const event = this.get<Event>(handle)
        event.reached = false
        event.looks = this.looksUntilDone
        return busy() || this.enqueue(() => (event.reached = true))
      },
      cuEventQuery: (handle: bigint) => {
        const event = this.get<Event>(handle)
        if (event.reached) return result.ok
        return event.looks-- > 0 ? result.notReady : this.flush()
      },
      cuEventElapsedTime: (out: Float32Array, start: bigint, end: bigint) =>
        this.get<Event>(start).reached && this.get<Event>(end).reached ? set(out, 1.5) : result.notReady,
      cuEventDestroy_v2: (event: bigint) => this.destroy(event),
    }
  }

  private graphs() {
    return {
      cuStreamBeginCapture_v2: () => {
        this.recorded = []
        return result.ok
      },
      cuStreamEndCapture: (_stream: bigint, out: BigUint64Array) => {
        if (this.recorded === undefined) return invalidHandle
        set(out, this.make(this.recorded))
        this.recorded = undefined
        return result.ok
      },
      cuGraphInstantiateWithFlags: (out: BigUint64Array, graph: bigint) => set(out, this.make(this.get(graph))),
      cuGraphLaunch: (graph: bigint) => {
        for (const work of this.get<Work[]>(graph)) this.enqueue(work)
        return result.ok
      },
      cuGraphExecDestroy: (graph: bigint) => this.destroy(graph),
      cuGraphDestroy: (graph: bigint) => this.destroy(graph),
    }
  }

  private memories() {
    const { memory } = this
    return {
      cuMemAlloc_v2: (out: BigUint64Array, bytes: bigint) => memory.allocate(out, Number(bytes)),
      cuMemFree_v2: (address: bigint) => this.flush() || memory.free(address),
      cuMemGetInfo_v2: (free: BigUint64Array, total: BigUint64Array) =>
        set(free, BigInt(memory.limitBytes - memory.usedBytes)) || set(total, BigInt(memory.limitBytes)),
      cuMemHostAlloc: (out: BigUint64Array, bytes: bigint) => set(out, memory.allocateHost(Number(bytes))),
      cuMemFreeHost: (address: bigint) => memory.freeHost(address),
      cuMemcpyHtoD_v2: (to: bigint, from: ArrayBufferView, bytes: bigint) => {
        memory.device(to, Number(bytes)).set(bytesOf(from, Number(bytes)))
        return result.ok
      },
      cuMemcpyHtoDAsync_v2: (to: bigint, from: ArrayBufferView, bytes: bigint) => {
        if (this.recorded !== undefined) throw new Error('each replay would read the array anew')
        const taken = bytesOf(from, Number(bytes)).slice()
        memory.device(to, taken.length)
        return this.enqueue(() => memory.device(to, taken.length).set(taken))
      },
      cuMemcpyDtoHAsync_v2: (to: bigint, from: bigint, bytes: bigint) => {
        memory.device(from, Number(bytes))
        return this.enqueue(() => memory.host(to, Number(bytes)).set(memory.device(from, Number(bytes))))
      },
    }
  }

  private modules() {
    return {
      cuModuleLoadDataEx: (
        out: BigUint64Array,
        ptx: Uint8Array,
        _: number,
        options: Int32Array,
        values: BigUint64Array,
      ) => {
        const write = (option: number, text: string) =>
          this.memory.host(values[options.indexOf(option)]!, text.length + 1).set(new TextEncoder().encode(`${text}\0`))
        if (this.refusal !== undefined) {
          write(5, this.refusal.log)
          return this.refusal.code
        }
        write(3, this.info)
        return set(out, this.make(functionOf(new TextDecoder().decode(ptx.subarray(0, -1)))))
      },
      cuModuleUnload: (module: bigint) => this.destroy(module),
      cuModuleGetFunction: (out: BigUint64Array, module: bigint, name: string) =>
        this.get<FakeFunction>(module).kernel === name ? set(out, module) : 500,
      cuFuncSetAttribute: (_: bigint, attribute: number, value: number) => {
        this.attributes.push([attribute, value])
        return result.ok
      },
      cuFuncGetAttribute: (out: Int32Array, attribute: number) => set(out, attribute === 4 ? 40 : 0),
      cuLaunchKernel: (handle: bigint, ...args: (number | bigint | BigUint64Array)[]) => {
        const [gx, gy, gz, bx, by, bz, sharedBytes] = args as number[]
        const pointers = args[8] as BigUint64Array
        const { kernel, params } = this.get<FakeFunction>(handle)
        const given = params.map(({ name, kind }, i) => [name, this.memory.argument(pointers[i]!, kind)])
        const launch = { kernel, grid: [gx!, gy!, gz!], threads: [bx!, by!, bz!], sharedBytes: sharedBytes! }
        return this.enqueue(() => this.run({ ...launch, args: Object.fromEntries(given) }))
      },
      cuLaunchKernelEx: (config: Uint8Array, handle: bigint, pointers: BigUint64Array) => {
        const view = new DataView(config.buffer, config.byteOffset)
        const words = Array.from({ length: 7 }, (_, i) => view.getUint32(4 * i, true))
        if (view.getUint32(48, true) !== 1) return invalidValue
        const launch = this.functions.cuLaunchKernel as (...args: unknown[]) => Code
        return launch(handle, ...words, view.getBigUint64(32, true), pointers)
      },
      cuTensorMapEncodeTiled: (into: Uint8Array, dtype: number, rank: number, address: bigint, ...rest: never[]) => {
        const [extents, strides, box, , , swizzle] = rest as unknown as [
          BigUint64Array,
          BigUint64Array,
          Uint32Array,
          0,
          0,
          number,
        ]
        if (this.memory.addressOf(into) % 64n !== 0n || extents.length !== rank) return invalidValue
        into.fill(0).set([this.tensorMaps.length])
        const numbers = (list: BigUint64Array) => Array.from(list, Number)
        const shape = { extents: numbers(extents), byteStrides: numbers(strides), box: [...box] }
        this.tensorMaps.push({ dtype, address, ...shape, swizzle })
        return result.ok
      },
    }
  }

  private run(launch: FakeLaunch): void {
    this.launches.push(launch)
    const action = this.kernels.get(launch.kernel)
    if (typeof action === 'number') this.fault = action
    else action?.(launch)
  }
}

function set(out: { [index: number]: bigint | number }, value: bigint | number): Code {
  out[0] = value
  return result.ok
}

const bytesOf = ({ buffer, byteOffset }: ArrayBufferView, bytes: number): Uint8Array =>
  new Uint8Array(buffer, byteOffset, bytes)
