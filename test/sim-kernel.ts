/** Runs traced kernels on the simulator over plain typed arrays. */

import type { Kernel } from '../src/lang/kernel.ts'
import { lineOf } from '../src/lang/site.ts'
import type { Counters } from '../src/sim/counters.ts'
import type { Card } from '../src/sim/estimate.ts'
import { type Finding, Findings } from '../src/sim/finding.ts'
import { GlobalMemory } from '../src/sim/memory.ts'
import { simulate } from '../src/sim/simulate.ts'
import type { TensorMapEntry } from '../src/sim/tensor-copy.ts'
import type { Timeline } from '../src/sim/timeline.ts'

type Array_ = Float32Array | Uint32Array | Int32Array | Uint16Array | Uint8Array | BigUint64Array

export interface RunOptions {
  /** By parameter name; kernels read and write them in place. Outputs count as unwritten before the run. */
  readonly buffers?: Readonly<Record<string, Array_>>
  readonly scalars?: Readonly<Record<string, number>>
  /** Tensor maps over buffers of `buffers` (by any name), extents innermost first; rows are dense. */
  readonly maps?: Readonly<Record<string, { readonly buffer: string; readonly extents: readonly number[] }>>
  readonly blocks?: number
  readonly landing?: 'early' | 'late'
  readonly seed?: number
  /** The card whose times the timelines of the result have. */
  readonly timedFor?: Card
}

export interface RunResult {
  readonly findings: readonly Finding[]
  readonly warnings: readonly Finding[]
  readonly counters: Counters
  /** Of each cluster, when times were asked for. */
  readonly timelines: readonly Timeline[]
}

/** One run; what is wrong is in the result. */
export function runKernel(kernel: Kernel, options: RunOptions): RunResult {
  const { buffers = {}, scalars = {}, maps = {}, blocks = 1, landing = 'late', seed = 1, timedFor } = options
  const findings = new Findings()
  const global = new GlobalMemory(findings)
  const args: Record<string, number | bigint> = { ...scalars }
  const bases: Record<string, bigint> = {}
  for (const [name, array] of Object.entries(buffers)) {
    const buffer = global.add(name, new Uint8Array(array.buffer, array.byteOffset, array.byteLength))
    const param = kernel.params[name]
    if (param?.kind !== 'buffer' || param.access === 'read') buffer.initialize(0, array.byteLength)
    args[name] = buffer.base
    bases[name] = buffer.base
  }
  const entries = new Map<bigint, TensorMapEntry>()
  Object.entries(maps).forEach(([name, { buffer, extents }], i) => {
    const bytes = buffers[buffer]!.BYTES_PER_ELEMENT
    const byteStrides = extents.map((_, d) => extents.slice(0, d).reduce((product, extent) => product * extent, bytes))
    entries.set(BigInt(i + 1), {
      param: kernel.params[name] as TensorMapEntry['param'],
      address: bases[buffer]!,
      extents,
      byteStrides,
    })
    args[name] = BigInt(i + 1)
  })
  const timelines: Timeline[] = []
  const memory = { args, maps: entries, global }
  const counters = simulate(kernel, { grid: [blocks, 1], ...memory, findings, landing, seed, timelines, timedFor })
  return { findings: findings.list, warnings: findings.warnings, counters, timelines }
}

/** `file:line` of the statement `below` lines under the caller's. */
export function here(below = 0): string {
  const { stack } = new Error('here')
  const [first, , ...rest] = stack!.split('\n')
  return lineOf({ stack: [first, ...rest].join('\n') }).replace(/\d+$/, line => String(Number(line) + below))
}
