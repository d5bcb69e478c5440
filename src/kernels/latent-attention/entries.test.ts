import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { expectGate, sameBits } from '../../../test/gates.ts'
import {
  type Columns,
  expectLatent,
  expectSame,
  type HostResult,
  handPool,
  handQuery,
  invalidSlots,
  narrow,
  prefillCase,
  run,
  scale,
  slotList,
} from '../../../test/latent-cases.ts'
import { variantNames, variants } from '../../../test/latent-variants.ts'
import { ints, normals } from '../../conformance/data.ts'
import { type CpuDevice, openCpuDevice } from '../../cpu/device.ts'
import { type SparsePrefillArgs, sparsePrefill } from '../../ops/sparse-prefill.ts'
import type { LatentPool } from '../../tensor/cache-pool.ts'
import { fromFloats, type Tensor, zeros } from '../../tensor/tensor.ts'
import { sparsePrefillReference } from './reference.ts'

let device: CpuDevice
beforeAll(async () => {
  device = await openCpuDevice({ threads: 1 })
})
afterAll(() => device.dispose())

const prefill = (args: SparsePrefillArgs): Promise<HostResult> => run(device, sparsePrefill, args)

const { args: base, pool: basePool, random } = prefillCase({ variant: 'bf16', tokens: 1, heads: 5, topk: 128 })
const valid = Array.from({ length: 128 }, () => basePool.slotOf(0, random.int(165)))
const all = { topkLength: undefined }
const lengthOf = (length: number, dtype: 'i32' | 'u32' = 'i32') => ints(dtype, [1], [length])

describe('entries that do not count', () => {
  test.each([1, 16, 64, 65, 127])('SA-01: %i leading invalid entries leave the bits of the rest', async n => {
    const rest = valid.slice(n)
    const led = await prefill({
      ...base,
      ...all,
      indices: slotList([1, 128], [...new Array<number>(n).fill(-1), ...rest]),
    })
    const front = [...valid.slice(n), ...valid.slice(0, n).fill(-1)]
    expectSame(led, await prefill({ ...base, ...all, indices: slotList([1, 128], front) }))
    expectSame(led, await prefill({ ...base, ...all, indices: slotList([1, 128 - n], rest) }))
  })

  test('SA-03: beside one valid entry, -1 reads neither the last row nor the one before the first', async () => {
    const rows: Columns[] = Array.from({ length: 1023 }, (_, slot) => ({
      0: slot === 3 ? 0.75 : NaN,
      7: -2.5,
      511: 1 / 3,
      575: 4,
    }))
    const cache = handPool(variants.f32.layout, rows, 1)
    const q = handQuery('f32', [{ 0: 2, 575: 0.5 }])
    const { out, lse, maxLogits } = await prefill({ q, cache, indices: slotList([1, 4], [3, -1, -1, -1]), scale: 1 })
    expect([out.floats()[0], out.floats()[7], out.floats()[511]]).toEqual([0.75, -2.5, Math.fround(1 / 3)])
    expect([lse.floats()[0], maxLogits.floats()[0]]).toEqual([3.5, 3.5])
  })

  test('SA-05: entries past topkLength are not read, whatever they name', async () => {
    const nan = basePool.blocks * basePool.pageSize - 1
    const short = { ...base, topkLength: lengthOf(64) }
    const named = await prefill({
      ...short,
      indices: slotList([1, 128], [...valid.slice(0, 64), ...valid.slice(64).fill(nan)]),
    })
    expectSame(named, await prefill({ ...base, ...all, indices: slotList([1, 64], valid.slice(0, 64)) }))
    expect(named.out.floats().every(Number.isFinite)).toBe(true)
  })

  test.each(variantNames)('SA-06: slots beyond the pool or negative, anywhere in the list, %s', async variant => {
    const { args, pool } = prefillCase({ variant, tokens: 1, heads: 3, topk: 2 })
    const size = pool.blocks * pool.pageSize
    const [a, b] = [pool.slotOf(0, 1), pool.slotOf(0, 20)]
    const bad = [size, size + 1, ...invalidSlots]
    const list = [...bad, a, ...bad, ...bad, b, ...bad]
    const mixed = await prefill({ ...args, ...all, indices: slotList([1, list.length], list) })
    expectSame(mixed, await prefill({ ...args, ...all, indices: slotList([1, 2], [a, b]) }))
  })

  test('a u32 list with 0xffffffff, and lengths of either sign and dtype, clamped', async () => {
    const list = [valid[0]!, -1, valid[1]!, valid[2]!]
    const signed = await prefill({ ...base, ...all, indices: slotList([1, 4], list) })
    const unsigned = slotList([1, 4], list, 'u32')
    expectSame(signed, await prefill({ ...base, ...all, indices: unsigned }))
    for (const length of [4, 5, 2 ** 31 - 1])
      expectSame(signed, await prefill({ ...base, topkLength: lengthOf(length), indices: unsigned }))
    expectSame(signed, await prefill({ ...base, topkLength: lengthOf(2 ** 32 - 1, 'u32'), indices: unsigned }))
    const none = await prefill({ ...base, topkLength: lengthOf(0), indices: unsigned })
    expectSame(none, await prefill({ ...base, topkLength: lengthOf(-(2 ** 31)), indices: unsigned }))
  })
})

describe('no valid entry', () => {
  test.each(variantNames)('0, -inf and -inf, whatever the sink, %s', async variant => {
    const { args } = prefillCase({ variant, tokens: 1, heads: 6, topk: 65 })
    const sink = fromFloats('f32', [6], [Infinity, -Infinity, 0, 1e38, -1e38, NaN])
    const indices = slotList([1, 65], new Array<number>(65).fill(-1))
    for (const given of [undefined, sink])
      expectSame(await prefill({ ...args, indices, sink: given }), {
        out: fromFloats('bf16', [1, 6, 512], new Float32Array(6 * 512)).cast(variant === 'f32' ? 'f32' : 'bf16'),
        lse: fromFloats('f32', [1, 6], new Float32Array(6).fill(-Infinity)),
        maxLogits: fromFloats('f32', [1, 6], new Float32Array(6).fill(-Infinity)),
      })
  })

  test('a pool without blocks', async () => {
    const cache: LatentPool = {
      format: 'plain',
      values: fromFloats('bf16', [0, 1, 4, 576], []),
      scaleBlock: 0,
      layer: 0,
    }
    const { out, lse } = await prefill({ ...base, cache })
    expect(out.floats().every(x => Object.is(x, 0))).toBe(true)
    expect(lse.floats().every(x => x === -Infinity)).toBe(true)
  })

  test('SA-11: 1024 tokens over short and empty lists on two threads: each as in a batch of four', async () => {
    const { args } = prefillCase({ tokens: 4, heads: 2, topk: 70 })
    const four = await prefill(args)
    const times = <T extends Tensor>(t: T): T => {
      const repeated = zeros(t.dtype, t.shape.with(0, 1024))
      for (let i = 0; i < 256; i++) (repeated.data as Uint16Array).set(t.codes() as Uint16Array, i * t.size)
      return repeated as T
    }
    const indices = slotList([1024, 70], [...times(args.indices as Tensor<'i32'>).data])
    const topkLength = times(args.topkLength as Tensor<'i32'>)
    await using two = await openCpuDevice({ threads: 2 })
    const many = await run(two, sparsePrefill, { ...args, q: times(args.q as Tensor), indices, topkLength })
    expectSame(many, { out: times(four.out), lse: times(four.lse), maxLogits: times(four.maxLogits) })
  })

  test('no tokens', async () => {
    const q = fromFloats('bf16', [0, 5, 576], [])
    const { out, lse } = await prefill({ ...base, ...all, q, indices: slotList([0, 4], []) })
    expect([out.shape, lse.shape]).toEqual([
      [0, 5, 512],
      [0, 5],
    ])
  })
})

describe('the sink', () => {
  const list = slotList([1, 128], valid)

  test('SA-08: joins the denominator alone: 4 / (4 + 4), lse = ln 4', async () => {
    const cache = handPool(
      variants.f32.layout,
      Array.from({ length: 4 }, () => ({ 0: 1, 511: 1 })),
    )
    const sink = fromFloats('f32', [1], [Math.log(4)])
    const args = { q: handQuery('f32', [{}]), cache, indices: slotList([1, 4], [0, 1, 2, 3]), scale: 1, sink }
    const { out, lse, maxLogits } = await prefill(args)
    expect(out.floats()[0]).toBeCloseTo(0.5, 6)
    expect(lse.floats()[0]).toBeCloseTo(Math.log(4), 6)
    expect(maxLogits.floats()[0]).toBe(0)
  })

  test('SA-08: 64 heads keep their own', async () => {
    const { args } = prefillCase({ variant: 'bf16', tokens: 2, heads: 64, topk: 40 })
    const sink = normals(random, 'f32', [64], 3)
    const result = await prefill({ ...args, outDtype: 'f32', sink })
    expectLatent('bf16', result, sparsePrefillReference({ ...args, sink }))
  })

  test('-inf and -1e38 change no bit, +inf and 1e38 give 0, lse and maxLogits never change', async () => {
    const sink = fromFloats('f32', [5], [-Infinity, -1e38, Infinity, 1e38, 0.5])
    const [plain, sunk] = [
      await prefill({ ...base, ...all, indices: list, sink: undefined }),
      await prefill({ ...base, ...all, indices: list, sink }),
    ]
    for (const head of [0, 1]) expectSame(narrow(sunk, 1, head), narrow(plain, 1, head))
    for (const head of [2, 3])
      expect(
        sunk.out
          .narrow(1, head, 1)
          .floats()
          .every(x => x === 0),
      ).toBe(true)
    expectGate(sameBits(sunk.lse, plain.lse))
    expectGate(sameBits(sunk.maxLogits, plain.maxLogits))
  })

  test.each([-3e38, -1e5, 1e5])('beside scores of %d', async score => {
    const cache = handPool(variants.f32.layout, [{ 0: 1, 1: 1 }])
    const sink = fromFloats('f32', [3], [score, -3e38, 3e38])
    const q = handQuery('f32', [{ 0: score }, { 0: score }, { 0: score }])
    const args = { q, cache, indices: slotList([1, 1], [0]), scale: 1, sink }
    expectLatent('f32', await prefill(args), sparsePrefillReference(args))
  })
})

describe('what a list means', () => {
  test('SA-15: a slot twice counts twice, 2/3 and 1/3', async () => {
    const cache = handPool(
      variants.f32.layout,
      Array.from({ length: 8 }, (_, slot) => ({ 1: slot === 3 ? 3 : 0, 2: slot === 7 ? 3 : 0 })),
    )
    const { out, lse } = await prefill({
      q: handQuery('f32', [{}]),
      cache,
      indices: slotList([1, 3], [3, 3, 7]),
      scale: 1,
    })
    expect(out.floats()[1]).toBeCloseTo(2, 6)
    expect(out.floats()[2]).toBeCloseTo(1, 6)
    expect(lse.floats()[0]).toBeCloseTo(Math.log(3), 6)
  })

  test.each([
    [1 / Math.sqrt(576), 0.4167],
    [1 / Math.sqrt(192), 0.7217],
    [(0.1 * Math.log(40) + 1) ** 2 / Math.sqrt(192), 1.352],
  ])('SA-17: the scale is the one given, %d', async (given, score) => {
    const cache = handPool(variants.bf16.layout, [{ 0: 5 }])
    const { lse } = await prefill({
      q: handQuery('bf16', [{ 0: 2 }]),
      cache,
      indices: slotList([1, 1], [0]),
      scale: given,
    })
    expect(lse.floats()[0]).toBeCloseTo(score, 3)
  })

  test('scales of 0 and below are numbers like others', async () => {
    const { args } = prefillCase({ variant: 'bf16', tokens: 2, heads: 3, topk: 40 })
    for (const given of [0, -scale]) {
      const turned = { ...args, outDtype: 'f32', scale: given } as const
      expectLatent('bf16', await prefill(turned), sparsePrefillReference(turned))
    }
  })
})
