import { afterAll, describe, expect, test } from 'vitest'
import { assembles, conformanceOf } from '../../../test/gpu-cases.ts'
import { i32, u32 } from '../../../test/index-cases.ts'
import { seeded } from '../../../test/random.ts'
import {
  expectSelection,
  expectTopK,
  rowOf,
  rowsOf,
  scatter,
  selectionEdges,
  selectionOf,
} from '../../../test/selection-cases.ts'
import { topK } from '../../ops/top-k.ts'
import { SimDevice } from '../../sim/device.ts'
import { tensor } from '../../tensor/tensor.ts'
import { placeTopK } from './portable.ts'

const device = new SimDevice('sm_80')
afterAll(() => device.dispose())

conformanceOf('topK', device)
selectionEdges(device)

const normalRow = (length: number, seed = 1) => rowOf(length, seeded(seed).normal)

describe('distributions', () => {
  test.each([1, 700, 3000])('3000 equal scores, k %i: the smallest positions win', async k => {
    const { indices } = await expectTopK(device, { scores: rowOf(3000, () => -0.75), k })
    expect(indices.data).toEqual(Int32Array.from({ length: k }, (_, i) => i))
  })

  test('scores that differ in their last bits alone, one crowd above the rest', async () => {
    const place = scatter(4096)
    const scores = rowOf(4096, i => (place(i) < 1500 ? 2 + (i % 64) * 2 ** -22 : (i % 1000) / 1000))
    await expectTopK(device, { scores, k: 1300 })
  })

  test('NaN of every kind and -inf among the rest', async () => {
    const nans = [0x7fc00000, 0xffc00000, 0x7f800001, 0xff800001, 0x7fffffff, 0xffffffff]
    const bits = Uint32Array.from({ length: 1024 }, (_, i) => {
      const place = scatter(1024)(i)
      if (place < 100) return nans[place % nans.length]!
      return place < 400 ? 0xff800000 : new Uint32Array(Float32Array.of(Math.sin(i)).buffer)[0]!
    })
    const scores = tensor('f32', [1, 1024], new Float32Array(bits.buffer))
    for (const k of [600, 624, 700]) {
      const { counts } = await expectTopK(device, { scores, k })
      expect(counts.data[0]).toBe(Math.min(k, 624))
    }
  })
})

describe('sizes', () => {
  test.each([1, 1024, 1025, 2500])('k %i of 2600, more than a run of shared memory', async k => {
    await expectTopK(device, { scores: normalRow(2600, k), k })
  })

  test('more rows than blocks', async () => {
    const few = new SimDevice('sm_80', { scratchBytes: 4 * 3 * 16 * 20 })
    expect(placeTopK({ k: 20, order: 'score', slots: undefined }, 7, 50, few.limits).blocks).toBe(3)
    await expectTopK(few, { scores: rowsOf(...Array.from({ length: 7 }, (_, r) => normalRow(50, r))), k: 20 })
  })

  test('a long row in parts has the bits of the whole', async () => {
    const scores = rowOf(33_000, i => Math.round(seeded(i).normal() * 20))
    const { splits } = placeTopK({ k: 500, order: 'score', slots: undefined }, 1, 33_000, device.limits)
    expect(splits).toBe(4)
    for (const order of ['score', 'index'] as const) await expectTopK(device, { scores, k: 500, order })
    const window = { lo: i32(8000), hi: i32(9000) }
    await expectTopK(device, { scores, k: 500, window })
  })
})

describe('layouts', () => {
  test('u32 bounds beyond 2^31, windows that are empty or beyond the width', async () => {
    const scores = rowsOf(...Array.from({ length: 4 }, (_, r) => normalRow(300, r)))
    await expectTopK(device, { scores, k: 64, window: { hi: u32(0, 2 ** 31, 2 ** 32 - 1, 65) } })
    const window = { lo: i32(-5, 299, 300, 12), hi: i32(100, 300, 301, 3) }
    await expectTopK(device, { scores, k: 64, window })
  })

  test('the same bits whatever the order in which warps run', async () => {
    const scores = rowOf(900, i => scatter(1024)(i) % 7)
    const first = await expectTopK(device, { scores, k: 300 })
    for (const seed of [2, 3])
      expectSelection(await selectionOf(new SimDevice('sm_80', { seed }), { scores, k: 300 }), first)
  })
})

const slots = { blockTable: tensor('u32', [1, 2], Uint32Array.of(1, 0)), pageSize: 64, blocks: 2 }

assembles({
  'by score, to slots': d => topK.plan(d, { scores: normalRow(100), k: 8, slots }),
  'bf16 by index': d => topK.plan(d, { scores: normalRow(100).cast('bf16'), k: 8, order: 'index' }),
  'in parts': d => topK.plan(d, { scores: rowOf(40_000, () => 0), k: 8 }),
})
