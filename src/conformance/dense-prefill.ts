/** Conformance of `densePrefill`: variants, masks, score mods, layouts, sequences, splits, NaN. */

import type { Device } from '../device.ts'
import type { Mask } from '../kernels/dense-prefill/mask.ts'
import * as masks from '../kernels/dense-prefill/masks.ts'
import { densePrefillReference } from '../kernels/dense-prefill/reference.ts'
import { alibi, type ScoreMod, softcap } from '../kernels/dense-prefill/score-mods.ts'
import { type DensePrefillArgs, densePrefill } from '../ops/dense-prefill.ts'
import { latentLayouts } from '../tensor/cache-layout.ts'
import { fromFloats, type Tensor } from '../tensor/tensor.ts'
import { type ConformanceCase, judge, type Verdict } from './case.ts'
import { collect, ints, nans, normals, poisonedOutputs, scalesAbove } from './data.ts'
import {
  attentionBf16,
  attentionBlockScales,
  attentionF32,
  attentionLse,
  attentionNativeFp8,
  sameBits,
} from './gates.ts'
import { filledLatentPool } from './pools.ts'
import { type Random, seeded } from './random.ts'

const op = 'densePrefill'

type Variant = 'f32' | 'bf16' | 'blockscale' | 'per-token scale'
const variants: readonly Variant[] = ['f32', 'bf16', 'blockscale', 'per-token scale']

const outputGates = {
  f32: attentionF32,
  bf16: attentionBf16,
  blockscale: attentionBlockScales,
  'per-token scale': attentionNativeFp8,
}

const heads = 4
const kvHeads = 2
const nope = 32
const vDim = 48
const scale = (nope + 64) ** -0.5

type Call = Omit<DensePrefillArgs, 'into' | 'mask' | 'scale'>

/** Contiguous operands of a variant; what of the cached rows is not rope is NaN. */
function operands(random: Random, variant: Variant, tokens: number, keys: number): Call {
  const rows = <D extends 'f32' | 'bf16' | 'e4m3'>(dtype: D): { readonly nope: Tensor<D>; readonly v: Tensor<D> } => ({
    nope: normals(random, dtype, [keys, kvHeads, nope]),
    v: normals(random, dtype, [keys, kvHeads, vDim]),
  })
  if (variant === 'per-token scale')
    return {
      qNope: normals(random, 'e4m3', [tokens, heads, nope]),
      qRope: normals(random, 'bf16', [tokens, heads, 64]),
      qScale: scalesAbove(random, [tokens], 0.7),
      keys: { ...rows('e4m3'), rope: normals(random, 'bf16', [keys, 64]), scale: scalesAbove(random, [keys], 0.7) },
    } as Call
  const dtype = variant === 'f32' ? 'f32' : 'bf16'
  const rope = variant === 'blockscale' ? scaledRope(random, keys) : normals(random, dtype, [keys, 64])
  return { q: normals(random, dtype, [tokens, heads, nope + 64]), keys: { ...rows(dtype), rope } } as Call
}

/** 576-wide e4m3 rows under blocks of 48 columns: the rope columns lie in two blocks. */
function scaledRope(random: Random, keys: number) {
  const values = nans('e4m3', [keys, 576])
  const scales = nans('f32', [keys, 12])
  const rope = normals(random, 'e4m3', [keys, 64]).data
  const factors = scalesAbove(random, [keys, 2], 0.6).data
  for (let j = 0; j < keys; j++) {
    values.data.set(rope.subarray(64 * j, 64 * (j + 1)), 576 * j + 512)
    scales.data.set(factors.subarray(2 * j, 2 * (j + 1)), 12 * j + 10)
  }
  return { format: 'contiguous', values, scales, scaleBlock: 48 } as const
}

/** Out and lse of a call, from poison. */
async function run(
  device: Device,
  args: DensePrefillArgs,
  outDtype: 'f32' | 'bf16',
): Promise<{ out: Tensor; lse: Tensor }> {
  const tokens = (args.q ?? args.qNope).shape[0]!
  const width = 'pool' in args.keys.v ? args.keys.v.pool.shape[4]! : args.keys.v.shape[2]!
  const into = poisonedOutputs(device, { out: [outDtype, [tokens, heads, width]], lse: ['f32', [tokens, heads]] })
  densePrefill(device, { ...args, outDtype, into } as DensePrefillArgs)
  return collect(into)
}

const outDtypeOf = (variant: Variant): 'f32' | 'bf16' => (variant === 'f32' ? 'f32' : 'bf16')

async function againstReference(device: Device, variant: Variant, call: Call, rest: Rest): Promise<Verdict> {
  const args = { scale, ...call, ...rest } as DensePrefillArgs
  const { out, lse } = await run(device, args, outDtypeOf(variant))
  const ref = densePrefillReference(args)
  return judge(outputGates[variant](out, ref), attentionLse(lse, ref, { blockScales: variant === 'blockscale' }))
}

type Rest = Partial<DensePrefillArgs> & { readonly mask: Mask }

const bias = (dtype: 'f32' | 'bf16' | 'f16', shape: readonly number[]): Tensor<typeof dtype> => {
  const random = seeded(shape.length)
  const values = normals(random, 'f32', shape, 2).data.map(x => (x > 1.5 ? -Infinity : x))
  return fromFloats(dtype, shape, values)
}

/** Two sequences, of 1 and 3 queries over 40 and 17 keys. */
const tokens = 4
const keyCount = 57
const ragged = { rowOffsets: ints('u32', [3], [0, 1, 4]) }
const kvRowOffsets = ints('u32', [3], [0, 40, 57])

const raggedOperands = (seed: number, variant: Variant): Call => {
  const call = operands(seeded(seed), variant, tokens, keyCount)
  return { ...call, ...ragged, keys: { ...call.keys, kvRowOffsets } } as Call
}

const shownMasks: readonly (readonly [string, () => Mask])[] = [
  ['none', masks.none],
  ['causal', masks.causal],
  ['slidingWindow(7)', () => masks.slidingWindow(7)],
  ['slidingWindowBoth(5)', () => masks.slidingWindowBoth(5)],
  ['chunked(16)', () => masks.chunked(16)],
  ['chunkedCausal(16)', () => masks.chunkedCausal(16)],
  ['causalPadding', () => masks.causalPadding(ints('u32', [2], [33, 0]))],
  ['and(causal, chunked)', () => masks.and(masks.causal(), masks.chunked(12))],
  [
    'or(slidingWindow, causalPadding)',
    () => masks.or(masks.slidingWindow(3), masks.causalPadding(ints('u32', [2], [2, 4]))),
  ],
  ['materialized f32', () => masks.materialized(bias('f32', [2, 3, 40]))],
  ['materialized bf16 a head, shorter than the keys', () => masks.materialized(bias('bf16', [2, heads, 2, 21]))],
  ['and(causal, materialized f16)', () => masks.and(masks.causal(), masks.materialized(bias('f16', [2, 3, 40])))],
]

const sink = fromFloats('f32', [heads], [0.5, -1e38, 3, -Infinity])

const maskCases: readonly ConformanceCase[] = shownMasks.flatMap(([name, mask], i) =>
  variants.map(variant => ({
    op,
    name: `${variant}, two sequences, mask ${name}${i % 2 === 0 ? ', sink' : ''}`,
    run: (device: Device) =>
      againstReference(device, variant, raggedOperands(100 + i, variant), {
        mask: mask(),
        ...(i % 2 === 0 ? { sink } : {}),
      }),
  })),
)

const modCases: readonly ConformanceCase[] = [alibi(heads), softcap(1.5)].flatMap((scoreMod: ScoreMod) =>
  variants.map(variant => ({
    op,
    name: `${variant}, score mod ${scoreMod.kind}`,
    run: (device: Device) =>
      againstReference(device, variant, raggedOperands(7, variant), { mask: masks.none(), scoreMod }),
  })),
)

/** nope, v and rope in the pages of pools that share a block table; all else is NaN. */
function pagedOperands(pageSize: number, layout: 'f32' | 'bf16' | 'packed656'): Call {
  const random = seeded(pageSize)
  const dtype = layout === 'f32' ? 'f32' : 'bf16'
  const lengths = [40, 17]
  const filled = filledLatentPool(random, latentLayouts[layout], { lengths, pageSize })
  const poolOf = (width: number): Tensor<'f32' | 'bf16'> => {
    const pool = nans(dtype, [filled.blocks, 2, pageSize, kvHeads, width])
    const rowSize = kvHeads * width
    for (const [b, length] of lengths.entries())
      for (let j = 0; j < length; j++) {
        const slot = filled.slotOf(b, j)
        const row = (Math.floor(slot / pageSize) * 2 + 1) * pageSize + (slot % pageSize)
        pool.data.set(normals(random, dtype, [rowSize]).data, row * rowSize)
      }
    return pool
  }
  return {
    q: normals(random, dtype, [tokens, heads, nope + 64]),
    ...ragged,
    keys: {
      nope: { pool: poolOf(nope), layer: 1 },
      v: { pool: poolOf(vDim), layer: 1 },
      rope: filled.pool,
      blockTable: filled.blockTable,
      cacheLength: ints('u32', [2], [39, 14]),
    },
  } as Call
}

const pagedCases: readonly ConformanceCase[] = (['f32', 'bf16', 'packed656'] as const).flatMap(layout =>
  [16, 7].map(pageSize => ({
    op,
    name: `paged keys, rope in ${layout} rows, pages of ${pageSize}, causal`,
    run: (device: Device) =>
      againstReference(device, layout === 'f32' ? 'f32' : 'bf16', pagedOperands(pageSize, layout), {
        mask: masks.causal(),
      }),
  })),
)

/** One sequence of four queries over 60 keys. */
const single = (variant: Variant, keys = 60): Call => operands(seeded(71), variant, tokens, keys)

/** NaN where a contiguous key's nope, v and rope lie. */
function blot(call: Call, from: number, to: number): Call {
  const { nope: k, v, rope } = call.keys as { nope: Tensor<'f32'>; v: Tensor<'f32'>; rope: Tensor<'f32'> }
  for (const t of [k, v, rope]) {
    const row = t.size / t.shape[0]!
    t.data.fill(NaN, from * row, to * row)
  }
  return call
}

const edgeCases: readonly ConformanceCase[] = [
  {
    op,
    name: 'f32, more queries than keys: queries before the first key give 0 and -inf',
    run: device => againstReference(device, 'f32', single('f32', 2), { mask: masks.causal(), sink }),
  },
  {
    op,
    name: 'f32, an empty sequence, no keys at all',
    run(device) {
      const call = operands(seeded(72), 'f32', 2, 0)
      return againstReference(device, 'f32', call, { mask: masks.none(), sink })
    },
  },
  {
    op,
    name: 'f32, NaN in keys that the window hides from all queries',
    run: device => againstReference(device, 'f32', blot(single('f32'), 0, 53), { mask: masks.slidingWindow(4) }),
  },
  {
    op,
    name: 'f32, NaN in a key reaches the queries that see it and no others',
    run: device => againstReference(device, 'f32', blot(single('f32'), 58, 59), { mask: masks.causal() }),
  },
  {
    op,
    name: 'bf16, padded sequences: rows past validLength are 0 and -inf',
    run(device) {
      const call = single('bf16')
      const keys = { ...call.keys, kvRowOffsets: ints('u32', [3], [0, 21, 60]) }
      const validLength = ints('u32', [2], [2, 1])
      return againstReference(device, 'bf16', { ...call, keys, validLength } as Call, { mask: masks.causal() })
    },
  },
  ...[2, 7].map(partition => ({
    op,
    name: `bf16, keys in ${partition} partitions`,
    run: (device: Device) =>
      againstReference(device, 'bf16', raggedOperands(73, 'bf16'), { mask: masks.causal(), sink, partition }),
  })),
]

const bitCases: readonly ConformanceCase[] = [
  {
    op,
    name: 'schedulers give the same bits, and so does the same call again',
    async run(device) {
      const args = { ...raggedOperands(81, 'bf16'), mask: masks.causal(), scale } as DensePrefillArgs
      const first = await run(device, args, 'bf16')
      const reports = []
      for (const scheduler of ['transient', 'persistent', 'queued'] as const) {
        const { out, lse } = await run(device, { ...args, scheduler }, 'bf16')
        reports.push(sameBits(out, first.out, scheduler), sameBits(lse, first.lse, `lse, ${scheduler}`))
      }
      return judge(...reports)
    },
  },
  {
    op,
    name: 'a NaN head leaves the bits of its sibling alone',
    async run(device) {
      const call = single('f32')
      const args = { ...call, mask: masks.causal(), scale } as DensePrefillArgs
      const clean = await run(device, args, 'f32')
      const q = (args.q as Tensor<'f32'>).clone()
      for (let t = 0; t < tokens; t++) q.data[(t * heads + 1) * (nope + 64)] = NaN
      const poisonedHead = await run(device, { ...args, q } as DensePrefillArgs, 'f32')
      const others = [0, 2, 3].map(h =>
        sameBits(poisonedHead.out.select(1, h), clean.out.select(1, h), `head ${h} of out`),
      )
      return judge(...others)
    },
  },
]

export const densePrefillCases: readonly ConformanceCase[] = [
  ...maskCases,
  ...modCases,
  ...pagedCases,
  ...edgeCases,
  ...bitCases,
]
