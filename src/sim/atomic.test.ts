import { expect, test } from 'vitest'
import type { KernelBuilder } from '../lang/builder.ts'
import { type Bound, kernel } from '../lang/kernel.ts'
import { type BufferParam, output } from '../lang/params.ts'
import type { SharedArray } from '../lang/shared.ts'
import { printPtx } from '../ptx/print.ts'
import { type Finding, Findings } from './finding.ts'
import { GlobalMemory } from './memory.ts'
import { simulate } from './simulate.ts'

type U32 = Bound<BufferParam<'u32'>>

/** One block of two warps with a zeroed counter in shared memory, behind a barrier. */
function run(
  body: (k: KernelBuilder, counter: SharedArray<'u32'>, out: U32) => void,
  seed = 1,
): { findings: readonly Finding[]; written: Uint32Array } {
  const findings = new Findings()
  const global = new GlobalMemory(findings)
  const written = new Uint32Array(64)
  const target = global.add('out', new Uint8Array(written.buffer))
  const traced = kernel(
    { name: 'probe', target: 'sm_75', threads: 64, params: { out: output('u32', 'out') } },
    (k, { out }) => {
      const counter = k.shared('u32', 1)
      k.when(k.threadIdx.eq(0), () => counter.store(0, 0))
      k.barrier()
      body(k, counter, out)
    },
  )
  simulate(traced, { grid: [1, 1], args: { out: target.base }, global, findings, seed })
  return { findings: findings.list, written }
}

const rules = (findings: readonly Finding[]): string[] => findings.map(({ rule }) => rule)

test('atomic additions of all threads add up, and each sees another value before its own', () => {
  for (const seed of [1, 2, 3]) {
    const { written, findings } = run(
      (k, counter, out) => out.store(k.threadIdx, counter.atomicAdd(0, k.threadIdx)),
      seed,
    )
    expect(findings).toEqual([])
    const before = Array.from(written).sort((a, b) => a - b)
    expect(before.at(-1)).toBeLessThanOrEqual(2016)
    expect(new Set(before).size).toBeGreaterThanOrEqual(63)
  }
})

test('the total can be read behind a barrier, and the counter reused behind the next', () => {
  const { written, findings } = run((k, counter, out) => {
    counter.atomicAdd(0, 1)
    k.barrier()
    out.store(k.threadIdx, counter.load(0))
    k.barrier()
    k.when(k.threadIdx.eq(5), () => counter.store(0, 0))
  })
  expect(findings).toEqual([])
  expect(new Set(written)).toEqual(new Set([64]))
})

test('planted bug: a plain read beside the atomics of another warp', () => {
  const { findings } = run((k, counter, out) => {
    counter.atomicAdd(0, 1)
    out.store(k.threadIdx, counter.load(0))
  })
  expect(rules(findings)).toContain('race')
})

test('planted bug: a plain read by the warp that updated last', () => {
  const { findings } = run((k, counter, out) => {
    counter.atomicAdd(0, 1)
    k.whenUniform(k.threadIdx.ge(32), () => out.store(k.threadIdx, counter.load(0)))
  })
  expect(rules(findings)).toEqual(['race'])
})

test('planted bug: a plain store beside the atomics of another warp', () => {
  const { findings } = run((k, counter) => {
    k.whenUniform(
      k.threadIdx.lt(32),
      () => void counter.atomicAdd(0, 1),
      () => counter.store(0, 7),
    )
  })
  expect(rules(findings)).toEqual(['race'])
})

test('planted bug: a counter that nothing has set', () => {
  const { findings } = run(k => void k.shared('u32', 1).atomicAdd(0, 1))
  expect(rules(findings)).toEqual(['uninitialized-read'])
})

test('an atomic addition in PTX', () => {
  const traced = kernel({ name: 'probe', target: 'sm_75', threads: 32, params: {} }, k => {
    k.shared('u32', 8).atomicAdd(3, k.threadIdx)
  })
  expect(printPtx(traced)).toContain('atom.shared.add.u32 %u32_1, [%t0], %u32_0;')
})
