import { expect, test } from 'vitest'
import { runKernel } from '../../test/sim-kernel.ts'
import { runTensor, tensorKernel } from '../../test/tensor-kernel.ts'
import type { KernelBuilder } from '../lang/builder.ts'
import { type Bound, type Kernel, kernel } from '../lang/kernel.ts'
import { type BufferParam, input, output } from '../lang/params.ts'
import { b200, estimate, formatEstimate, h200, partsOf, shareOf } from './estimate.ts'
import { wavefronts } from './traffic.ts'

type F32 = Bound<BufferParam<'f32'>>

const probe = (define: (k: KernelBuilder, x: F32, y: F32) => void): Kernel =>
  kernel(
    { name: 'probe', target: 'sm_90a', threads: 128, params: { x: input('f32', 'x'), y: output('f32', 'y') } },
    (k, { x, y }) => define(k, x, y),
  )

function run(define: (k: KernelBuilder, x: F32, y: F32) => void, blocks = 1) {
  const buffers = { x: new Float32Array(4096).fill(0.5), y: new Float32Array(4096) }
  const result = runKernel(probe(define), { buffers, blocks })
  expect(result.findings).toEqual([])
  return result.counters
}

/** A tile of zeros, ready for multiplies. */
function zeros(k: KernelBuilder) {
  const tile = k.tile({ dtype: 'bf16', rows: 64, columns: 64 })
  for (const i of k.range(2048, { start: k.threadIdx, step: 128 }))
    tile.storeWord(tile.at(0, i.shr(5), i.bitAnd(31).mul(4)), k.const('u32', 0))
  k.fenceProxyAsync()
  k.barrier()
  return tile
}

test('multiplies take N / 2 cycles and read both operands from shared memory', () => {
  const counters = run(k => {
    const tile = zeros(k)
    const d = k.accumulator(64)
    k.warpgroup.fence()
    for (let i = 0; i < 3; i++) d.multiply({ tile }, { tile }, { accumulate: i > 0 })
    k.warpgroup.commit()
    k.warpgroup.wait(0)
  })
  expect(counters.cycles.get('tensor')).toBe((3 * 4 * 64) / 2)
  expect(counters.bytes.matrix).toBe(3 * 4 * (64 * 32 + 64 * 32))
  expect(partsOf(counters, 'shared', h200)[0]).toMatchObject({ name: 'matrix units' })
  expect(partsOf(counters, 'shared', h200).reduce((sum, { share }) => sum + share, 0)).toBeCloseTo(1)
  expect(estimate(counters, 1).units.tensor).toBe(384)
})

test('bytes are counted by who moves them, distinct lines once', () => {
  const counters = run((k, x, y) => {
    const value = x.load(k.threadIdx)
    y.store(k.blockIdx.x.mul(128).add(k.threadIdx), value.add(x.load(k.threadIdx)))
  }, 2)
  expect(counters.bytes).toMatchObject({ global: 2 * 3 * 512, shared: 0, copied: 0, distinct: 512 + 1024 })
})

test.each([
  [1, 1],
  [2, 2],
  [8, 8],
  [32, 32],
  [33, 1],
])('words %i apart take %i turns of shared memory', (stride, turns) => {
  const counters = run(k => {
    const words = k.shared('f32', 33 * 128)
    const own = k.threadIdx
      .shr(5)
      .mul(33 * 32)
      .add(k.lane.mul(stride))
    words.store(own, 1)
    words.load(own)
  })
  expect(counters.sharedTurns).toEqual({ least: 8, taken: 8 * turns })
  expect(counters.bankConflicts).toBe(8 * (turns - 1))
})

test('lanes that read the same word share a turn, and wide accesses go in quarters', () => {
  expect(wavefronts(new Array(32).fill(64), 4)).toBe(1)
  expect(wavefronts([0, 16, 32, 48, 64, 80, 96, 112], 16)).toBe(1)
  expect(wavefronts([0, 128, 256, 384, 512, 640, 768, 896], 16)).toBe(8)
})

test('the bounding unit is named', () => {
  const exponentials = run((k, x, y) => {
    let value = x.load(k.threadIdx)
    for (let i = 0; i < 100; i++) value = k.exp2(value)
    y.store(k.threadIdx, value)
  })
  expect(estimate(exponentials, 1).bound).toBe('mufu')
  expect(partsOf(exponentials, 'mufu', h200)).toEqual([{ name: 'ex2.f32', share: 1 }])
  const copying = run((k, x, y) => {
    for (const i of k.range(4096, { start: k.threadIdx, step: 128 })) y.store(i, x.load(i))
  })
  const wide = { ...h200, memoryBytesPerSecond: 1e9 }
  expect(estimate(copying, 132, wide)).toMatchObject({
    bound: 'memory',
    seconds: expect.closeTo(32768 / 1e9, 12),
  })
})

test('a few blocks have their share of the card’s memory when all multiprocessors are busy', () => {
  const counters = run((k, x, y) => y.store(k.threadIdx, k.exp2(x.load(k.threadIdx))))
  const [alone, crowded] = [h200, shareOf(h200, 4)].map(card => estimate(counters, 4, card).units)
  expect(crowded!.memory).toBeCloseTo((132 / 4) * alone!.memory)
  expect(crowded!.cache).toBeCloseTo((132 / 4) * alone!.cache)
  expect(crowded!.mufu).toBe(alone!.mufu)
  expect(shareOf(b200, 500)).toEqual(b200)
})

test('signs, moves and other names of a register are no instructions', () => {
  const counters = run((k, x, y) => {
    const value = k.var('f32', x.load(k.threadIdx).neg())
    value.set(value.abs().bits().asF32())
    y.store(k.threadIdx, value)
  })
  expect(counters.instructions.get('mov.f32')).toBe(8)
  expect([...counters.cyclesByRecord('alu').keys()]).toEqual(['threadIdx'])
})

test('arithmetic and accumulators take turns at the registers', () => {
  const counters = run((k, x, y) => {
    const value = x.load(k.threadIdx)
    y.store(k.threadIdx, value.fma(value.mul(2), value))
  })
  const arithmetic = 4 * (1 + 3)
  expect(counters.registerReads).toBeGreaterThanOrEqual(arithmetic)
  expect(estimate(counters, 1).units.registers).toBe(counters.registerReads / h200.registerReadsPerCycle!)
  const multiply = (times: number) =>
    run(k => {
      const tile = zeros(k)
      const d = k.accumulator(64)
      k.warpgroup.fence()
      for (let i = 0; i < times; i++) d.multiply({ tile }, { tile }, { accumulate: i > 0 })
      k.warpgroup.commit()
      k.warpgroup.wait(0)
    }).registerReads
  // Four warps, four steps of K, 32 registers of D each.
  const least = 4 * 4 * 32
  expect(multiply(3) - multiply(2)).toBeGreaterThanOrEqual(least)
  expect(multiply(3) - multiply(2)).toBeLessThan(1.5 * least)
})

test('work spread over more blocks takes less time, up to the multiprocessors', () => {
  const counters = run((k, x, y) => y.store(k.threadIdx, k.exp2(x.load(k.threadIdx))))
  const cycles = [1, 10, 132, 1000].map(blocks => estimate(counters, blocks).units.mufu)
  expect(cycles).toEqual([8, 0.8, 8 / 132, 8 / 132])
  expect(formatEstimate(estimate(counters, 1))).toMatch(/^H200: at least [\d.]+ us, \w+ 100 %/)
})

test.each([
  [{ m: 128, n: 128 }, 64, 128 * 32 + 128 * 32],
  [{ m: 64, n: 128 }, 64, 64 * 32 + 128 * 32],
  [{ m: 64, n: 128, stationary: true }, 32, 64 * 32 + 128 * 32],
  [{ m: 256, n: 128, pair: true }, 128, 256 * 32 + 128 * 32],
] as const)('a multiply of sm_100, %o, takes %i cycles and reads %i bytes', (form, cycles, bytes) => {
  const c = { dtype: 'bf16', depth: 16, ...form } as const
  const { counters } = runTensor(c, tensorKernel(c))
  expect(counters.cycles.get('tensor')).toBe(cycles)
  expect(counters.bytes.matrix).toBe(bytes)
  expect(counters.cycles.get('tmem')).toBeGreaterThan(0)
  expect(estimate(counters, 148, b200).units.tensor).toBeCloseTo(cycles / 148)
})
