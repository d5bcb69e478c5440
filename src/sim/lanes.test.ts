import { expect, test } from 'vitest'
import { runKernel } from '../../test/sim-kernel.ts'
import type { KernelBuilder } from '../lang/builder.ts'
import { type Bound, kernel } from '../lang/kernel.ts'
import { type BufferParam, output } from '../lang/params.ts'
import { printPtx } from '../ptx/print.ts'

type U32 = Bound<BufferParam<'u32'>>

const probe = (define: (k: KernelBuilder, out: U32) => void) =>
  kernel({ name: 'probe', target: 'sm_75', threads: 64, params: { out: output('u32', 'out') } }, (k, { out }) =>
    define(k, out),
  )

function run(define: (k: KernelBuilder, out: U32) => void): number[] {
  const out = new Uint32Array(64)
  const { findings } = runKernel(probe(define), { buffers: { out } })
  expect(findings).toEqual([])
  return Array.from(out)
}

test('sums over this lane and those below it, each warp for itself, wrapping', () => {
  const value = (lane: number): number => (lane === 3 ? 0xffff_ffff : lane)
  const out = run((k, o) => {
    const own = k.lane.eq(3).select(k.const('u32', 0xffff_ffff), k.lane)
    o.store(k.threadIdx, k.runningSum(own))
  })
  let sum = 0
  const expected = Array.from({ length: 32 }, (_, lane) => (sum = (sum + value(lane)) >>> 0))
  expect(out).toEqual([...expected, ...expected])
})

test('bits that are set, and zeros above the highest', () => {
  const shifted = (k: KernelBuilder) => k.const('u32', 0xb000_0001).shr(k.threadIdx)
  const values = Array.from({ length: 64 }, (_, i) => (i > 31 ? 0 : 0xb000_0001 >>> i))
  expect(run((k, o) => o.store(k.threadIdx, k.countOnes(shifted(k))))).toEqual(
    values.map(value => value.toString(2).replaceAll('0', '').length),
  )
  expect(run((k, o) => o.store(k.threadIdx, k.leadingZeros(shifted(k))))).toEqual(values.map(Math.clz32))
})

test('a store at a byte address', () => {
  const out = run((k, o) => {
    const words = k.shared('u32', 64)
    words.storeAt(words.byteAt(k.threadIdx), k.threadIdx.mul(3))
    o.store(k.threadIdx, words.load(k.threadIdx))
  })
  expect(out).toEqual(Array.from({ length: 64 }, (_, i) => 3 * i))
})

test('a running sum in PTX', () => {
  const text = printPtx(probe((k, out) => out.store(0, k.runningSum(k.lane))))
  expect(text).toContain('shfl.sync.up.b32 %t0|%t1, %u32_2, 16, 0, -1;\n  @%t1 add.u32 %u32_2, %u32_2, %t0;')
})
