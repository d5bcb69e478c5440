/** Kernels of the lightning indexer and of selection. */

import { indexScores } from '../ops/index-scores.ts'
import { remapIndices } from '../ops/remap-indices.ts'
import type { ContiguousIndexKeys, PagedIndexKeys, ScoringArgs } from '../ops/scoring-args.ts'
import { topK } from '../ops/top-k.ts'
import { logical } from '../tensor/spaces.ts'
import { tensor, zeros } from '../tensor/tensor.ts'
import type { ListedKernel } from './listed-kernel.ts'

type KeyDtype = 'e4m3' | 'bf16' | 'f32'

const [tokens, blocks, depth] = [16, 4, 128]
const keyCount = 256

const blockTable = () => tensor('u32', [1, blocks], Uint32Array.of(2, 0, 3, 1))
const slots = { blockTable: blockTable(), pageSize: 64, blocks }

/** Keys in pages of `pageSize`, of which the sequence had all but those of its query tokens before. */
const pagedKeys = (dtype: KeyDtype, pageSize: number, queries: number = tokens): PagedIndexKeys => ({
  pool: {
    format: 'pools',
    values: zeros(dtype, [blocks, 1, pageSize, depth]),
    scales: dtype === 'e4m3' ? zeros('f32', [blocks, 1, pageSize]) : undefined,
    depth,
    layer: 0,
  },
  blockTable: blockTable(),
  cacheLength: tensor('u32', [1], Uint32Array.of(blocks * pageSize - queries)),
})

const contiguousKeys = (dtype: KeyDtype): ContiguousIndexKeys => ({
  values: zeros(dtype, [keyCount, depth]),
  scales: dtype === 'e4m3' ? zeros('f32', [keyCount]) : undefined,
})

const scoring = (dtype: KeyDtype, heads: number, keys: ScoringArgs['keys'], queries: number = tokens): ScoringArgs => ({
  q: zeros(dtype, [queries, heads, depth]),
  qScale: zeros('f32', [queries, heads]),
  keys,
  window: 'causal',
})

const perToken = 'x = ceil(tokens / 128), y = 1'

const windows: readonly ListedKernel[] = [
  {
    name: 'token_windows_paged',
    entry: 'token_windows',
    about: 'Causal window of every query token over the pages of its one sequence.',
    grid: perToken,
    plan: d => indexScores.plan(d, scoring('bf16', 64, pagedKeys('bf16', 64))),
  },
  {
    name: 'token_windows_contiguous',
    entry: 'token_windows',
    about: 'Causal window of every query token over contiguous keys, several sequences by row offsets.',
    grid: perToken,
    plan: d =>
      indexScores.plan(d, {
        ...scoring('bf16', 64, {
          ...contiguousKeys('bf16'),
          kvRowOffsets: tensor('u32', [3], Uint32Array.of(0, 100, keyCount)),
        }),
        rowOffsets: tensor('u32', [3], Uint32Array.of(0, 6, tokens)),
      }),
  },
]

const hopper = [64, 32].flatMap(heads =>
  [false, true].flatMap((paged): ListedKernel[] => {
    const keys = paged ? pagedKeys('e4m3', 64) : contiguousKeys('e4m3')
    const about = `Indexer scores, ${heads / 2 + 1}..${heads} heads of depth 128, ${
      paged ? 'pages of 64 keys or a multiple' : 'contiguous keys'
    }; f32 scores, -inf outside the windows.`
    const suffix = paged ? '_paged' : ''
    const grid = 'x = one block per multiprocessor, or any other number: blocks share the key tiles evenly. y = 1'
    return [
      {
        name: `index_scores_sm90_h${heads}${suffix}`,
        entry: `index_scores_sm90_h${heads}`,
        about,
        grid,
        plan: d => indexScores.plan(d, scoring('e4m3', heads, keys)),
      },
      {
        name: `index_scores_sm90_h${heads}_few${suffix}`,
        entry: `index_scores_sm90_h${heads}_few`,
        about: `${about} For one or few tokens a sequence.`,
        grid,
        plan: d => indexScores.plan(d, scoring('e4m3', heads, keys, 1)),
      },
    ]
  }),
)

const groups: ListedKernel = {
  name: 'index_groups',
  entry: 'index_groups',
  about: 'Work list of the streaming indexer: groups of neighbouring tokens of a sequence.',
  grid: 'x = 1, y = 1',
  plan: d => indexScores.plan(d, scoring('e4m3', 32, contiguousKeys('e4m3'))),
}

/** Kernels of Blackwell: heads, query tokens of the call, and how its keys lie. */
const blackwellScores = (
  [
    ['resident', 64, tokens, false],
    ['resident', 64, tokens, true],
    ['resident', 64, 2, true],
    ['resident', 16, tokens, true],
    ['resident', 8, tokens + 1, true],
    ['resident', 4, 2 * tokens + 1, true],
    ['stream', 64, 2 * tokens, true],
    ['stream', 32, tokens, false],
    ['stream', 32, tokens, true],
  ] as const
).map(([structure, heads, queries, paged]): ListedKernel => {
  const oneTile = queries * heads <= 128
  return {
    name: `index_scores_sm100_${structure}_h${heads}${oneTile ? '_one_tile' : ''}${paged ? '_paged' : ''}`,
    entry: `index_scores_sm100_${structure}_h${heads}`,
    about: `Indexer scores, ${heads === 4 ? 1 : heads / 2 + 1}..${heads} heads of depth 128, ${
      paged ? 'pages of 64 keys or a multiple' : 'contiguous keys'
    }; f32 scores, -inf outside the windows. ${
      structure === 'stream'
        ? 'Keys stream past the queries of a group; reads the work list of index_groups.'
        : `Keys stay, ${oneTile ? `up to ${128 / heads}` : 'few'} tokens a sequence.`
    }`,
    grid:
      structure === 'stream'
        ? 'x = groups * parts, of at most ceil(tokens / T) + sequences groups. y = 1'
        : 'x = sequences * keyTiles * slices, y = 1',
    plan: d =>
      indexScores.plan(
        d,
        scoring('e4m3', heads, paged ? pagedKeys('e4m3', 64, queries) : contiguousKeys('e4m3'), queries),
      ),
  }
})

// Pages of 36 keys, since no kernel of one architecture takes those.
const portable = (['e4m3', 'bf16', 'f32'] as const).map(
  (dtype): ListedKernel => ({
    name: `index_scores_portable_${dtype}`,
    entry: `index_scores_portable_${dtype}`,
    about: 'Indexer scores, 64 heads of depth 128, pages of any size; f32 scores, -inf outside the windows.',
    grid: 'x = tokens, y = ceil(width / 128)',
    plan: d => indexScores.plan(d, scoring(dtype, 64, pagedKeys(dtype, 36))),
  }),
)

/** Rows of a listed call: more than a multiprocessor each, or few enough that blocks share a row. */
const [manyRows, fewRows] = [200, 2]

const hopperSelection: readonly ListedKernel[] = [
  ...(['f32', 'bf16'] as const).flatMap(dtype =>
    (['score', 'index'] as const).map(
      (order): ListedKernel => ({
        name: `top_k_sm90_${dtype}_by_${order}`,
        entry: `top_k_sm90_${dtype}_by_${order}`,
        about: `Exact top k, k up to 2048, of ${dtype} scores, ${order === 'score' ? 'best first' : 'ascending index'}.`,
        grid: 'x = rows, y = 1',
        plan: d => topK.plan(d, { scores: zeros(dtype, [manyRows, 512]), k: 2048, order }),
      }),
    ),
  ),
  {
    name: 'top_k_sm90_f32_by_score_to_slots',
    entry: 'top_k_sm90_f32_by_score',
    about: 'Exact top k, k up to 2048, of f32 scores, best first, as slots of a paged pool.',
    grid: 'x = rows, y = 1',
    plan: d => topK.plan(d, { scores: zeros('f32', [manyRows, 256]), k: 2048, slots }),
  },
  {
    name: 'top_k_sm90_f32_by_score_few',
    entry: 'top_k_sm90_f32_by_score_x8',
    about: 'Exact top k, k up to 2048, of long rows of f32 scores, best first; eight blocks share a row.',
    grid: 'x = 8 rows, y = 1',
    plan: d => topK.plan(d, { scores: zeros('f32', [fewRows, 262_144]), k: 2048 }),
  },
]

const rowsGrid = 'x = any number of blocks up to items, as many as the scratch `entries` has room for. y = 1'

const selection: readonly ListedKernel[] = [
  ...(['f32', 'bf16'] as const).flatMap(dtype =>
    (['score', 'index'] as const).map(
      (order): ListedKernel => ({
        name: `top_k_${dtype}_by_${order}`,
        entry: `top_k_${dtype}_by_${order}`,
        about: `Exact top k of whole rows of ${dtype} scores, ${order === 'score' ? 'best first' : 'ascending index'}.`,
        grid: rowsGrid,
        plan: d => topK.plan(d, { scores: zeros(dtype, [tokens, 512]), k: 64, order }),
      }),
    ),
  ),
  {
    name: 'top_k_f32_by_score_to_slots',
    entry: 'top_k_f32_by_score',
    about: 'Exact top k of whole rows of f32 scores, best first, as slots of a paged pool.',
    grid: rowsGrid,
    plan: d => topK.plan(d, { scores: zeros('f32', [tokens, 256]), k: 64, slots }),
  },
  {
    name: 'top_k_f32_by_entries',
    entry: 'top_k_f32_by_entries',
    about: 'Top k of each part of a long row; top_k_entries_by_score merges them.',
    grid: 'x = any number of blocks up to items = rows * splits. y = 1',
    plan: d => topK.plan(d, { scores: zeros('f32', [1, 65_536]), k: 2048 }),
  },
  {
    name: 'top_k_entries_by_score',
    entry: 'top_k_entries_by_score',
    about: 'Exact top k, best first, of the entries that top_k_f32_by_entries left.',
    grid: rowsGrid,
    plan: d => topK.plan(d, { scores: zeros('f32', [1, 65_536]), k: 2048 }),
  },
  {
    name: 'remap_indices',
    entry: 'remap_indices',
    about: 'Logical positions to slots of a paged pool, -1 for what has no page.',
    grid: 'x = ceil(rows / blockRows), y = ceil(width / blockColumns)',
    plan: d => remapIndices.plan(d, { indices: logical(zeros('i32', [tokens, 64])), slots }),
  },
]

export const indexKernels: readonly ListedKernel[] = [
  ...windows,
  groups,
  ...hopper,
  ...blackwellScores,
  ...portable,
  ...hopperSelection,
  ...selection,
]
