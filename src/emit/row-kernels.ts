/** Kernels on rows: normalisation, rotation, projection, conversion, and rows in and out of caches. */

import type { Device } from '../device.ts'
import { appendToCache } from '../ops/append-to-cache.ts'
import { cast } from '../ops/cast.ts'
import { gatherFromCache } from '../ops/gather-from-cache.ts'
import { hadamard } from '../ops/hadamard.ts'
import { layerNorm } from '../ops/layer-norm.ts'
import { multiply } from '../ops/multiply.ts'
import { quantize } from '../ops/quantize.ts'
import { rmsNorm } from '../ops/rms-norm.ts'
import { rope } from '../ops/rope.ts'
import type { LatentPool } from '../tensor/cache-pool.ts'
import { slots } from '../tensor/spaces.ts'
import { zeros } from '../tensor/tensor.ts'
import { blocks, depth, indexKeys, packed, pageSize } from './device-pools.ts'
import type { ListedKernel } from './listed-kernel.ts'

const [tokens, width, eps] = [4, 512, 1e-6]

const elementGrid = 'x = ceil(rows / blockRows), y = ceil(width / blockColumns)'
const rowGrid = 'x = rows = tokens * heads, y = 1'

const norms = (['bf16', 'f32'] as const).flatMap((dtype): ListedKernel[] => [
  {
    name: `rms_norm_${dtype}`,
    entry: 'rms_norm',
    about: `Root-mean-square normalisation of ${dtype} rows, f32 weight.`,
    grid: rowGrid,
    plan: d => rmsNorm.plan(d, { x: zeros(dtype, [tokens, width]), weight: zeros('f32', [width]), eps }),
  },
  {
    name: `layer_norm_${dtype}`,
    entry: 'layer_norm',
    about: `Layer normalisation of ${dtype} rows, f32 weight and bias.`,
    grid: rowGrid,
    plan: d => {
      const [weight, bias] = [zeros('f32', [width]), zeros('f32', [width])]
      return layerNorm.plan(d, { x: zeros(dtype, [tokens, width]), weight, bias, eps })
    },
  },
  {
    name: `hadamard_${dtype}`,
    entry: 'hadamard',
    about: `Orthonormal Hadamard transform of ${dtype} rows of up to 4096 columns.`,
    grid: 'x = rows, y = width / length',
    plan: d => hadamard.plan(d, { x: zeros(dtype, [tokens, 128]) }),
  },
  ...(['interleaved', 'half-split'] as const).map(
    (style): ListedKernel => ({
      name: `rope_${style.replace('-', '_')}_${dtype}`,
      entry: 'rope',
      about: `Rotary position embedding of ${dtype} rows, ${style} pairs.`,
      grid: elementGrid,
      plan: d =>
        rope.plan(d, {
          x: zeros(dtype, [tokens, 64]),
          cos: zeros('f32', [8, 32]),
          sin: zeros('f32', [8, 32]),
          positions: zeros('u32', [tokens]),
          style,
          start: 0,
          length: 64,
        }),
    }),
  ),
  {
    name: `multiply_${dtype}`,
    entry: 'multiply',
    about: `Product of ${dtype} rows with f32 rows and a number.`,
    grid: elementGrid,
    plan: d => multiply.plan(d, { x: zeros(dtype, [tokens, width]), y: zeros('f32', [tokens, width]) }),
  },
])

const conversions: readonly ListedKernel[] = [
  ...(
    [
      ['f32', 'bf16'],
      ['bf16', 'f32'],
      ['f32', 'e4m3'],
      ['e4m3', 'f32'],
    ] as const
  ).map(
    ([from, to]): ListedKernel => ({
      name: `cast_${from}_${to}`,
      entry: `cast_${from}_${to}`,
      about: `${from} to ${to}, rounded once.`,
      grid: elementGrid,
      plan: d => cast.plan(d, { x: zeros(from, [tokens, width]), dtype: to }),
    }),
  ),
  {
    name: 'quantize_bf16_blocks',
    entry: 'quantize',
    about: 'bf16 rows to e4m3 codes with a scale for every block of up to 1024 columns.',
    grid: rowGrid,
    plan: d => quantize.plan(d, { x: zeros('bf16', [tokens, width]), scaleBlock: 128 }),
  },
  {
    name: 'quantize_bf16_rows',
    entry: 'quantize',
    about: 'bf16 rows to e4m3 codes with a scale for every block of more than 1024 columns, such as a row.',
    grid: rowGrid,
    plan: d => quantize.plan(d, { x: zeros('bf16', [tokens, 2048]), scaleBlock: 2048 }),
  },
]

const list = () => slots(zeros('i32', [tokens]))

const plain = (d: Device): LatentPool => ({
  format: 'plain',
  values: d.alloc('f32', [blocks, 1, pageSize, 576]),
  scaleBlock: 0,
  layer: 0,
})

const latentRows = () => zeros('bf16', [tokens, 576])
const appendGrid = 'x = tokens, y = 1'

const cacheRows: readonly ListedKernel[] = [
  ...(['nope', 'rope'] as const).flatMap((part, nth): ListedKernel[] => [
    {
      name: `append_packed656_${part}`,
      entry: 'append_to_cache',
      nth,
      about: `${part} columns of bf16 rows into packed rows of 656 bytes${part === 'rope' ? ', or bf16 rows into plain bf16 rows' : ''}.`,
      grid: appendGrid,
      plan: d => appendToCache.plan(d, { latent: packed(d), latentRows: latentRows(), slots: list() }),
    },
    {
      name: `gather_packed656_${part}`,
      entry: 'gather_from_cache',
      nth,
      about: `${part} columns of packed rows of 656 bytes as f32.`,
      grid: elementGrid,
      plan: d => gatherFromCache.plan(d, { latent: packed(d), slots: list() }),
    },
  ]),
  {
    name: 'append_f32',
    entry: 'append_to_cache',
    about: 'f32 rows into f32 rows.',
    grid: appendGrid,
    plan: d => appendToCache.plan(d, { latent: plain(d), latentRows: zeros('f32', [tokens, 576]), slots: list() }),
  },
  {
    name: 'append_index_e4m3',
    entry: 'append_to_cache',
    about: 'f32 indexer keys into e4m3 keys with a scale each.',
    grid: appendGrid,
    plan: d => appendToCache.plan(d, { index: indexKeys(d), indexRows: zeros('f32', [tokens, depth]), slots: list() }),
  },
]

export const rowKernels: readonly ListedKernel[] = [...norms, ...conversions, ...cacheRows]
