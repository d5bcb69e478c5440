/** `kernel()`: a named function of parameters, traced once, printed or simulated many times. */

import { Buffer } from './buffer.ts'
import { KernelBuilder } from './builder.ts'
import type { Node, Register } from './ir.ts'
import type { BufferParam, Param, Params, ScalarParam, TensorMapParam } from './params.ts'
import { checkRegisters, entryRegisters } from './register-budget.ts'
import { TensorMap } from './tensor-map.ts'
import { Trace } from './trace.ts'
import { runsOn, type Target } from './types.ts'
import { Val } from './value.ts'

/** What the kernel function receives for each parameter. */
export type Bound<P extends Param> =
  P extends BufferParam<infer D>
    ? Buffer<D>
    : P extends ScalarParam<infer T>
      ? Val<T>
      : P extends TensorMapParam
        ? TensorMap
        : never

export interface KernelSpec<P extends Params> {
  /** Entry name: letters, digits and underscores. */
  readonly name: string
  readonly target: Target
  /** Threads of a block. */
  readonly threads: number
  /**
   * Blocks that a multiprocessor must have room for. It bounds the registers of a thread; without it the compiler may
   * spill a few to fit more blocks.
   */
  readonly residentBlocks?: number
  /** Consecutive blocks (in x) that run together and reach each other's shared memory: 1..16. Default 1. */
  readonly cluster?: number
  /**
   * May start while the kernel before it in the stream still runs: every block calls `k.waitForPrevious` before it touches
   * what others write or read. From sm_90 on. Default false.
   */
  readonly overlaps?: boolean
  readonly params: P
}

export interface Kernel {
  readonly name: string
  readonly target: Target
  readonly threads: number
  readonly residentBlocks: number | undefined
  /** Blocks of a cluster. */
  readonly cluster: number
  /** May start before the kernel ahead of it has ended. */
  readonly overlaps: boolean
  readonly params: Params
  /** Registers that hold the parameters, in the order of `params`. */
  readonly paramRegisters: readonly Register[]
  readonly sharedBytes: number
  readonly body: readonly Node[]
}

/** Traces a kernel. @throws KernelError at the author's line when the language is misused */
export function kernel<const P extends Params>(
  spec: KernelSpec<P>,
  define: (k: KernelBuilder, params: { readonly [K in keyof P]: Bound<P[K]> }) => void,
): Kernel {
  const { cluster = 1, overlaps = false } = spec
  const trace = new Trace(spec.name, spec.target, cluster)
  if (!/^[a-z_][a-z0-9_]*$/i.test(spec.name))
    throw trace.error('a kernel name has letters, digits and underscores only')
  if (spec.threads % 32 !== 0 || spec.threads < 32 || spec.threads > 1024)
    throw trace.error(`${spec.threads} threads; expected a multiple of 32 up to 1024`)
  if (cluster < 1 || cluster > 16 || !Number.isInteger(cluster) || (cluster > 1 && !runsOn(spec.target, 90)))
    throw trace.error(`a cluster of ${cluster} blocks for ${spec.target}; expected 1..16, above 1 from sm_90a on`)
  if (overlaps && !runsOn(spec.target, 90))
    throw trace.error(`a kernel for ${spec.target} that overlaps; from sm_90a on`)
  const k = new KernelBuilder(trace)
  const paramRegisters: Register[] = []
  const bound = Object.fromEntries(
    Object.entries(spec.params).map(([name, param]) => {
      const register = trace.register(param.kind === 'scalar' ? param.type : 'u64', { hint: name })
      paramRegisters.push(register)
      return [name, bind(trace, name, param, register)]
    }),
  )
  define(k, bound as never)
  const { name, target, threads, residentBlocks, params } = spec
  const { sharedBytes } = k
  const body = trace.nodes
  checkRegisters(trace, entryRegisters(threads, residentBlocks), threads, body)
  return { name, target, threads, residentBlocks, cluster, overlaps, params, paramRegisters, sharedBytes, body }
}

function bind(trace: Trace, name: string, param: Param, register: Register): Buffer | Val | TensorMap {
  switch (param.kind) {
    case 'buffer':
      return new Buffer(trace, name, param.dtype, register, param.access === 'write')
    case 'scalar':
      return new Val(trace, param.type, register)
    case 'tensorMap':
      return new TensorMap(trace, param, register)
    default:
      return param satisfies never
  }
}
