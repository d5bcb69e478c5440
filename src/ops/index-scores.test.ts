import { afterAll, describe, expect, test } from 'vitest'
import { filled, i32, pageKeys, randomScoring, u32 } from '../../test/index-cases.ts'
import { openCpuDevice } from '../cpu/device.ts'
import {
  DeviceError,
  DisposedError,
  DtypeError,
  MemoryError,
  OptionError,
  OverlapError,
  ShapeError,
  ValueError,
} from '../errors.ts'
import { tensor, zeros } from '../tensor/tensor.ts'
import { type IndexScoresArgs, indexScores } from './index-scores.ts'

const device = await openCpuDevice({ threads: 1 })
afterAll(() => device.dispose())

const scoring = randomScoring({ tokens: 6, keys: 10, heads: 4, depth: 32 })
const flat = { ...scoring, window: 'causal' } as const
const paged = pageKeys(scoring.keys, { pageSize: 4, lengths: [10] })
const pages = { ...scoring, keys: { ...paged, cacheLength: u32(4) }, window: 'causal' } as const
const planar = pageKeys(scoring.keys, { pageSize: 4, lengths: [10], format: 'planar' }).pool

type Loose = { readonly [K in keyof IndexScoresArgs]?: unknown } & Record<string, unknown>
type Refusal = readonly [name: string, change: Loose, type: new (...args: never[]) => Error, message: string]

const refuses = (base: IndexScoresArgs, change: Loose, type: Refusal[2], message: string): void => {
  const before = device.bytesInUse
  const call = (): unknown => indexScores(device, { ...base, ...change } as IndexScoresArgs)
  expect(call).toThrow(type)
  expect(call).toThrow(`indexScores: ${message}`)
  expect(device.bytesInUse).toBe(before)
}

describe('bad arguments are refused before anything is written', () => {
  const keys = (change: object): Loose => ({ keys: { ...scoring.keys, ...change } })
  const q = (heads: number, depth: number, dtype: 'e4m3' | 'f16' = 'e4m3'): Loose => ({
    q: zeros(dtype, [6, heads, depth]),
  })
  const cases: Refusal[] = [
    ['an unknown option', { kScale: 1 }, OptionError, 'kScale is an unknown option'],
    ['an unknown option of keys', keys({ scale: scoring.keys.scales }), OptionError, 'keys.scale is an unknown option'],
    ['no q', { q: undefined }, OptionError, 'q is missing'],
    ['a typed array as q', { q: new Uint8Array(768) }, DtypeError, 'q is Uint8Array'],
    ['q of f16', q(4, 32, 'f16'), DtypeError, 'q is f16; expected e4m3 or bf16 or f32'],
    ['no heads', q(0, 32), ShapeError, 'heads is 0'],
    ['129 heads', q(129, 32), ShapeError, 'heads is 129 (q [6, 129, 32]); expected 1..128'],
    ['depth 24', q(4, 24), ShapeError, 'depth is 24 (q [6, 4, 24]); expected 16..256, a multiple of 16'],
    ['depth 272', q(4, 272), ShapeError, 'depth is 272'],
    [
      'q without a token axis',
      { q: zeros('e4m3', [4, 32]) },
      ShapeError,
      'q is [4, 32]; expected [tokens, heads, depth]',
    ],
    ['no weights', { qScale: undefined }, OptionError, 'qScale is missing'],
    ['weights of bf16', { qScale: filled([6, 4], 1).cast('bf16') }, DtypeError, 'qScale is bf16; expected f32'],
    ['weights of five heads', { qScale: filled([6, 5], 1) }, ShapeError, 'qScale is [6, 5]; expected 4 heads'],
    ['no keys', { keys: undefined }, OptionError, 'keys is missing'],
    [
      'keys of another dtype',
      keys({ values: zeros('bf16', [10, 32]) }),
      DtypeError,
      'keys.values is bf16; expected e4m3',
    ],
    ['keys of another depth', keys({ values: zeros('e4m3', [10, 48]) }), ShapeError, 'keys.values is [10, 48]'],
    ['e4m3 keys without scales', keys({ scales: undefined }), OptionError, 'keys.scales is missing'],
    ['a scale short', keys({ scales: filled([9], 1) }), ShapeError, 'keys.scales is [9]; expected 10 keys'],
    ['no window', { window: undefined }, OptionError, "window is missing; expected 'causal', 'all' or { lo, hi }"],
    ['an unknown window', { window: 'sliding' }, OptionError, 'window is sliding'],
    ['a window without hi', { window: { lo: i32(0, 0, 0, 0, 0, 0) } }, OptionError, 'window.hi is missing'],
    [
      'a window of five tokens',
      { window: { hi: i32(1, 2, 3, 4, 5) } },
      ShapeError,
      'window.hi is [5]; expected 6 tokens',
    ],
    ['a window of f32', { window: { hi: filled([6], 1) } }, DtypeError, 'window.hi is f32; expected i32 or u32'],
    ['pool 0', { pool: 0 }, ValueError, 'pool is 0'],
    ['causal over contiguous pooled keys', { pool: 4 }, OptionError, 'window is causal'],
    ['a width below the keys', { width: 9 }, ValueError, 'width is 9; expected at least 10'],
    ['a fractional width', { width: 10.5 }, ValueError, 'width is 10.5'],
    ['fill as a number', { fill: 0 }, OptionError, 'fill is 0; expected true or false'],
    ['scores of f16', { dtype: 'f16' }, OptionError, 'dtype is f16; expected f32 or bf16'],
    ['two kinds of sequences', { rowOffsets: u32(0, 6), validLength: u32(6) }, OptionError, 'validLength is a tensor'],
    [
      'sequences without key offsets',
      { rowOffsets: u32(0, 3, 6) },
      OptionError,
      'keys.kvRowOffsets is missing; expected u32 [3]',
    ],
    [
      'padding that does not divide',
      { validLength: u32(1, 1, 1, 1) },
      ShapeError,
      'tokens is 6; expected a multiple of 4',
    ],
    [
      'a padded length past its rows',
      { validLength: u32(6, 7).narrow(0, 1, 1) },
      ValueError,
      'validLength[0] is 7; expected at most 6',
    ],
    ['a prompt longer than its bound', { maxPromptLen: 5 }, ValueError, 'maxPromptLen is 5; expected at least 6'],
    ['a host output', { into: { scores: zeros('f32', [6, 10]) } }, DeviceError, 'into.scores is a host tensor'],
  ]
  test.each(cases)('%s', (_, change, type, message) => refuses(flat, change, type, message))

  const pool = (change: object): Loose => ({ keys: { ...pages.keys, pool: { ...paged.pool, ...change } } })
  const table = (change: object): Loose => ({ keys: { ...pages.keys, ...change } })
  const pagedCases: Refusal[] = [
    ['a layer that is not there', pool({ layer: 1 }), ValueError, 'keys.pool.layer is 1; expected an integer in 0..0'],
    ['an unknown layout', pool({ format: 'rows' }), OptionError, 'keys.pool.format is rows; expected pools or planar'],
    ['another depth', pool({ depth: 128 }), ValueError, 'keys.pool.depth is 128; expected 32'],
    ['no scale pool', pool({ scales: undefined }), OptionError, 'keys.pool.scales is missing'],
    [
      'scales of another page size',
      pool({ scales: zeros('f32', [6, 1, 3]) }),
      ShapeError,
      'keys.pool.scales is [6, 1, 3]',
    ],
    [
      'planar blocks with scales',
      pool({ ...planar, scales: paged.pool.scales }),
      OptionError,
      'keys.pool.scales is a tensor',
    ],
    [
      'a block of no whole keys',
      pool({ ...planar, values: zeros('u8', [6, 1, 145]) }),
      ShapeError,
      'keys.pool.values is [6, 1, 145]; expected blocks of pageSize * 36 bytes',
    ],
    [
      'planar blocks that hold values',
      pool({ ...planar, values: paged.pool.values }),
      DtypeError,
      'keys.pool.values is e4m3; expected u8',
    ],
    ['no block table', table({ blockTable: undefined }), OptionError, 'keys.blockTable is missing'],
    [
      'a table for two sequences',
      table({ blockTable: zeros('u32', [2, 4]) }),
      ShapeError,
      'keys.blockTable is [2, 4]; expected [1, maxPages]',
    ],
    [
      'a block that the pool has not',
      table({ blockTable: tensor('u32', [1, 3], Uint32Array.of(0, 6, 1)) }),
      ValueError,
      'keys.blockTable[0, 1] is 6; expected a block of the pool, 0..5',
    ],
    ['lengths of i32', table({ cacheLength: i32(4) }), DtypeError, 'keys.cacheLength is i32; expected u32'],
    [
      'lengths past the table',
      table({ cacheLength: u32(11) }),
      ValueError,
      'keys.cacheLength[0] is 11; expected at most 16 keys in 4 pages of 4',
    ],
    ['keys past their bound', table({ maxKeys: 9 }), ValueError, 'keys.maxKeys is 9; expected at least 10'],
    ['lengthsIncludeNew as a number', table({ lengthsIncludeNew: 1 }), OptionError, 'keys.lengthsIncludeNew is 1'],
    ['lengths on the device, no width', table({ cacheLength: device.upload(u32(4)) }), OptionError, 'width is missing'],
  ]
  test.each(pagedCases)('paged keys: %s', (_, change, type, message) => refuses(pages, change, type, message))

  test('f32 and bf16 pools take no scales', () => {
    const f32 = randomScoring({ tokens: 6, keys: 10, heads: 4, depth: 32, dtype: 'f32' })
    const { pool: plain, blockTable } = pageKeys(f32.keys, { pageSize: 4, lengths: [10] })
    const base = { ...f32, keys: { pool: plain, blockTable, cacheLength: u32(4) }, window: 'causal' } as const
    refuses(
      base,
      { keys: { ...base.keys, pool: { ...plain, scales: paged.pool.scales } } },
      OptionError,
      'keys.pool.scales is a tensor; expected none for f32 keys',
    )
    refuses(base, { keys: { ...base.keys, pool: planar } }, OptionError, 'keys.pool.format is planar; expected pools')
  })
})

describe('offsets on the host: DP-07', () => {
  const cases: Refusal[] = [
    [
      'Int32Array',
      { rowOffsets: new Int32Array(2) },
      DtypeError,
      'rowOffsets is Int32Array; expected a tensor of u32 [batch + 1]',
    ],
    ['BigInt64Array', { rowOffsets: new BigInt64Array(2) }, DtypeError, 'rowOffsets is BigInt64Array'],
    ['Float64Array', { rowOffsets: new Float64Array(2) }, DtypeError, 'rowOffsets is Float64Array'],
    ['number[]', { rowOffsets: [0, 6] }, DtypeError, 'rowOffsets is [0, 6]'],
    ['a tensor of i32', { rowOffsets: i32(0, 6) }, DtypeError, 'rowOffsets is i32; expected u32'],
    [
      'a tensor of i64',
      { rowOffsets: tensor('i64', [2], BigInt64Array.of(0n, 6n)) },
      DtypeError,
      'rowOffsets is i64; expected u32',
    ],
    ['none at all', { rowOffsets: u32() }, ShapeError, 'batch + 1 is 0'],
    ['the first not 0', { rowOffsets: u32(1, 6) }, ValueError, 'rowOffsets[0] is 1; expected 0'],
    ['falling', { rowOffsets: u32(0, 4, 3, 2, 6) }, ValueError, 'rowOffsets[2] is 3; expected at least 4'],
    [
      'the last below the tokens',
      { rowOffsets: u32(0, 5) },
      ValueError,
      'rowOffsets[1] is 5; expected 6, the number of tokens',
    ],
    ['the last past the tokens', { rowOffsets: u32(0, 7) }, ValueError, 'rowOffsets[1] is 7'],
    [
      'key offsets that fall',
      { keys: { ...scoring.keys, kvRowOffsets: u32(0, 11, 10) }, rowOffsets: u32(0, 3, 6) },
      ValueError,
      'keys.kvRowOffsets[2] is 10; expected at least 11',
    ],
    [
      'key offsets short of the keys',
      { keys: { ...scoring.keys, kvRowOffsets: u32(0, 9) } },
      ValueError,
      'keys.kvRowOffsets[1] is 9; expected 10, the number of keys',
    ],
    [
      'key offsets of another batch',
      { keys: { ...scoring.keys, kvRowOffsets: u32(0, 5, 10) } },
      ShapeError,
      'keys.kvRowOffsets is [3]; expected [2], one more than batch',
    ],
  ]
  test.each(cases)('%s', (_, change, type, message) => refuses(flat, change, type, message))

  test('a batch of no sequences has no tokens', () => {
    const { q, qScale, keys } = randomScoring({ tokens: 0, keys: 0, heads: 4, depth: 32 })
    const none = { q, qScale, keys: { ...keys, kvRowOffsets: u32(0) }, rowOffsets: u32(0), window: 'causal' } as const
    expect(indexScores(device, none).scores.shape).toEqual([0, 0])
    refuses(flat, { rowOffsets: u32(0) }, ValueError, 'rowOffsets[0] is 0; expected 6')
  })
})

describe('tensors of the device', () => {
  test('an output of another shape, dtype or device, or over an input', async () => {
    await using other = await openCpuDevice({ threads: 1 })
    const into = (t: object): Loose => ({ into: { scores: t } })
    refuses(flat, into(device.alloc('f32', [6, 9])), ShapeError, 'into.scores is [6, 9]; expected [tokens, 10]')
    refuses(flat, into(device.alloc('bf16', [6, 10])), DtypeError, 'into.scores is bf16; expected f32')
    refuses(flat, into(other.alloc('f32', [6, 10])), DeviceError, 'into.scores is on cpu')
    const shared = device.alloc('f32', [6, 10])
    refuses(
      { ...flat, qScale: shared.narrow(1, 6, 4) as never },
      into(shared),
      OverlapError,
      'into.scores is memory of qScale',
    )
  })

  test('a disposed tensor', () => {
    const q = device.upload(scoring.q)
    q.dispose()
    refuses(flat, { q }, DisposedError, 'q is disposed e4m3 [6, 4, 32]')
  })

  test('scratch: named in the plan, within the budget, refused below what one tile needs', async () => {
    const big = randomScoring({ tokens: 2, keys: 1000, heads: 128, depth: 256 })
    await using tight = await openCpuDevice({ threads: 1, scratchBytes: 200_000 })
    await using tiny = await openCpuDevice({ threads: 1, scratchBytes: 65_536 })
    const args = { ...big, window: 'causal' } as const
    expect(indexScores.plan(device, args).scratchBytes).toBeLessThan(1 << 20)
    expect(indexScores.plan(tight, args).scratchBytes).toBeLessThanOrEqual(200_000)
    expect(() => indexScores(tiny, args)).toThrow(MemoryError)
  })

  test('the result names its axes', () => {
    expect(indexScores(device, flat).scores.dims).toEqual(['tokens', 'keys'])
  })
})
