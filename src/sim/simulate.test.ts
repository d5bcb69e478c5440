import { expect, test } from 'vitest'
import { here } from '../../test/sim-kernel.ts'
import type { KernelBuilder } from '../lang/builder.ts'
import { type Bound, kernel } from '../lang/kernel.ts'
import { type BufferParam, input, output, u32 } from '../lang/params.ts'
import { type Finding, Findings } from './finding.ts'
import { GlobalMemory } from './memory.ts'
import { simulate } from './simulate.ts'

type F32 = Bound<BufferParam<'f32'>>

/** Runs one block of two warps over `x` [64] and `out` [64], both f32, and returns what was found and written. */
function run(
  define: (k: KernelBuilder, x: F32, out: F32) => void,
  seed = 1,
): { findings: readonly Finding[]; written: Float32Array } {
  const findings = new Findings()
  const global = new GlobalMemory(findings)
  const numbers = Float32Array.from({ length: 64 }, (_, i) => i)
  const written = new Float32Array(64)
  const source = global.add('x', new Uint8Array(numbers.buffer))
  source.initialize(0, numbers.byteLength)
  const target = global.add('out', new Uint8Array(written.buffer))
  const traced = kernel(
    {
      name: 'probe',
      target: 'sm_90a',
      threads: 64,
      params: { x: input('f32', 'x'), out: output('f32', 'out'), n: u32('n') },
    },
    (k, { x, out }) => define(k, x, out),
  )
  simulate(traced, { grid: [1, 1], args: { x: source.base, out: target.base, n: 64 }, global, findings, seed })
  return { findings: findings.list, written }
}

const rules = (findings: readonly Finding[]): string[] => findings.map(({ rule }) => rule)

test('lanes compute what they should', () => {
  const { written, findings } = run((k, x, out) => out.store(k.threadIdx, x.load(k.threadIdx).mul(2).add(1)))
  expect(findings).toEqual([])
  expect(Array.from(written)).toEqual(Array.from({ length: 64 }, (_, i) => 2 * i + 1))
})

test('branches and loops run under the mask of their lanes', () => {
  const { written } = run((k, x, out) => {
    const sum = k.var('f32', 0)
    for (const i of k.range(k.threadIdx)) sum.set(sum.add(x.load(i)))
    k.when(
      k.threadIdx.rem(2).eq(0),
      () => out.store(k.threadIdx, sum),
      () => out.store(k.threadIdx, sum.neg()),
    )
  })
  expect(Array.from(written)).toEqual(
    Array.from({ length: 64 }, (_, i) => (i % 2 ? -1 : 1) * Math.max(0, (i * (i - 1)) / 2)),
  )
})

test('the sum over a warp is the same in every lane', () => {
  const { written } = run((k, x, out) => out.store(k.threadIdx, k.warpSum(x.load(k.threadIdx))))
  expect(new Set(written.subarray(0, 32))).toEqual(new Set([496]))
})

/** Thread i stores to shared memory and reads what thread 63 - i stored. */
const exchange = (k: KernelBuilder, x: F32, out: F32, between: () => void): void => {
  const tile = k.shared('f32', 64)
  tile.store(k.threadIdx, x.load(k.threadIdx))
  between()
  out.store(k.threadIdx, tile.load(k.const('u32', 63).sub(k.threadIdx)))
}

test('an exchange through shared memory behind a barrier is clean', () => {
  const { written, findings } = run((k, x, out) => exchange(k, x, out, () => k.barrier()))
  expect(findings).toEqual([])
  expect(written[0]).toBe(63)
})

test('planted bug: the barrier is missing', () => {
  const found = [1, 2, 3].flatMap(seed => rules(run((k, x, out) => exchange(k, x, out, () => {}), seed).findings))
  expect(new Set(found)).toEqual(new Set(['race', 'uninitialized-read']))
})

test('planted bug: shared memory is reused without a second barrier', () => {
  const { findings } = run((k, x, out) => {
    const tile = k.shared('f32', 64)
    tile.store(k.threadIdx, x.load(k.threadIdx))
    k.barrier()
    out.store(k.threadIdx, tile.load(k.const('u32', 63).sub(k.threadIdx)))
    tile.store(k.threadIdx, 0)
  })
  expect(rules(findings)).toContain('race')
})

test('planted bug: a load past the end of a buffer', () => {
  const { findings } = run((k, x, out) => out.store(k.threadIdx, x.load(k.threadIdx.add(1))))
  expect(findings).toMatchObject([{ rule: 'out-of-bounds', message: 'access of 4 bytes at x byte 256 of 256' }])
  expect(findings[0]!.at).toContain('simulate.test.ts')
})

test('planted bug: a store past the end of shared memory', () => {
  const { findings } = run(k => k.shared('f32', 32).store(k.threadIdx, 0))
  expect(rules(findings)).toEqual(['out-of-bounds'])
})

test('planted bug: a barrier that one warp never reaches', () => {
  const { findings } = run(k => k.whenUniform(k.threadIdx.lt(32), () => k.barrier()))
  expect(findings).toMatchObject([
    {
      rule: 'deadlock',
      message: 'warp 0 of block 0 waits for ever at barrier (barrier 0 of block 0: 1 of 2 warps have arrived)',
    },
  ])
})

test('planted bug: a warp-wide sum in part of a warp', () => {
  const { findings } = run((k, x, out) => k.when(k.lane.lt(8), () => out.store(k.threadIdx, k.warpSum(x.load(0)))))
  expect(rules(findings)).toContain('divergence')
})

test('planted bug: two warps store to the same place', () => {
  const { findings } = run((k, _, out) => out.store(k.threadIdx.rem(32), 1))
  expect(rules(findings)).toEqual(['race'])
})

test('planted bug: a branch that is to be uniform is not', () => {
  let bug = ''
  const { findings } = run(k => {
    bug = here(1)
    k.whenUniform(k.lane.lt(8), () => {})
  })
  expect(findings).toMatchObject([{ rule: 'divergence', at: bug }])
})
