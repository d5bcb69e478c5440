import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { attentionF32, attentionLse, countPoison, expectGate } from '../../../test/gates.ts'
import {
  expectLatent,
  expectSame,
  type HostResult,
  narrow,
  prefillCase,
  run,
  slotList,
} from '../../../test/latent-cases.ts'
import { type VariantName, variantNames, variants } from '../../../test/latent-variants.ts'
import { widened } from '../../../test/widened.ts'
import { poisonedOutputs, shuffled } from '../../conformance/data.ts'
import { type CpuDevice, openCpuDevice } from '../../cpu/device.ts'
import { mergeStates } from '../../ops/merge-states.ts'
import { type SparsePrefillArgs, sparsePrefill } from '../../ops/sparse-prefill.ts'
import type { LatentLayout, PlainLatentLayout } from '../../tensor/cache-layout.ts'
import type { LatentPool } from '../../tensor/cache-pool.ts'
import { allocLatentPool } from '../../tensor/pool-alloc.ts'
import { type Tensor, zeros } from '../../tensor/tensor.ts'
import { sparsePrefillReference } from './reference.ts'

let device: CpuDevice
beforeAll(async () => {
  device = await openCpuDevice({ threads: 1 })
})
afterAll(() => device.dispose())

const prefill = (args: SparsePrefillArgs): Promise<HostResult> => run(device, sparsePrefill, args)
const slotsOf = ({ indices }: SparsePrefillArgs): number[] => Array.from((indices as Tensor<'i32'>).codes())

/** The arguments of tokens `first .. first + count - 1`. */
const tokens = (args: SparsePrefillArgs, first: number, count: number): SparsePrefillArgs => ({
  ...args,
  q: args.q.narrow(0, first, count),
  qScale: args.qScale?.narrow(0, first, count) as Tensor<'f32'> | undefined,
  indices: args.indices.narrow(0, first, count) as SparsePrefillArgs['indices'],
  topkLength: args.topkLength?.narrow(0, first, count) as Tensor<'i32'> | undefined,
})

describe.each(variantNames)('%s', variant => {
  const { args, random } = prefillCase({ variant, tokens: 4, heads: 6, topk: 100 })

  test('a head among poisoned siblings keeps its bits', async () => {
    const clean = await prefill(args)
    const q = (args.q as Tensor).clone()
    const codes = q.data as Uint8Array
    const bytes = new Uint8Array(codes.buffer)
    const headBytes = bytes.length / (4 * 6)
    for (let row = 0; row < 24; row++)
      if (row % 6 !== 2) bytes.fill(row % 2 === 0 ? 0xff : 0x7e, row * headBytes, (row + 1) * headBytes)
    expectSame(narrow(await prefill({ ...args, q }), 1, 2), narrow(clean, 1, 2))
  })

  test('a token alone = the token in a batch; 20 runs; 1 and 2 threads', async () => {
    const batch = await prefill(args)
    for (let t = 0; t < 4; t++) expectSame(await prefill(tokens(args, t, 1)), narrow(batch, 0, t))
    await using two = await openCpuDevice({ threads: 2 })
    for (let i = 0; i < 20; i++) expectSame(await run(two, sparsePrefill, args), batch)
  })

  test('the order of a list changes rounding only', async () => {
    const order = shuffled(random, 100)
    const list = slotsOf(args)
    const turned = Array.from({ length: 400 }, (_, i) => list[100 * Math.floor(i / 100) + order[i % 100]!]!)
    const all = { ...args, topkLength: undefined, outDtype: 'f32' } as const
    expectLatent(variant, await prefill({ ...all, indices: slotList([4, 100], turned) }), sparsePrefillReference(all))
  })

  test('strides of every tensor are free', async () => {
    const q = widened(device, args.q, 48)
    const qScale = args.qScale && widened(device, args.qScale, 3)
    const indices = widened(device, args.indices, 7)
    const values = widened(device, args.cache.values, args.cache.format === 'packed656' ? 112 : 16)
    const scales = args.cache.scales && widened(device, args.cache.scales, 2)
    const cache = { ...args.cache, values, scales }
    expectSame(await prefill({ ...args, q, qScale, indices, cache }), await prefill(args))
  })

  test('outputs of any stride receive the same bits, and nothing beside them is written', async () => {
    const plain = await prefill(args)
    const wide = poisonedOutputs(device, {
      out: [plain.out.dtype, [5, 9, 700]],
      lse: ['f32', [5, 9]],
      maxLogits: ['f32', [5, 11]],
    })
    const into = {
      out: wide.out.narrow(0, 1, 4).narrow(1, 2, 6).narrow(2, 100, 512),
      lse: wide.lse.narrow(0, 1, 4).narrow(1, 3, 6),
      maxLogits: wide.maxLogits.narrow(0, 0, 4).narrow(1, 1, 6),
    }
    sparsePrefill(device, { ...args, into })
    expectSame(
      { out: await into.out.read(), lse: await into.lse.read(), maxLogits: await into.maxLogits.read() },
      plain,
    )
    const written = 4 * 6
    for (const [t, size] of [
      [wide.lse, written],
      [wide.maxLogits, written],
      [wide.out, written * 512],
    ] as const)
      expect((await t.read()).size - countPoison(await t.read())).toBe(size)
  })
})

describe('rows of 512', () => {
  const layouts: readonly (readonly [VariantName, PlainLatentLayout])[] = variantNames.flatMap(name => {
    const { layout } = variants[name]
    return layout.format === 'plain' ? [[name, layout] as const] : []
  })

  test.each(layouts)('%s: the bits of rows padded with zeros to 576', async (variant, layout) => {
    const { args } = prefillCase({ variant, tokens: 2, heads: 5, topk: 70, pool: { layers: 1 } })
    const narrowQ = args.q.narrow(2, 0, 512) as Tensor
    const wideQ = zeros(args.q.dtype, [2, 5, 576])
    for (const [row, at] of [...narrowQ.rowOffsets()].entries())
      (wideQ.data as Uint8Array).set(narrowQ.data.subarray(at, at + 512) as Uint8Array, row * 576)
    const padded = await prefill({ ...args, q: wideQ, cache: withoutRope(args.cache, layout, 576) })
    const native = await prefill({ ...args, q: narrowQ, cache: withoutRope(args.cache, layout, 512) })
    expectSame(native, padded)
    expectLatent(
      variant,
      native,
      sparsePrefillReference({ ...args, q: narrowQ, cache: withoutRope(args.cache, layout, 512) }),
    )
  })
})

describe('a set in chunks', () => {
  test.each(['f32', 'fp8 blocks of 32', 'native fp8, per token'] as const)(
    '%s: parts merged = the whole',
    async variant => {
      const { args } = prefillCase({ variant, tokens: 3, heads: 5, topk: 150 })
      const whole = { ...args, topkLength: undefined, outDtype: 'f32' } as const
      const ref = sparsePrefillReference(whole)
      const parts = [
        [0, 1],
        [1, 70],
        [71, 79],
      ].map(([first, length]) =>
        sparsePrefill(device, {
          ...whole,
          sink: undefined,
          indices: args.indices.narrow(1, first!, length!) as SparsePrefillArgs['indices'],
        }),
      )
      const merged = mergeStates(device, { out: parts.map(p => p.out), lse: parts.map(p => p.lse), sink: args.sink })
      expectGate(attentionF32(await merged.out.read(), ref))
      expectGate(attentionLse(await merged.lse.read(), ref))
    },
  )
})

describe('PK-07: heads and list lengths', () => {
  const heads = [1, 3, 8, 16, 64, 128]
  const topks = [1, 63, 64, 65, 200]
  /** Many heads take the same loops over a list. */
  const few = [1, 65]

  test.each(heads)('%i heads: list lengths, 1 and 65 tokens', async count => {
    for (const topk of count < 64 ? topks : few) {
      const { args } = prefillCase({ tokens: 65, heads: count, topk, seed: topk })
      const many = await prefill(args)
      for (const t of [0, 1, 40, 64]) {
        const one = tokens(args, t, 1)
        const result = await prefill(one)
        expectSame(narrow(many, 0, t), result)
        expectLatent('bf16', result, sparsePrefillReference(one))
      }
    }
  })
})

/** The rows of a pool with other columns: the first 512 and, beyond them, zeros. Scales stay. */
function withoutRope(pool: LatentPool, layout: PlainLatentLayout, width: 512 | 576): LatentPool {
  const [blocks, layers, pageSize] = pool.values.shape as [number, number, number]
  const scaleBlock = layout.scaleBlock >= 576 ? width : layout.scaleBlock
  const shape: LatentLayout = { ...layout, width, scaleBlock }
  const made = allocLatentPool(shape, { blocks, layers, pageSize }, zeros)
  const [from, to] = [pool.values as Tensor, made.values as Tensor]
  for (const [row, at] of [...from.rowOffsets()].entries())
    (to.data as Uint8Array).set(from.data.subarray(at, at + 512) as Uint8Array, row * width)
  const [scales, kept] = [pool.scales as Tensor<'f32'> | undefined, made.scales as Tensor<'f32'> | undefined]
  if (scales !== undefined && kept !== undefined) {
    const [all, some] = [scales.shape[3]!, kept.shape[3]!]
    for (let row = 0; row < blocks * layers * pageSize; row++)
      kept.data.set(scales.data.subarray(row * all, row * all + some), row * some)
  }
  return { ...made, layer: pool.layer }
}
