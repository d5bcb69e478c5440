/** Kernels of sparse attention over latent rows, but for portable decode. */

import type { Device } from '../device.ts'
import { sparseDecode } from '../ops/sparse-decode.ts'
import { type SparsePrefillArgs, sparsePrefill } from '../ops/sparse-prefill.ts'
import { slots } from '../tensor/spaces.ts'
import { zeros } from '../tensor/tensor.ts'
import {
  blocks,
  type CacheName,
  caches,
  heads,
  latentArgs,
  packedPool,
  pageSize,
  plainPool,
  portableEntry,
  portableGrid,
  scale,
  splitDecode,
  tokens,
  width,
} from './latent-calls.ts'
import type { ListedKernel } from './listed-kernel.ts'

const sparse = (Object.keys(caches) as CacheName[]).map(
  (name): ListedKernel => ({
    name: `sparse_attention_${name}`,
    entry: portableEntry(name),
    about: `Sparse MLA over lists of slots, up to 16 heads a block, no splits: ${caches[name].says}.`,
    grid: portableGrid,
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

/** The Hopper kernels over bf16 rows with rope and without: of 64 heads a block, and of few. */
const hopper = (
  [
    ['576', 64, 576, '64 heads a block'],
    ['512', 64, 512, '64 heads a block'],
    ['576_h16', 16, 576, '9 to 16 heads'],
    ['512_h16', 16, 512, '9 to 16 heads'],
    ['576_h32', 32, 576, '25 to 32 heads'],
  ] as const
).map(
  ([name, queryHeads, columns, says]): ListedKernel => ({
    name: `sparse_prefill_sm90_${name}`,
    entry: `sparse_prefill_sm90_${name}`,
    about: `Sparse MLA over lists of slots, ${says}, bf16 queries and rows of ${columns} columns.`,
    grid: persistent,
    plan: d =>
      sparsePrefill.plan(d, {
        q: zeros('bf16', [tokens, queryHeads, columns]),
        cache: { format: 'plain', values: zeros('bf16', [blocks, 1, pageSize, columns]), scaleBlock: 0, layer: 0 },
        indices: slots(zeros('i32', [tokens, 128])),
        scale,
      }),
  }),
)

/** Rows of e4m3 codes: name, pool, in words. */
const fp8Rows = [
  ['576_unit', () => plainPool('e4m3'), 'rows of e4m3'],
  ['576_token', () => plainPool('e4m3', width), 'rows of e4m3 with a scale each'],
  ['576_block128', caches.fp8.pool, 'rows of e4m3 with a scale per 128 columns'],
  ['packed656', packedPool, 'packed rows of 656 bytes'],
] as const

/** Lists of `topk` entries over rows of e4m3 codes. */
const fp8Call = (pool: SparsePrefillArgs['cache'], topk: number): SparsePrefillArgs => ({
  q: zeros('bf16', [tokens, heads, width]),
  cache: pool,
  indices: slots(zeros('i32', [tokens, topk])),
  scale,
})

/** The Hopper kernels that convert the rows of e4m3 codes that they gather. */
const hopperFp8 = fp8Rows.map(([rows, pool, says]): ListedKernel => {
  const name = `sparse_prefill_sm90_${rows === 'packed656' ? rows : `e4m3_${rows}`}`
  return {
    name,
    entry: name,
    about: `Sparse MLA over lists of slots, 64 heads a block, bf16 queries, ${says}.`,
    grid: persistent,
    plan: d => sparsePrefill.plan(d, fp8Call(pool(), 128)),
  }
})

/** Entries that name each row of the pool so often that all are converted first. */
const manyEntries = 512

const convertedPlan = (pool: () => SparsePrefillArgs['cache']) => (d: Device) =>
  sparsePrefill.plan(d, fp8Call(pool(), manyEntries))

/** The kernels that convert the rows of a pool, and the one over converted rows that still have a scale. */
const hopperConverted = [
  {
    name: 'count_pages_sm90',
    entry: 'count_pages_sm90_none',
    about: 'Entries of lists of slots that name each page of a pool, in every block.',
    grid: 'x = any, y = 1',
    plan: convertedPlan(() => plainPool('e4m3', width)),
  },
  {
    name: 'join_pages_sm90',
    entry: 'join_pages_sm90',
    about: 'Marks the pages that any block has counted entries of.',
    grid: 'x = any, y = 1',
    plan: convertedPlan(() => plainPool('e4m3', width)),
  },
  ...fp8Rows.map(
    ([rows, pool, says]): ListedKernel => ({
      name: `dequantize_rows_sm90_${rows}`,
      entry: `dequantize_rows_sm90_${rows}`,
      about: `bf16 rows in slot order of one layer of a pool: ${says}.`,
      grid: 'x = any, y = 1',
      plan: convertedPlan(pool),
    }),
  ),
  {
    name: 'sparse_prefill_sm90_576_token',
    entry: 'sparse_prefill_sm90_576_token',
    about:
      'Sparse MLA over lists of slots, 64 heads a block, bf16 queries, bf16 rows of 576 columns with a scale each.',
    grid: persistent,
    plan: convertedPlan(() => plainPool('e4m3', width)),
  },
]

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
    ['bf16', 'sparse_prefill_sm90_576_h16', '9 to 16 heads'],
    ['packed656', 'sparse_prefill_sm90_packed656', '64 heads a block'],
  ] as const
).map(
  ([name, entry, headsOf]): ListedKernel => ({
    name: `sparse_decode_sm90_${name}`,
    entry,
    about: `Sparse MLA over parts of lists of slots, left for merge_splits, ${headsOf}: ${caches[name].says}.`,
    grid: 'x = min(multiprocessors, tokens * groups * parts), y = 1',
    plan: d => sparseDecode.plan(d, splitDecode(name)),
  }),
)

export const sparseKernels: readonly ListedKernel[] = [
  ...sparse,
  ...hopper,
  ...hopperFp8,
  ...hopperConverted,
  ...hopperParts,
  ...hopperNative,
  ...blackwell,
]
