/** Kernels of a layer: projections, and what comes between them. */

import { layerKeys } from '../ops/layer-keys.ts'
import { layerQueries } from '../ops/layer-queries.ts'
import { linear } from '../ops/linear.ts'
import { slots } from '../tensor/spaces.ts'
import { zeros } from '../tensor/tensor.ts'
import { depth, indexKeys, packed } from './device-pools.ts'
import type { ListedKernel } from './listed-kernel.ts'

const [tokens, eps] = [4, 1e-6]

/** Columns that are no multiple of 16 bytes, since no Hopper kernel takes those. */
const oddWidth = 511

const linears = (['bf16', 'e4m3'] as const).flatMap(dtype =>
  (['few', 'many'] as const).map(
    (tile): ListedKernel => ({
      name: `linear_${tile}_${dtype}`,
      entry: `linear_${tile}_${dtype}`,
      about: `Projection of bf16 rows, ${dtype} weight${dtype === 'e4m3' ? ' with 128 x 128 block scales' : ''}; for ${
        tile === 'few' ? 'up to 8 tokens' : 'more than 8 tokens'
      }.`,
      grid: 'x = tokenTiles * outputTiles * heads, y = 1',
      plan: d =>
        linear.plan(d, {
          x: zeros('bf16', [tile === 'few' ? tokens : 64, oddWidth]),
          weight: zeros(dtype, [256, oddWidth]),
          weightScale: dtype === 'e4m3' ? zeros('f32', [2, Math.ceil(oddWidth / 128)]) : undefined,
        }),
    }),
  ),
)

const manyLinears = (['bf16', 'f32'] as const).flatMap(outDtype =>
  ([128, 256] as const).map(
    (outputs): ListedKernel => ({
      name: `linear_sm90_many_${outDtype}_${outputs}`,
      entry: `linear_sm90_many_${outDtype}_${outputs}`,
      about: `Projection of bf16 rows, bf16 weight, ${outDtype} outputs, for more than 128 tokens; tiles of ${outputs} outputs.`,
      grid: 'x = 2 * items, or one block per multiprocessor where that is less; pairs stride over the items. y = 1',
      plan: d =>
        linear.plan(d, {
          x: zeros('bf16', [129, 64]),
          weight: zeros('bf16', [outputs === 128 ? 128 : 66 * 256, 64]),
          outDtype,
        }),
    }),
  ),
)

const fewLinears = ([8, 16, 32, 64, 128] as const).flatMap(count =>
  (
    [
      ['bf16', 1],
      ['f32', 8],
    ] as const
  ).map(
    ([outDtype, splits]): ListedKernel => ({
      name: `linear_sm90_few_${outDtype}_${count}_${splits}`,
      entry: `linear_sm90_few_${outDtype}_${count}_${splits}`,
      about: `Projection of up to ${count} bf16 rows, bf16 weight, ${outDtype} outputs; ${
        splits === 1 ? 'a block takes all columns' : `${splits} blocks share the columns`
      } of 128 outputs.`,
      grid: `x = ${splits === 1 ? '' : `${splits} * `}outputTiles * heads, y = 1`,
      plan: d =>
        linear.plan(d, { x: zeros('bf16', [count, 64 * splits]), weight: zeros('bf16', [128, 64 * splits]), outDtype }),
    }),
  ),
)

const angles = {
  cos: zeros('f32', [8, 32]),
  sin: zeros('f32', [8, 32]),
  mlaStyle: 'interleaved',
  indexerStyle: 'half-split',
} as const

/** What comes between the projections of a DeepSeek-V3.2 layer; their arguments lie on the device. */
const layers: readonly ListedKernel[] = [
  {
    name: 'layer_keys_packed656_e4m3',
    entry: 'layer_keys',
    about:
      'New tokens of a layer: normalised query, rows into packed rows of 656 bytes, keys into e4m3 keys; bf16 norms.',
    grid: 'x = tokens, y = 1',
    plan: d => {
      const f32 = (columns: number) => d.alloc('f32', [tokens, columns])
      const weight = (columns: number) => d.alloc('bf16', [columns])
      const rows = { q: f32(1536), kv: f32(576), key: f32(depth) }
      const weights = { qWeight: weight(1536), kvWeight: weight(512), keyWeight: weight(depth), keyBias: weight(depth) }
      const { cos, sin, ...styles } = angles
      const places = { positions: d.alloc('i32', [tokens]), slots: slots(d.upload(zeros('i32', [tokens]))) }
      const tables = { cos: d.upload(cos), sin: d.upload(sin), ...styles, ...places }
      const pools = { latent: packed(d), index: indexKeys(d) }
      return layerKeys.plan(d, {
        ...rows,
        ...weights,
        ...tables,
        ...pools,
        rmsEps: eps,
        layerNormEps: eps,
        outDtype: 'bf16',
      })
    },
  },
  {
    name: 'layer_queries_bf16',
    entry: 'layer_queries',
    about: 'Queries of a layer, bf16: rope of attention queries; rope, e4m3 codes and weights of indexer queries.',
    grid: 'x = tokens, y = ceil(heads / 32) + ceil(indexHeads / 32)',
    plan: d => {
      const { cos, sin, ...styles } = angles
      const bf16 = (heads: number, columns: number) => d.alloc('bf16', [tokens, heads, columns])
      const tables = { cos: d.upload(cos), sin: d.upload(sin), ...styles, positions: d.alloc('i32', [tokens]) }
      const queries = { q: bf16(128, 64), x: bf16(64, depth), weights: d.alloc('f32', [tokens, 64]) }
      return layerQueries.plan(d, { ...queries, ...tables, factor: 1, into: { out: bf16(128, 64) } })
    },
  },
]

export const layerKernels: readonly ListedKernel[] = [...linears, ...manyLinears, ...fewLinears, ...layers]
