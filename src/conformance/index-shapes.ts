/**
 * Shapes at which kernels of indexer scoring have gone wrong elsewhere, for `check --full`: those of MAX's own tests
 * (research of its index kernels), with fewer tokens. Each crosses an edge of a tile: of 64 or 128 keys, or of 128
 * token-heads.
 */

import type { Device } from '../device.ts'
import { indexScoresReference } from '../kernels/index-scores/reference.ts'
import { type IndexScoresArgs, indexScores } from '../ops/index-scores.ts'
import { fromFloats, type Tensor } from '../tensor/tensor.ts'
import { both, type ConformanceCase, holds, judge, type Verdict } from './case.ts'
import { collect, ints, normals, poisonedOutputs, scalesAbove } from './data.ts'
import { compare } from './gate.ts'
import { indexScoresF32 } from './gates.ts'
import { bitsOf, poisoned } from './poison.ts'
import { filledIndexPool } from './pools.ts'
import { type Random, seeded } from './random.ts'

const op = 'indexScores'
const depth = 128

type Args = Omit<IndexScoresArgs, 'into'>

async function scoresOf(device: Device, args: Args, width: number): Promise<Tensor<'f32'>> {
  const into = poisonedOutputs(device, { scores: ['f32', [args.q.shape[0]!, width]] })
  indexScores(device, { ...args, into })
  return (await collect(into)).scores
}

async function againstReference(device: Device, args: Args): Promise<Verdict> {
  const { scores, width } = indexScoresReference(args)
  return judge(indexScoresF32(await scoresOf(device, args, width), scores))
}

/** 0, n, 2n, … */
const offsets = (counts: readonly number[]): Tensor<'u32'> => {
  const sums = [0]
  for (const count of counts) sums.push(sums.at(-1)! + count)
  return ints('u32', [sums.length], sums)
}

const total = (counts: readonly number[]): number => counts.reduce((sum, count) => sum + count, 0)

const queries = (random: Random, tokens: number, heads: number): Pick<Args, 'q' | 'qScale'> => ({
  q: normals(random, 'e4m3', [tokens, heads, depth]),
  qScale: normals(random, 'f32', [tokens, heads], 0.1),
})

/** Scales of both signs. */
function signedScales(random: Random, keys: number): Tensor<'f32'> {
  const scales = scalesAbove(random, [keys], 0.01)
  for (let j = 0; j < keys; j += 3) scales.data[j]! *= -1
  return scales
}

/** `batch` sequences of `tokens` queries and `keys` contiguous keys each. */
function contiguousArgs(heads: number, batch: number, tokens: number, keys: number): Args {
  const random = seeded(heads + 7 * batch + 31 * tokens + keys)
  const each = <T>(value: T): T[] => new Array<T>(batch).fill(value)
  return {
    ...queries(random, batch * tokens, heads),
    rowOffsets: offsets(each(tokens)),
    keys: {
      values: normals(random, 'e4m3', [batch * keys, depth]),
      scales: signedScales(random, batch * keys),
      kvRowOffsets: offsets(each(keys)),
    },
    window: tokens % 2 === 0 ? 'all' : 'causal',
  }
}

/** `[batch, tokens, keys]` by heads. */
const contiguousShapes: Readonly<Record<number, readonly (readonly [number, number, number])[]>> = {
  128: [
    [2, 2, 128],
    [2, 3, 32],
    [1, 2, 501],
  ],
  64: [
    [2, 5, 128],
    [2, 3, 32],
    [1, 7, 501],
    [3, 2, 600],
    [4, 1, 723],
    [5, 4, 64],
    [2, 3, 256],
    [1, 33, 129],
  ],
  32: [
    [2, 9, 128],
    [2, 3, 64],
    [1, 4, 64],
    [4, 5, 200],
    [1, 2, 8300],
  ],
  24: [[1, 9, 65]],
  16: [[2, 17, 193]],
  8: [
    [2, 17, 32],
    [1, 40, 200],
    [3, 15, 64],
    [2, 1, 256],
    [1, 2, 8300],
  ],
  5: [[2, 33, 65]],
  4: [
    [2, 33, 64],
    [1, 32, 64],
    [2, 31, 256],
    [1, 1, 64],
  ],
  1: [[1, 65, 63]],
}

const contiguousCases: readonly ConformanceCase[] = Object.entries(contiguousShapes).flatMap(([heads, shapes]) =>
  shapes.map(([batch, tokens, keys]) => ({
    op,
    name: `e4m3, ${heads} heads, ${batch} × ${tokens} tokens, ${keys} keys each`,
    run: (device: Device) => againstReference(device, contiguousArgs(Number(heads), batch, tokens, keys)),
  })),
)

/** All tokens and keys in one of 150 sequences, so that a device is full and no block has little to do. */
function crowdedArgs(heads: number, tokens: number, keys: number): Args {
  const random = seeded(heads + tokens + keys)
  const all = (count: number) => offsets(Array.from({ length: 150 }, (_, b) => (b === 70 ? count : 0)))
  return {
    ...queries(random, tokens, heads),
    rowOffsets: all(tokens),
    keys: {
      values: normals(random, 'e4m3', [keys, depth]),
      scales: signedScales(random, keys),
      kvRowOffsets: all(keys),
    },
    window: 'causal',
  }
}

const crowdedCases: readonly ConformanceCase[] = [
  [64, 13, 130],
  [16, 50, 70],
  [4, 200, 60],
  [32, 6, 2000],
  [8, 3, 8400],
].map(([heads, tokens, keys]) => ({
  op,
  name: `e4m3, ${heads} heads, ${tokens} tokens and ${keys} keys in one of 150 sequences`,
  run: (device: Device) => againstReference(device, crowdedArgs(heads!, tokens!, keys!)),
}))

interface PagedShape {
  readonly heads: number
  readonly pageSize: number
  readonly tokens: readonly number[]
  readonly cached: readonly number[]
  readonly planar?: boolean
  /** Columns of the scores beyond the longest sequence. */
  readonly extra?: number
}

function pagedArgs({ heads, pageSize, tokens, cached, planar = false, extra = 0 }: PagedShape): Args {
  const random = seeded(heads + pageSize + total(tokens))
  const lengths = tokens.map((count, b) => count + cached[b]!)
  const layout = planar ? ({ format: 'planar', depth } as const) : ({ format: 'pools', dtype: 'e4m3', depth } as const)
  const { pool, blockTable } = filledIndexPool(random, layout, { lengths, pageSize })
  return {
    ...queries(random, total(tokens), heads),
    rowOffsets: offsets(tokens),
    keys: { pool, blockTable, cacheLength: ints('u32', [cached.length], cached) },
    window: 'causal',
    width: Math.max(...lengths) + extra,
  }
}

const pagedShapes: readonly PagedShape[] = [
  { heads: 64, pageSize: 128, tokens: [6, 1, 4, 1], cached: [128, 64, 200, 50] },
  { heads: 64, pageSize: 64, tokens: [2, 0, 3], cached: [62, 70, 0], planar: true },
  { heads: 64, pageSize: 256, tokens: [3, 2], cached: [300, 60] },
  { heads: 32, pageSize: 64, tokens: [5, 4], cached: [250, 3] },
  { heads: 32, pageSize: 48, tokens: [4], cached: [140] },
  { heads: 16, pageSize: 16, tokens: [9, 8], cached: [63, 0] },
  { heads: 8, pageSize: 8, tokens: [17, 5], cached: [40, 61] },
  { heads: 8, pageSize: 64, tokens: [17, 1], cached: [47, 63] },
  { heads: 4, pageSize: 128, tokens: [33, 34, 18], cached: [95, 30, 0] },
  { heads: 64, pageSize: 64, tokens: [1, 2], cached: [100, 65], extra: 400 },
  { heads: 32, pageSize: 64, tokens: [1, 2], cached: [100, 129], extra: 700 },
]

const pagedCases: readonly ConformanceCase[] = pagedShapes.map(shape => ({
  op,
  name: `e4m3, ${shape.heads} heads, tokens [${shape.tokens}] after [${shape.cached}]${
    shape.extra === undefined ? '' : `, ${shape.extra} columns too many`
  }, ${shape.planar === true ? 'planar ' : ''}pages of ${shape.pageSize}`,
  run: (device: Device) => againstReference(device, pagedArgs(shape)),
}))

/**
 * A key's scale must be that of its own tile: scales that name their tile, against the scores under scales of 1. Slots
 * that no token sees keep what was there.
 */
async function ownScales(device: Device): Promise<Verdict> {
  const [tokens, keys, heads] = [5, 1500, 32]
  const random = seeded(7)
  const args = { ...queries(random, tokens, heads), window: 'causal', fill: false } as const
  const values = normals(random, 'e4m3', [keys, depth])
  const scales = Array.from({ length: keys }, (_, j) => {
    const tile = Math.floor(j / 128)
    return (-1) ** tile * (1 + (tile % 16) / 4 + (j % 128) / 640)
  })
  const under = (s: readonly number[]): Promise<Tensor<'f32'>> =>
    scoresOf(device, { ...args, keys: { values, scales: fromFloats('f32', [keys], s) } }, keys)
  const [plain, scaled] = [await under(new Array<number>(keys).fill(1)), await under(scales)]
  const sees = (i: number): boolean => i % keys <= keys - tokens + Math.floor(i / keys)
  const expected = Float64Array.from(plain.data, (x, i) => (sees(i) ? x * scales[i % keys]! : 0))
  const before = bitsOf(poisoned('f32', [tokens, keys]))
  const kept = bitsOf(scaled).every((bits, i) => sees(i) || bits === before[i])
  const seen = fromFloats(
    'f32',
    scaled.shape,
    scaled.data.map((x, i) => (sees(i) ? x : 0)),
  )
  const bound = (i: number): number => 1e-6 * Math.abs(expected[i]!)
  return both(
    judge(compare({ gate: 'scores under scales of their tiles', actual: seen, expected, bound })),
    holds(kept, 'a score outside the windows was written'),
  )
}

export const indexShapeCases: readonly ConformanceCase[] = [
  ...contiguousCases,
  ...crowdedCases,
  ...pagedCases,
  { op, name: 'e4m3, 32 heads, 1500 keys: each under the scale of its own tile', run: ownScales },
]
