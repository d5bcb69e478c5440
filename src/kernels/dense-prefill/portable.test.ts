import { afterAll, describe, expect, test } from 'vitest'
import {
  type DenseCase,
  type DenseVariant,
  denseOperands,
  denseVariants,
  expectReference,
  expectSame,
  pagedOperands,
  runDense,
  u32,
} from '../../../test/dense-cases.ts'
import { attentionF32, attentionLse, expectGate } from '../../../test/gates.ts'
import { assembles } from '../../../test/gpu-cases.ts'
import { seeded } from '../../../test/random.ts'
import { type DensePrefillArgs, densePrefill } from '../../ops/dense-prefill.ts'
import { SimDevice } from '../../sim/device.ts'
import { fromFloats, type Tensor } from '../../tensor/tensor.ts'
import type { Mask } from './mask.ts'
import * as masks from './masks.ts'
import { densePrefillReference } from './reference.ts'
import { alibi, softcap } from './score-mods.ts'

const device = new SimDevice('sm_90a')
afterAll(() => device.dispose())

const call = (args: object): DensePrefillArgs => args as DensePrefillArgs

/** With f32 output, which the kernel's f32 arithmetic has to meet in every variant. */
async function expectExact(args: DensePrefillArgs, on: SimDevice = device): Promise<void> {
  const ref = densePrefillReference(args)
  const { out, lse } = await runDense(on, { ...args, outDtype: 'f32' })
  expectGate(attentionF32(out, ref))
  expectGate(attentionLse(lse, ref))
}

describe('shapes', () => {
  test.each([
    { heads: 1, kvHeads: 1, nope: 1, vDim: 1 },
    { heads: 6, kvHeads: 2, nope: 65, vDim: 70 },
    { heads: 34, kvHeads: 2, nope: 128, vDim: 128 },
    { heads: 2, kvHeads: 2, nope: 16, vDim: 600 },
  ])('heads $heads of $kvHeads, nope $nope, v $vDim', async shape => {
    await expectExact(call({ ...denseOperands({ ...shape, queries: [3, 1], keys: [35, 2] }), mask: masks.causal() }))
  })

  test.each(denseVariants)('%s, pages of 5, three sequences in one block', async variant => {
    const c: DenseCase = { variant, queries: [2, 0, 5], keys: [9, 4, 40], heads: 2, scaleBlock: 48 }
    const operands = denseOperands(c)
    const paged = pagedOperands(operands, c, { pageSize: 5, contiguous: variant === 'bf16' ? ['v'] : [] })
    const sink = fromFloats('f32', [2], [1, -2])
    await expectReference(device, variant, call({ ...paged, mask: masks.causal(), sink }))
    expectSame(
      await runDense(device, call({ ...paged, mask: masks.causal() })),
      await runDense(device, call({ ...operands, mask: masks.causal() })),
    )
  })
})

/** Random masks of up to five leaves over sequences of 3 queries. */
function maskOf(seed: number): Mask {
  const { int, normal } = seeded(seed)
  const window = (): number => 1 + int(12)
  const bias = (): Mask => {
    const values = Float32Array.from({ length: 2 * 3 * 40 }, () => (int(3) === 0 ? -Infinity : normal()))
    const narrow = fromFloats('f32', [2, 3, 40], values).narrow(2, 0, 1 + int(40))
    return masks.materialized(int(2) === 0 ? narrow.cast('f16') : narrow)
  }
  const leaves: readonly (() => Mask)[] = [
    masks.none,
    masks.causal,
    () => masks.slidingWindow(window()),
    () => masks.slidingWindowBoth(window()),
    () => masks.chunked(window()),
    () => masks.chunkedCausal(window()),
    () => masks.causalPadding(u32(int(40), int(40))),
    bias,
  ]
  const leaf = (): Mask => leaves[int(leaves.length)]!()
  const tree = (depth: number): Mask =>
    depth === 0 || int(4) === 0 ? leaf() : (int(2) === 0 ? masks.and : masks.or)(tree(depth - 1), tree(depth - 1))
  return tree(2)
}

describe('masks', () => {
  const operands = denseOperands({ queries: [3, 3], keys: [37, 2], heads: 2, nope: 4, vDim: 3 })

  test.each(Array.from({ length: 24 }, (_, i) => maskOf(i + 1)))('$name', async mask => {
    await expectExact(call({ ...operands, mask }))
  })

  test('windows as wide as they may be', async () => {
    const widest = 2 ** 31 - 1
    for (const mask of [masks.slidingWindow, masks.slidingWindowBoth, masks.chunked, masks.chunkedCausal])
      await expectExact(call({ ...operands, mask: mask(widest) }))
  })

  test('tiles that nobody sees are not read: their keys may be missing', async () => {
    const c: DenseCase = { queries: [2], keys: [130], heads: 1 }
    const paged = pagedOperands(denseOperands(c), c, { pageSize: 16 })
    const blockTable = (paged.keys.blockTable as Tensor<'u32'>).clone()
    blockTable.data.fill(0xffff_ffff, 0, 7)
    const args = call({ ...paged, keys: { ...paged.keys, blockTable }, mask: masks.slidingWindow(4) })
    expectSame(await runDense(device, args), await runDense(device, call({ ...paged, mask: masks.slidingWindow(4) })))
  })

  test('a page that names no block hides its keys', async () => {
    const c: DenseCase = { queries: [3], keys: [40], heads: 2 }
    const operands40 = denseOperands(c)
    const paged = pagedOperands(operands40, c, { pageSize: 16 })
    const table = (paged.keys.blockTable as Tensor<'u32'>).clone()
    table.data[1] = table.data[0]! + 99
    const onDevice = { ...paged.keys, blockTable: device.upload(table) }
    const hidden = Float32Array.from({ length: 120 }, (_, i) => (i % 40 >= 16 && i % 40 < 32 ? -Infinity : 0))
    const mask = masks.and(masks.causal(), masks.materialized(fromFloats('f32', [1, 3, 40], hidden)))
    const { out, lse } = await runDense(device, call({ ...paged, keys: onDevice, mask: masks.causal() }))
    const ref = densePrefillReference(call({ ...operands40, mask }))
    expectGate(attentionF32(out, ref))
    expectGate(attentionLse(lse, ref))
  })
})

describe('NaN', () => {
  const c: DenseCase = { queries: [3, 2], keys: [20, 37], heads: 2, kvHeads: 2, nope: 3, vDim: 5 }
  const operands = denseOperands(c)
  const bias = fromFloats(
    'f32',
    [2, 3, 37],
    Float32Array.from({ length: 222 }, (_, i) => (i % 2 === 0 ? 0 : -Infinity)),
  )

  test.each([
    ['causal', masks.causal()],
    ['slidingWindow(9)', masks.slidingWindow(9)],
    ['materialized', masks.materialized(bias)],
  ] as const)('in a value reaches the queries that see it under its head and no other: %s', async (_, mask) => {
    const clean = await runDense(device, call({ ...operands, mask }))
    for (const key of [18, 56]) {
      const v = (operands.keys.v as Tensor<'f32'>).clone()
      v.data[(key * 2 + 1) * 5 + 4] = NaN
      const { out, lse } = await runDense(device, call({ ...operands, keys: { ...operands.keys, v }, mask }))
      expect(lse.codes()).toEqual(clean.lse.codes())
      const [dirty, wanted] = [out.floats(), clean.out.floats()]
      for (let i = 0; i < dirty.length; i++) {
        const [token, head, column] = [Math.floor(i / 10), Math.floor(i / 5) % 2, i % 5]
        const [b, row] = token < 3 ? [0, token] : [1, token - 3]
        const [keys, queries, k] = [c.keys[b]!, c.queries[b]!, b === 0 ? key : key - 20]
        const inside = b === 0 ? key < 20 : key >= 20
        const sees = inside && mask.visible(keys - queries + row, k, b, { row, head })
        expect([i, dirty[i]]).toEqual([i, sees && head === 1 && column === 4 ? NaN : wanted[i]])
      }
    }
  })
})

describe('score mods and biases', () => {
  test.each([alibi(6), softcap(0.7), softcap(50)])('$kind $cap', async scoreMod => {
    const operands = denseOperands({ queries: [3], keys: [40], heads: 6, nope: 8, vDim: 4 })
    await expectExact(call({ ...operands, mask: masks.none(), scoreMod }))
  })

  test('alibi of more heads than one launch of constants', async () => {
    const operands = denseOperands({ queries: [1], keys: [9], heads: 70, kvHeads: 1, nope: 1, vDim: 1 })
    await expectExact(call({ ...operands, mask: masks.none(), scoreMod: alibi(70) }))
  })

  test('biases whose sum leaves f32 are still numbers, and the sink stays one', async () => {
    const operands = denseOperands({ queries: [2], keys: [5], heads: 1, nope: 4, vDim: 3 })
    const low = masks.materialized(fromFloats('f32', [1, 2, 5], new Float32Array(10).fill(-3.4e38)))
    const sink = fromFloats('f32', [1], [-Infinity])
    const { out, lse } = await runDense(device, call({ ...operands, mask: masks.and(low, low), sink }))
    expect([...lse.floats()]).toEqual([-3.4028234663852886e38, -3.4028234663852886e38])
    const v = (operands.keys.v as Tensor<'f32'>).data
    for (let i = 0; i < 6; i++) {
      const mean = [0, 1, 2, 3, 4].reduce((sum, j) => sum + v[3 * j + (i % 3)]! / 5, 0)
      expect(out.floats()[i]).toBeCloseTo(mean, 5)
    }
  })
})

describe('how the work is cut', () => {
  const operands = denseOperands({ queries: [5, 2], keys: [100, 3], heads: 2, nope: 8, vDim: 6 })
  const bias = fromFloats(
    'f32',
    [2, 5, 100],
    Float32Array.from({ length: 1000 }, (_, i) => Math.sin(i)),
  )
  const mask = masks.or(masks.slidingWindow(20), masks.materialized(bias))
  const args = call({ ...operands, mask, sink: fromFloats('f32', [2], [0, 1]) })

  test.each([2, 3, 100])('%i splits', async partition => {
    await expectExact({ ...args, partition })
  })

  test('windows of tokens that fit a small budget, and another order of warps: the same bits', async () => {
    const split = { ...args, partition: 3 }
    const small = new SimDevice('sm_90a', { scratchBytes: 700, seed: 7 })
    expect(densePrefill.plan(device, split).scratchBytes).toBeGreaterThan(700)
    expect(densePrefill.plan(small, split).scratchBytes).toBeLessThanOrEqual(700)
    expectSame(await runDense(small, split), await runDense(device, split))
  })

  test('a token alone, over its own keys, has the bits of the token in the batch', async () => {
    const whole = await runDense(device, call({ ...operands, mask: masks.causal() }))
    const [q, nope, v, rope] = [operands.q, operands.keys.nope, operands.keys.v, operands.keys.rope] as Tensor<'f32'>[]
    const keys = { nope: nope!.narrow(0, 0, 98), v: v!.narrow(0, 0, 98), rope: rope!.narrow(0, 0, 98) }
    const alone = call({ scale: operands.scale, q: q!.narrow(0, 2, 1), keys, mask: masks.causal() })
    const cut = (t: Tensor): Tensor<'f32'> => t.narrow(0, 2, 1).clone() as Tensor<'f32'>
    expectSame(await runDense(device, alone), { out: cut(whole.out), lse: cut(whole.lse) })
  })

  test('no tokens', async () => {
    const nothing = denseOperands({ queries: [0], keys: [3], heads: 2 })
    expect((await runDense(device, call({ ...nothing, mask: masks.causal() }))).out.size).toBe(0)
  })
})

const planOf = (variant: DenseVariant, rest: object) => (target: Parameters<typeof densePrefill.plan>[0]) => {
  const c: DenseCase = { variant, queries: [20], keys: [20], heads: 1, nope: 128, vDim: 128 }
  return densePrefill.plan(target, call({ ...pagedOperands(denseOperands(c), c, { pageSize: 8 }), ...rest }))
}
const half = fromFloats('f16', [1, 20, 20], new Float32Array(400))

assembles({
  'bf16, causal': planOf('bf16', { mask: masks.causal() }),
  'blockscale, biased, capped, split': planOf('blockscale', {
    mask: masks.and(masks.or(masks.slidingWindow(3), masks.chunked(5)), masks.materialized(half)),
    scoreMod: softcap(3),
    partition: 2,
  }),
  'per-token scales, alibi': planOf('perTokenScale', { mask: masks.causalPadding(u32(4)), scoreMod: alibi(1) }),
})
