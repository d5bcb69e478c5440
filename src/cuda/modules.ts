/** Kernels loaded on the device: printed and compiled once, ready to launch. */

import { UnsupportedError } from '../errors.ts'
import type { Kernel } from '../lang/kernel.ts'
import { printPtxWithSites } from '../ptx/print.ts'
import { ArgumentBlock } from './arguments.ts'
import { complaintsOf, loadPtx } from './compile.ts'
import type { CudaContext } from './context.ts'
import { LaunchConfig } from './launch-config.ts'

const setAttribute = { maxDynamicSharedBytes: 8, anyClusterSize: 14 } as const
const getAttribute = { localBytes: 3, registers: 4 } as const
/** What a block may have without asking. */
const plainSharedBytes = 48 << 10
/** Blocks that a cluster may have without asking. */
const plainCluster = 8

/** What became of a kernel. */
export interface KernelReport {
  readonly name: string
  /** From the trace to its text. */
  readonly printMilliseconds: number
  /** From the text to a function that can be launched. */
  readonly loadMilliseconds: number
  /** Of a thread. */
  readonly registers: number
  /** Stack and spills of a thread. */
  readonly localBytes: number
  /** Of a block. */
  readonly sharedBytes: number
  readonly threads: number
  /** What the compiler said; empty when the code came from the driver's cache. */
  readonly log: string
  /** The lines of the log that say the kernel does not run as written. */
  readonly complaints: readonly string[]
}

export interface LoadedKernel {
  readonly function: bigint
  readonly arguments: ArgumentBlock
  /** Of a kernel that starts before the one ahead has ended. */
  readonly config: LaunchConfig | undefined
  readonly report: KernelReport
}

export class Modules {
  private readonly context: CudaContext
  private readonly overlap: boolean
  private readonly loaded = new Map<Kernel, LoadedKernel>()
  private readonly handles: bigint[] = []

  /** @param overlap whether kernels that can start before the one ahead has ended do so */
  constructor(context: CudaContext, overlap: boolean) {
    this.context = context
    this.overlap = overlap
  }

  get reports(): readonly KernelReport[] {
    return [...this.loaded.values()].map(({ report }) => report)
  }

  /** @throws KernelError when the driver's compiler refuses the kernel, UnsupportedError when the card cannot run it */
  load(kernel: Kernel): LoadedKernel {
    let entry = this.loaded.get(kernel)
    if (entry === undefined) {
      entry = this.build(kernel)
      this.loaded.set(kernel, entry)
    }
    return entry
  }

  dispose(): void {
    for (const module of this.handles) this.context.driver.call('cuModuleUnload', module)
    this.handles.length = 0
    this.loaded.clear()
  }

  private build(kernel: Kernel): LoadedKernel {
    const { context } = this
    const { name, sharedBytes, threads } = kernel
    if (sharedBytes > context.card.sharedBytes)
      throw new UnsupportedError({
        where: name,
        argument: 'shared memory',
        given: `${sharedBytes} bytes`,
        allowed: `at most ${context.card.sharedBytes} on ${context.card.name}`,
      })
    const start = performance.now()
    const ptx = printPtxWithSites(kernel)
    const printed = performance.now()
    const { module, log } = loadPtx(context, name, ptx)
    this.handles.push(module)
    const handle = this.functionOf(kernel, module)
    const times = { printMilliseconds: printed - start, loadMilliseconds: performance.now() - printed }
    const get = (attribute: number): number => {
      const value = new Int32Array(1)
      context.call(name, 'cuFuncGetAttribute', value, attribute, handle)
      return value[0]!
    }
    const [registers, localBytes] = [get(getAttribute.registers), get(getAttribute.localBytes)]
    const complaints = complaintsOf(log)
    for (const line of complaints) process.emitWarning(`kernel ${name} does not compile as written: ${line}`)
    const report = { name, ...times, registers, localBytes, sharedBytes, threads, log, complaints }
    const config = this.overlap && kernel.overlaps ? new LaunchConfig(context, kernel) : undefined
    return { function: handle, arguments: new ArgumentBlock(context, kernel), config, report }
  }

  private functionOf({ name, sharedBytes, cluster }: Kernel, module: bigint): bigint {
    const handle = new BigUint64Array(1)
    this.context.call(name, 'cuModuleGetFunction', handle, module, name)
    const allow = (attribute: number, value: number): void =>
      this.context.call(name, 'cuFuncSetAttribute', handle[0]!, attribute, value)
    if (sharedBytes > plainSharedBytes) allow(setAttribute.maxDynamicSharedBytes, sharedBytes)
    if (cluster > plainCluster) allow(setAttribute.anyClusterSize, 1)
    return handle[0]!
  }
}
