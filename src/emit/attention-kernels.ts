/** Kernels of attention: latent (absorbed), dense prefill, and the merges of partial results. */

import { causal } from '../kernels/dense-prefill/masks.ts'
import { alibi } from '../kernels/dense-prefill/score-mods.ts'
import { denseDecode } from '../ops/dense-decode.ts'
import { type DensePrefillArgs, densePrefill } from '../ops/dense-prefill.ts'
import { mergeStates } from '../ops/merge-states.ts'
import { type SparseDecodeArgs, sparseDecode } from '../ops/sparse-decode.ts'
import { type SparsePrefillArgs, sparsePrefill } from '../ops/sparse-prefill.ts'
import type { LatentPool } from '../tensor/cache-pool.ts'
import { slots } from '../tensor/spaces.ts'
import { tensor, zeros } from '../tensor/tensor.ts'
import type { ListedKernel } from './listed-kernel.ts'

const [tokens, heads, blocks, pageSize, width] = [4, 16, 8, 64, 576]
const scale = 192 ** -0.5

const plainPool = (dtype: 'f32' | 'bf16' | 'e4m3', scaleBlock = 0): LatentPool => ({
  format: 'plain',
  values: zeros(dtype, [blocks, 1, pageSize, width]),
  scales: scaleBlock === 0 ? undefined : zeros('f32', [blocks, 1, pageSize, Math.ceil(width / scaleBlock)]),
  scaleBlock,
  layer: 0,
})
const packedPool = (): LatentPool => ({
  format: 'packed656',
  values: zeros('u8', [blocks, 1, pageSize, 656]),
  scaleBlock: 128,
  layer: 0,
})

/** How a latent kernel is called with each cache. */
const caches = {
  f32: { q: 'f32', pool: () => plainPool('f32'), says: 'f32 queries and rows' },
  bf16: { q: 'bf16', pool: () => plainPool('bf16'), says: 'bf16 queries and rows' },
  fp8: { q: 'bf16', pool: () => plainPool('e4m3', 128), says: 'bf16 queries, e4m3 rows with a scale per 128 columns' },
  packed656: { q: 'bf16', pool: packedPool, says: 'bf16 queries, packed rows of 656 bytes' },
  e4m3: { q: 'e4m3', pool: () => plainPool('e4m3', width), says: 'e4m3 queries and rows with a scale each' },
} as const
type CacheName = keyof typeof caches
const cacheNames = Object.keys(caches) as CacheName[]

const latentArgs = (name: CacheName, axes: readonly number[]) => {
  const { q, pool } = caches[name]
  return {
    q: zeros(q, [...axes, heads, width]),
    qScale: q === 'e4m3' ? zeros('f32', [...axes, heads]) : undefined,
    cache: pool(),
    scale,
  }
}

const entryOf = (name: CacheName): string => `latent_attention_portable_${caches[name].q}`
const latentGrid = 'x = tokens * splits, y = ceil(heads / 16)'
const oneRow = 'x = tokens * heads, y = 1'

/** Few tokens with long lists, whose keys are split. */
const splitDecode = (name: CacheName): SparseDecodeArgs => ({
  ...latentArgs(name, [1, 1]),
  indices: slots(zeros('i32', [1, 1, 2048])),
})

const sparse = cacheNames.map(
  (name): ListedKernel => ({
    name: `sparse_attention_${name}`,
    entry: entryOf(name),
    about: `Sparse MLA over lists of slots, up to 16 heads a block, no splits: ${caches[name].says}.`,
    grid: latentGrid,
    // Only the portable kernels take a negative scale, or queries at odd strides.
    plan: d =>
      sparsePrefill.plan(d, {
        ...latentArgs(name, [tokens]),
        q: zeros(caches[name].q, [tokens, heads, width + 1]).narrow(2, 0, width),
        indices: slots(zeros('i32', [tokens, 128])),
        scale: -scale,
      }),
  }),
)

const persistent = 'x = min(multiprocessors, tokens * groups), y = 1'

/** The Hopper kernel over bf16 rows with rope and without. */
const hopper = ([576, 512] as const).map(
  (columns): ListedKernel => ({
    name: `sparse_prefill_sm90_${columns}`,
    entry: `sparse_prefill_sm90_${columns}`,
    about: `Sparse MLA over lists of slots, 64 heads a block, bf16 queries and rows of ${columns} columns.`,
    grid: persistent,
    plan: d =>
      sparsePrefill.plan(d, {
        q: zeros('bf16', [tokens, heads, columns]),
        cache: { format: 'plain', values: zeros('bf16', [blocks, 1, pageSize, columns]), scaleBlock: 0, layer: 0 },
        indices: slots(zeros('i32', [tokens, 128])),
        scale,
      }),
  }),
)

/** The Hopper kernels over rows of e4m3 codes, by the layout of the rows. */
const hopperFp8 = (
  [
    ['e4m3_576_unit', () => plainPool('e4m3'), 'rows of e4m3'],
    ['e4m3_576_token', () => plainPool('e4m3', width), 'rows of e4m3 with a scale each'],
    ['e4m3_576_block128', caches.fp8.pool, 'rows of e4m3 with a scale per 128 columns'],
    ['packed656', packedPool, 'packed rows of 656 bytes'],
  ] as const
).map(
  ([name, pool, says]): ListedKernel => ({
    name: `sparse_prefill_sm90_${name}`,
    entry: `sparse_prefill_sm90_${name}`,
    about: `Sparse MLA over lists of slots, 64 heads a block, bf16 queries, ${says}.`,
    grid: persistent,
    plan: d =>
      sparsePrefill.plan(d, {
        q: zeros('bf16', [tokens, heads, width]),
        cache: pool(),
        indices: slots(zeros('i32', [tokens, 128])),
        scale,
      }),
  }),
)

/** Native fp8: name, columns of a row, columns under a scale, in words. */
const nativeRows = [
  ['576', 576, 0, 'rows of 576 columns'],
  ['512', 512, 0, 'rows of 512 columns'],
  ['scaled', 576, width, 'rows of 576 columns, a scale for each and for each query'],
] as const

const nativeArgs = (queryHeads: number, columns: 512 | 576, scaleBlock: number): SparsePrefillArgs => ({
  q: zeros('e4m3', [tokens, queryHeads, columns]),
  qScale: scaleBlock > 0 ? zeros('f32', [tokens, queryHeads]) : undefined,
  cache: {
    format: 'plain',
    values: zeros('e4m3', [blocks, 1, pageSize, columns]),
    scales: scaleBlock > 0 ? zeros('f32', [blocks, 1, pageSize, 1]) : undefined,
    scaleBlock,
    layer: 0,
  },
  indices: slots(zeros('i32', [tokens, 256])),
  scale,
})

/** The Hopper kernel over e4m3 queries and rows. */
const hopperNative = nativeRows.map(
  ([name, columns, scaleBlock, says]): ListedKernel => ({
    name: `sparse_prefill_native_sm90_${name}`,
    entry: 'sparse_prefill_native_sm90_h64',
    about: `Sparse MLA over lists of slots, 57 to 64 heads a block, e4m3 queries, weights and ${says}; bf16 out.`,
    grid: persistent,
    plan: d => sparsePrefill.plan(d, nativeArgs(64, columns, scaleBlock)),
  }),
)

/** The Blackwell kernel over e4m3 queries and rows. */
const blackwell = nativeRows.map(
  ([name, columns, scaleBlock, says]): ListedKernel => ({
    name: `sparse_prefill_native_sm100_${name}`,
    entry: 'sparse_prefill_native_sm100',
    about: `Sparse MLA over lists of slots, 64 heads a block, e4m3 queries, weights and ${says}; bf16 out.`,
    grid: 'x = tokens * groups, y = 1',
    plan: d => sparsePrefill.plan(d, nativeArgs(heads, columns, scaleBlock)),
  }),
)

/** The Hopper kernels where they leave parts of a list for merge_splits. */
const hopperParts = (
  [
    ['bf16', 'sparse_prefill_sm90_576'],
    ['packed656', 'sparse_prefill_sm90_packed656'],
  ] as const
).map(
  ([name, entry]): ListedKernel => ({
    name: `sparse_decode_sm90_${name}`,
    entry,
    about: `Sparse MLA over parts of lists of slots, left for merge_splits, 64 heads a block: ${caches[name].says}.`,
    grid: 'x = min(multiprocessors, tokens * groups * parts), y = 1',
    plan: d => sparseDecode.plan(d, splitDecode(name)),
  }),
)

const decode = (['bf16', 'packed656'] as const).flatMap((name): ListedKernel[] => [
  {
    name: `sparse_attention_${name}_split`,
    entry: entryOf(name),
    about: `Sparse MLA over lists of slots, up to 16 heads a block, splits left for merge_splits: ${caches[name].says}.`,
    grid: latentGrid,
    // Only the portable kernels take a negative scale.
    plan: d => sparseDecode.plan(d, { ...splitDecode(name), scale: -scale }),
  },
  {
    name: `dense_attention_${name}_split`,
    entry: entryOf(name),
    about: `MLA over all cached rows, up to 16 heads a block, splits left for merge_splits: ${caches[name].says}.`,
    grid: latentGrid,
    plan: d =>
      denseDecode.plan(d, {
        ...latentArgs(name, [1, 1]),
        blockTable: tensor(
          'u32',
          [1, blocks],
          Uint32Array.from({ length: blocks }, (_, i) => i),
        ),
        cacheLength: tensor('u32', [1], Uint32Array.of(blocks * pageSize - 1)),
      }),
  },
])

const merges: readonly ListedKernel[] = [
  ...(['bf16', 'f32'] as const).map(
    (dtype): ListedKernel => ({
      name: `merge_splits_${dtype}`,
      entry: 'merge_splits',
      about: `Partial results of attention whose keys were split, into ${dtype} rows.`,
      grid: oneRow,
      plan: d => sparseDecode.plan(d, splitDecode(dtype)),
    }),
  ),
  {
    name: 'merge_states_2_bf16',
    entry: 'merge_states_portable',
    about: 'Two bf16 attention results and their lse into one.',
    grid: oneRow,
    plan: d =>
      mergeStates.plan(d, {
        out: [0, 1].map(() => zeros('bf16', [tokens, heads, 512])),
        lse: [0, 1].map(() => zeros('f32', [tokens, heads])),
      }),
  },
]

const [denseTokens, nope, vDim, keyCount] = [16, 128, 128, 64]

const plainDense = (dtype: 'f32' | 'bf16', options: Partial<DensePrefillArgs> = {}): DensePrefillArgs =>
  ({
    q: zeros(dtype, [denseTokens, heads, nope + 64]),
    keys: {
      nope: zeros(dtype, [keyCount, heads, nope]),
      v: zeros(dtype, [keyCount, heads, vDim]),
      rope: zeros(dtype, [keyCount, 64]),
    },
    mask: causal(),
    scale,
    ...options,
  }) as DensePrefillArgs

const perTokenDense = (): DensePrefillArgs => ({
  qNope: zeros('e4m3', [denseTokens, heads, nope]),
  qRope: zeros('bf16', [denseTokens, heads, 64]),
  qScale: zeros('f32', [denseTokens]),
  keys: {
    nope: zeros('e4m3', [keyCount, heads, nope]),
    v: zeros('e4m3', [keyCount, heads, vDim]),
    rope: zeros('bf16', [keyCount, 64]),
    scale: zeros('f32', [keyCount]),
  },
  mask: causal(),
  scale,
})

const denseGrid = 'x = ceil(tokens * group / lanes) * splits, y = kv heads * slices; lanes 16 in this configuration'

const dense: readonly ListedKernel[] = [
  {
    name: 'token_spans',
    entry: 'token_spans',
    about: 'Where every query token stands among the contiguous keys of its one sequence, for the dense kernels.',
    grid: 'x = ceil(tokens / 128), y = 1',
    plan: d => densePrefill.plan(d, plainDense('bf16')),
  },
  {
    name: 'constants',
    entry: 'constants',
    about: 'Up to 64 numbers of the host into memory, such as the slopes of alibi.',
    grid: 'x = 1, y = 1',
    plan: d => densePrefill.plan(d, plainDense('bf16', { scoreMod: alibi(heads) })),
  },
  ...(['f32', 'bf16'] as const).map(
    (dtype): ListedKernel => ({
      name: `dense_prefill_causal_${dtype}`,
      entry: `dense_prefill_portable_${dtype}`,
      about: `Dense MLA prefill, causal, ${dtype}, contiguous keys, v of 65..128 columns, no splits.`,
      grid: denseGrid,
      plan: d => densePrefill.plan(d, plainDense(dtype)),
    }),
  ),
  {
    name: 'dense_prefill_causal_e4m3',
    entry: 'dense_prefill_portable_e4m3',
    about: 'Dense MLA prefill, causal, e4m3 with a scale per token and key, contiguous keys, v of 65..128 columns.',
    grid: denseGrid,
    plan: d => densePrefill.plan(d, perTokenDense()),
  },
]

export const attentionKernels: readonly ListedKernel[] = [
  ...sparse,
  ...hopper,
  ...hopperFp8,
  ...hopperParts,
  ...hopperNative,
  ...blackwell,
  ...decode,
  ...merges,
  ...dense,
]
