import { afterAll, beforeAll, describe, test } from 'vitest'
import { denseCase, slotList, sparseCase } from '../../test/latent-cases.ts'
import { type Refusal, refuses } from '../../test/refusals.ts'
import { ints } from '../conformance/data.ts'
import { type CpuDevice, openCpuDevice } from '../cpu/device.ts'
import { latentLayouts } from '../tensor/cache-layout.ts'
import { allocLatentPool } from '../tensor/pool-alloc.ts'
import { zeros } from '../tensor/tensor.ts'
import { type DenseDecodeArgs, denseDecode } from './dense-decode.ts'
import { type SparseDecodeArgs, sparseDecode } from './sparse-decode.ts'

let device: CpuDevice
beforeAll(async () => {
  device = await openCpuDevice({ threads: 1 })
})
afterAll(() => device.dispose())

const extents = { blocks: 2, layers: 1, pageSize: 4 }
const pool = (name: keyof typeof latentLayouts) => allocLatentPool(latentLayouts[name], extents, zeros)
const f32 = (...shape: number[]) => zeros('f32', shape)

const { args: sparse, positions } = sparseCase({ lengths: [20, 9], queries: 2, heads: 4, topk: 6 })
const { args: dense } = denseCase({ lengths: [20, 9], queries: 2, heads: 4 })

describe('sparseDecode refuses', () => {
  const cacheLength = ints('u32', [2], [18, 7])

  test.each<Refusal>([
    ['9 queries', { q: zeros('bf16', [2, 9, 4, 576]) }, 'E_SHAPE', 'queries is 9 (q [2, 9, 4, 576]); expected 1..8'],
    ['no queries', { q: zeros('bf16', [2, 0, 4, 576]) }, 'E_SHAPE', 'queries is 0'],
    [
      'q of three axes',
      { q: zeros('bf16', [2, 4, 576]) },
      'E_SHAPE',
      'q is [2, 4, 576]; expected [batch, queries, heads, width]',
    ],
    [
      'lists of other queries',
      { indices: slotList([2, 3, 6], new Array<number>(36).fill(0)) },
      'E_SHAPE',
      'indices is [2, 3, 6]; expected 2 queries',
    ],
    [
      'shared lists with a length per query',
      { indices: slotList([2, 6], new Array<number>(12).fill(0)), topkLength: ints('i32', [2, 2], [1, 1, 1, 1]) },
      'E_SHAPE',
      'topkLength is [2, 2]; expected [batch]',
    ],
    [
      'positions without cacheLength',
      { logicalIndices: positions },
      'E_OPTION',
      'cacheLength is missing; expected u32 [batch]',
    ],
    [
      'cacheLength without positions',
      { cacheLength },
      'E_OPTION',
      'logicalIndices is missing; expected i32 or u32 [batch, queries, topk]',
    ],
    [
      'SA-13: slots as positions',
      { logicalIndices: sparse.indices, cacheLength },
      'E_SPACE',
      'logicalIndices is slot; expected logical indices',
    ],
    ['SA-13: positions as slots', { indices: positions }, 'E_SPACE', 'indices is logical; expected slot indices'],
    [
      'signed lengths',
      { logicalIndices: positions, cacheLength: ints('i32', [2], [1, 1]) },
      'E_DTYPE',
      'cacheLength is i32; expected u32',
    ],
    [
      'validLength beyond the queries',
      { validLength: ints('u32', [2], [2, 3]) },
      'E_VALUE',
      'validLength[1] is 3; expected at most 2, the rows of a sequence',
    ],
    [
      'validLength of another batch',
      { validLength: ints('u32', [3], [1, 1, 1]) },
      'E_SHAPE',
      'validLength is [3]; expected 2 batch',
    ],
    [
      'batchInvariant of another type',
      { batchInvariant: 1 },
      'E_OPTION',
      'batchInvariant is 1; expected true or false',
    ],
    [
      'an extra cache without a list',
      { extra: { cache: sparse.cache } },
      'E_OPTION',
      'extra.indices is missing; expected i32 or u32 [batch, queries, extra.topk]',
    ],
    [
      'an unknown member of extra',
      { extra: { cache: sparse.cache, indices: sparse.indices, sink: 1 } },
      'E_OPTION',
      'extra.sink is an unknown option',
    ],
    [
      'an extra cache of another dtype',
      { extra: { cache: pool('f32'), indices: sparse.indices } },
      'E_DTYPE',
      'extra.cache.values is f32; expected bf16 or e4m3',
    ],
    [
      'extra lists of positions',
      { extra: { cache: sparse.cache, indices: positions } },
      'E_SPACE',
      'extra.indices is logical; expected slot indices',
    ],
    ['63 sinks', { sink: f32(63) }, 'E_SHAPE', 'sink is [63]; expected 4 heads'],
    ['no scale', { scale: undefined }, 'E_OPTION', 'scale is missing'],
  ])('%s', (_, args, code, message) =>
    refuses(
      device,
      () => sparseDecode(device, { ...sparse, ...args } as SparseDecodeArgs),
      code,
      `sparseDecode: ${message}`,
    ),
  )
})

describe('denseDecode refuses', () => {
  test.each<Refusal>([
    ['9 queries', { q: zeros('bf16', [2, 9, 4, 576]) }, 'E_SHAPE', 'queries is 9'],
    ['no block table', { blockTable: undefined }, 'E_OPTION', 'blockTable is missing; expected u32 [2, maxPages]'],
    [
      'a table of another batch',
      { blockTable: ints('u32', [3, 1], [0, 0, 0]) },
      'E_SHAPE',
      'blockTable is [3, 1]; expected [2, maxPages]',
    ],
    ['a signed table', { blockTable: ints('i32', [2, 3], []) }, 'E_DTYPE', 'blockTable is i32; expected u32'],
    ['no lengths', { cacheLength: undefined }, 'E_OPTION', 'cacheLength is missing; expected u32 [2]'],
    [
      'lengths beyond the table',
      { cacheLength: ints('u32', [2], [49, 9]) },
      'E_VALUE',
      'cacheLength[0] is 49; expected at most 48 keys in 3 pages of 16',
    ],
    [
      'new keys beyond the table',
      { lengthsIncludeNew: false, cacheLength: ints('u32', [2], [47, 9]) },
      'E_VALUE',
      'cacheLength[0] is 47; expected at most 48 keys',
    ],
    [
      'a page that is no block',
      { blockTable: ints('u32', [2, 3], [0, 1, 0, 99, 0, 0]) },
      'E_VALUE',
      'blockTable[1, 0] is 99; expected a block of the pool, 0..3',
    ],
    [
      'maxKeys below a sequence',
      { maxKeys: 19 },
      'E_VALUE',
      'maxKeys is 19; expected at least 20, the longest sequence',
    ],
    ['index lists', { indices: sparse.indices }, 'E_OPTION', 'indices is an unknown option'],
    ['causal of another type', { causal: 'yes' }, 'E_OPTION', 'causal is yes; expected true or false'],
    [
      'lengthsIncludeNew of another type',
      { lengthsIncludeNew: 1 },
      'E_OPTION',
      'lengthsIncludeNew is 1; expected true or false',
    ],
  ])('%s', (_, args, code, message) =>
    refuses(
      device,
      () => denseDecode(device, { ...dense, ...args } as DenseDecodeArgs),
      code,
      `denseDecode: ${message}`,
    ),
  )
})
