/** Conformance of `sparsePrefill`: variants, lists, sinks, heads, NaN, scales. */

import type { Device } from '../device.ts'
import { sparsePrefillReference } from '../kernels/latent-attention/reference.ts'
import { type SparsePrefillArgs, sparsePrefill } from '../ops/sparse-prefill.ts'
import type { LatentPool } from '../tensor/cache-pool.ts'
import { latentRows } from '../tensor/host-rows.ts'
import { slots } from '../tensor/spaces.ts'
import { fromFloats, type Tensor, tensor, zeros } from '../tensor/tensor.ts'
import { both, type ConformanceCase, holds, judge, type Verdict } from './case.ts'
import { ints } from './data.ts'
import { sameBits } from './gates.ts'
import {
  bf16Variant,
  callLatent,
  f32Variant,
  judgeLatent,
  judgeMaxFp8,
  type LatentOutputs,
  type LatentVariant,
  latentQueries,
  latentVariants,
  nativeScaledVariant,
  nativeVariant,
  packedVariant,
  sinks,
  softmaxScale,
  tokenScaleVariant,
} from './latent.ts'
import { type FilledPool, filledLatentPool } from './pools.ts'
import { type Random, seeded } from './random.ts'

const op = 'sparsePrefill'

const call = (device: Device, args: SparsePrefillArgs): Promise<LatentOutputs> =>
  callLatent(device, sparsePrefill, args)

async function againstReference(device: Device, variant: LatentVariant, args: SparsePrefillArgs): Promise<Verdict> {
  return judgeLatent(variant, await call(device, args), sparsePrefillReference(args), device)
}

/** What no list entry may be taken for: each is ignored wherever it stands. */
const invalid = (slotCount: number): readonly number[] => [-1, slotCount, slotCount + 1, 0x7fff_ffff, -0x8000_0000, -64]

interface ListSpec {
  readonly tokens: number
  readonly topk: number
  readonly keys: number
  /** Whether every sixth entry is invalid. */
  readonly invalid: boolean
}

/** Lists with duplicates and, from `topkLength` on, slots whose rows are NaN. */
function lists(
  random: Random,
  { blocks, pageSize, slotOf }: FilledPool<LatentPool>,
  { tokens, topk, keys, invalid: withInvalid }: ListSpec,
  lengths?: readonly number[],
): Tensor<'i32'> {
  const bad = invalid(blocks * pageSize)
  const nanSlot = blocks * pageSize - 1
  const entries = Array.from({ length: tokens * topk }, (_, i) => {
    const [t, j] = [Math.floor(i / topk), i % topk]
    if (lengths !== undefined && j >= lengths[t]!) return nanSlot
    return withInvalid && j % 6 === 2 ? bad[(i + t) % bad.length]! : slotOf(0, random.int(keys))
  })
  return ints('i32', [tokens, topk], entries)
}

const keys = 130
const tokens = 3
const topk = 70

/** Three tokens of 70 entries each, the second cut to 33, the third to none; layer 1 of 2, a spare block of NaN. */
function mixedArgs(variant: LatentVariant, heads: number, pageSize: number): SparsePrefillArgs {
  const random = seeded(heads + pageSize)
  const filled = filledLatentPool(random, variant.layout, { lengths: [keys], pageSize })
  const lengths = [topk, 33, 0]
  return {
    ...latentQueries(random, variant, [tokens], heads),
    cache: filled.pool,
    indices: slots(lists(random, filled, { tokens, topk, keys, invalid: true }, lengths)),
    topkLength: ints('i32', [tokens], [9999, 33, -4]),
    scale: softmaxScale,
    sink: sinks(heads),
  }
}

const variantCases: readonly ConformanceCase[] = latentVariants.flatMap(variant =>
  [16, 7].map(pageSize => ({
    op,
    name: `${variant.name}, 5 heads, pages of ${pageSize}: invalid entries, duplicates, cut and empty lists, sinks`,
    run: (device: Device) => againstReference(device, variant, mixedArgs(variant, 5, pageSize)),
  })),
)

/** Plain lists without anything special. */
function plainArgs(variant: LatentVariant, heads: number, listed: number, sd = 1): SparsePrefillArgs {
  const random = seeded(heads * 7 + listed)
  const filled = filledLatentPool(random, variant.layout, { lengths: [keys], pageSize: 64, layers: 1, sd })
  return {
    ...latentQueries(random, variant, [2], heads, sd),
    cache: filled.pool,
    indices: slots(lists(random, filled, { tokens: 2, topk: listed, keys, invalid: false })),
    scale: softmaxScale,
  }
}

const shapeCases: readonly ConformanceCase[] = [
  ...[1, 16, 64, 128].map(heads => ({
    op,
    name: `bf16, ${heads} heads`,
    run: (device: Device) => againstReference(device, bf16Variant, plainArgs(bf16Variant, heads, 65)),
  })),
  ...[1, 64, 200].map(listed => ({
    op,
    name: `f32, lists of ${listed}`,
    run: (device: Device) => againstReference(device, f32Variant, plainArgs(f32Variant, 3, listed)),
  })),
  {
    op,
    name: 'bf16, u32 lists where 0xffffffff is no entry',
    run(device) {
      const args = mixedArgs(bf16Variant, 4, 16)
      const codes = Uint32Array.from((args.indices as Tensor<'i32'>).data)
      return againstReference(device, bf16Variant, { ...args, indices: slots(tensor('u32', [tokens, topk], codes)) })
    },
  },
  {
    op,
    name: 'bf16 operands, f32 out',
    run: device => againstReference(device, bf16Variant, { ...plainArgs(bf16Variant, 8, 80), outDtype: 'f32' }),
  },
  {
    op,
    name: 'f32, scores of hundreds: one key takes all weight',
    run: device => againstReference(device, f32Variant, { ...plainArgs(f32Variant, 4, 70), scale: 12 }),
  },
  ...[nativeVariant, nativeScaledVariant].map(variant => ({
    op,
    name: `${variant.name}, MAX's gate at its conditions`,
    async run(device: Device) {
      const args = plainArgs(variant, 16, 128, 0.5)
      const [actual, ref] = [await call(device, args), sparsePrefillReference(args)]
      return both(judgeLatent(variant, actual, ref, device), judgeMaxFp8(actual, ref))
    },
  })),
]

const nanCases: readonly ConformanceCase[] = [f32Variant, bf16Variant, tokenScaleVariant, packedVariant].map(
  variant => ({
    op,
    name: `${variant.name}, a NaN row makes the tokens that list it NaN and no other`,
    run(device: Device) {
      const args = plainArgs(variant, 6, 40)
      const list = (args.indices as Tensor<'i32'>).clone()
      const bad = list.data[3]!
      for (let j = 40; j < 80; j++) if (list.data[j] === bad) list.data[j] = -1
      const rows = latentRows(args.cache)
      rows.write(bad, new Float32Array(rows.width).fill(NaN))
      return againstReference(device, variant, { ...args, indices: slots(list) })
    },
  }),
)

/** Spec section 3: one key of 1.5 under the scale 1.005859375, q = e0, softmax scale 1. A rounded scale gives 1.5156. */
async function exactScale(device: Device, scaleBlock: number): Promise<Verdict> {
  const values = zeros('e4m3', [1, 1, 1, 576])
  values.data[0] = 0x3c
  const scales = fromFloats(
    'f32',
    [1, 1, 1, Math.ceil(576 / scaleBlock)],
    new Array(Math.ceil(576 / scaleBlock)).fill(1.005859375),
  )
  const q = zeros('bf16', [1, 1, 576])
  q.data[0] = 0x3f80
  const cache: LatentPool = { format: 'plain', values, scales, scaleBlock, layer: 0 }
  const { lse } = await call(device, { q, cache, indices: slots(ints('i32', [1, 1], [0])), scale: 1 })
  const value = lse.data[0]!
  const product = 1.5 * 1.005859375
  const close = (x: number): boolean => Math.abs(value - x) < 1e-5
  return holds(close(product) || (scaleBlock < 576 && close(1.5078125)), `lse ${value}, expected ${product}`)
}

const scaleCases: readonly ConformanceCase[] = [
  { op, name: 'a per-token scale is never rounded', run: device => exactScale(device, 576) },
  { op, name: 'a block scale is never rounded, only its product', run: device => exactScale(device, 128) },
]

/** Logits of 3e9, two of them the largest: the others' weights are 0, and no weight overflows. */
async function farLogits(device: Device, queries: 'bf16' | 'e4m3', rows: 'bf16' | 'e4m3'): Promise<Verdict> {
  const values = zeros(rows, [1, 1, 4, 576])
  for (const [row, first] of [3, 2.75, 3, -3].entries())
    values.data.set(fromFloats(rows, [2], [first, row]).data, row * 576)
  const q = zeros(queries, [1, 1, 576])
  q.data.set(fromFloats(queries, [1], [1]).data)
  const cache: LatentPool = { format: 'plain', values, scaleBlock: 0, layer: 0 }
  const { out, lse } = await call(device, { q, cache, indices: slots(ints('i32', [1, 4], [0, 1, 2, 3])), scale: 1e9 })
  const [a, b] = out.floats()
  const right = a === 3 && b === 1 && Math.abs(lse.data[0]! / 3e9 - 1) < 1e-6
  return holds(right, `out ${a}, ${b}, lse ${lse.data[0]}, expected 3, 1, 3e9`)
}

const farCases: readonly ConformanceCase[] = (
  [
    ['bf16', 'bf16'],
    ['bf16', 'e4m3'],
    ['e4m3', 'e4m3'],
  ] as const
).map(([queries, rows]) => ({
  op,
  name: `${queries} queries, ${rows} rows, logits of 3e9, two of them equal`,
  run: device => farLogits(device, queries, rows),
}))

/** The same rows, 576 wide with zeros for rope. */
function padded(args: SparsePrefillArgs): SparsePrefillArgs {
  const widen = (t: Tensor<'bf16'>): Tensor<'bf16'> => {
    const rows = t.size / 512
    const wide = zeros('bf16', [...t.shape.slice(0, -1), 576])
    for (let row = 0; row < rows; row++) wide.data.set(t.data.subarray(row * 512, (row + 1) * 512), row * 576)
    return wide
  }
  const { q, cache } = args
  return { ...args, q: widen(q as Tensor<'bf16'>), cache: { ...cache, values: widen(cache.values as Tensor<'bf16'>) } }
}

const allBits = (actual: LatentOutputs, expected: LatentOutputs, gate: string) =>
  (['out', 'lse', 'maxLogits'] as const).map(name => sameBits(actual[name], expected[name], `${gate}, ${name}`))

const bitCases: readonly ConformanceCase[] = [
  {
    op,
    name: 'a token alone has the bits of the token in a batch; so has a repeated call',
    async run(device) {
      const args = mixedArgs(packedVariant, 9, 16)
      const batch = await call(device, args)
      const alone = await call(device, {
        ...args,
        q: (args.q as Tensor).narrow(0, 1, 1),
        indices: slots((args.indices as Tensor<'i32'>).narrow(0, 1, 1)),
        topkLength: (args.topkLength as Tensor<'i32'>).narrow(0, 1, 1),
      })
      const row = (t: Tensor): Tensor => t.narrow(0, 1, 1)
      const inBatch = { out: row(batch.out), lse: row(batch.lse), maxLogits: row(batch.maxLogits) } as LatentOutputs
      return judge(
        ...allBits(await call(device, args), batch, 'the same call again'),
        ...allBits(alone, inBatch, 'token 1 alone'),
      )
    },
  },
  {
    op,
    name: 'bf16, rows without rope have the bits of rows padded with zeros',
    async run(device) {
      const args = plainArgs(latentVariants.find(({ name }) => name === 'bf16 without rope')!, 8, 90)
      return judge(...allBits(await call(device, args), await call(device, padded(args)), '512 against 576'))
    },
  },
  {
    op,
    name: 'bf16, a NaN head leaves the bits of the other heads alone',
    async run(device) {
      const args = plainArgs(bf16Variant, 4, 50)
      const q = (args.q as Tensor<'bf16'>).clone()
      for (const t of [0, 1]) q.data[(t * 4 + 1) * 576] = 0x7fc0
      const [clean, dirty] = [await call(device, args), await call(device, { ...args, q })]
      return judge(...[0, 2, 3].map(h => sameBits(dirty.out.select(1, h), clean.out.select(1, h), `head ${h} of out`)))
    },
  },
]

export const sparsePrefillCases: readonly ConformanceCase[] = [
  ...variantCases,
  ...shapeCases,
  ...nanCases,
  ...scaleCases,
  ...farCases,
  ...bitCases,
]
