/** Kernels loaded on the device: printed once, compiled or taken from the disk cache, ready to launch. */

import { UnsupportedError } from '../errors.ts'
import type { Kernel } from '../lang/kernel.ts'
import { type PrintedPtx, printPtxWithSites } from '../ptx/print.ts'
import { ArgumentBlock } from './arguments.ts'
import { compilePtx } from './compile.ts'
import type { CudaContext } from './context.ts'
import type { DiskCache } from './disk-cache.ts'
import { isSticky, result } from './result.ts'

const setAttribute = { maxDynamicSharedBytes: 8 } as const
const getAttribute = { localBytes: 3, registers: 4 } as const
/** What a block may have without asking. */
const plainSharedBytes = 48 << 10

/** What became of a kernel. */
export interface KernelReport {
  readonly name: string
  /** Where the machine code came from. */
  readonly from: 'compiler' | 'cache'
  /** From the trace to a function that can be launched. */
  readonly milliseconds: number
  /** Of a thread. */
  readonly registers: number
  /** Stack and spills of a thread. */
  readonly localBytes: number
  /** Of a block. */
  readonly sharedBytes: number
  readonly threads: number
  /** What the compiler said, empty when the code came from the cache. */
  readonly log: string
}

export interface LoadedKernel {
  readonly function: bigint
  readonly arguments: ArgumentBlock
  readonly report: KernelReport
}

export class Modules {
  private readonly context: CudaContext
  private readonly cache: DiskCache
  private readonly loaded = new Map<Kernel, LoadedKernel>()
  private readonly handles: bigint[] = []

  constructor(context: CudaContext, cache: DiskCache) {
    this.context = context
    this.cache = cache
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
    const { module, from, log } = this.module(name, printPtxWithSites(kernel))
    const handle = new BigUint64Array(1)
    context.call(name, 'cuModuleGetFunction', handle, module, name)
    if (sharedBytes > plainSharedBytes)
      context.call(name, 'cuFuncSetAttribute', handle[0]!, setAttribute.maxDynamicSharedBytes, sharedBytes)
    const milliseconds = performance.now() - start
    const get = (attribute: number): number => {
      const value = new Int32Array(1)
      context.call(name, 'cuFuncGetAttribute', value, attribute, handle[0]!)
      return value[0]!
    }
    const [registers, localBytes] = [get(getAttribute.registers), get(getAttribute.localBytes)]
    return {
      function: handle[0]!,
      arguments: new ArgumentBlock(context, kernel),
      report: { name, from, milliseconds, registers, localBytes, sharedBytes, threads, log },
    }
  }

  private module(name: string, ptx: PrintedPtx): { module: bigint } & Pick<KernelReport, 'from' | 'log'> {
    const cached = this.cache.get(ptx.text)
    const kept = cached === undefined ? undefined : this.tryLoad(name, cached)
    if (kept !== undefined) return { module: kept, from: 'cache', log: '' }
    const { image, log } = compilePtx(this.context, name, ptx)
    const module = new BigUint64Array(1)
    this.context.call(name, 'cuModuleLoadData', module, image)
    this.handles.push(module[0]!)
    this.cache.set(ptx.text, image)
    return { module: module[0]!, from: 'compiler', log }
  }

  /** The module of a cache entry; undefined when the driver no longer takes it. */
  private tryLoad(name: string, image: Uint8Array): bigint | undefined {
    const module = new BigUint64Array(1)
    const code = this.context.driver.call('cuModuleLoadData', module, image)
    if (isSticky(code)) throw this.context.failure(name, 'cuModuleLoadData', code)
    if (code !== result.ok) return undefined
    this.handles.push(module[0]!)
    return module[0]!
  }
}
