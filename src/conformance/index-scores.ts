/** Conformance of `indexScores`: dtypes, layouts, windows, sequences, NaN. */

import type { Device } from '../device.ts'
import { indexScoresReference } from '../kernels/index-scores/reference.ts'
import { type IndexScoresArgs, indexScores } from '../ops/index-scores.ts'
import type { ScoringArgs } from '../ops/scoring-args.ts'
import type { IndexLayout } from '../tensor/cache-layout.ts'
import type { Tensor } from '../tensor/tensor.ts'
import { type ConformanceCase, holds, judge, type Verdict } from './case.ts'
import { collect, ints, nans, normals, poisonedOutputs, scalesAbove } from './data.ts'
import { compareBits } from './gate.ts'
import { indexScoresBf16, indexScoresF32 } from './gates.ts'
import { bitsOf, countPoison, poisoned } from './poison.ts'
import { filledIndexPool } from './pools.ts'
import { type Random, seeded } from './random.ts'

type KeyDtype = 'f32' | 'bf16' | 'e4m3'

const op = 'indexScores'

interface Sizes {
  readonly tokens: number
  readonly heads: number
  readonly depth: number
}

/** Queries and their signed weights. */
function queries(random: Random, dtype: KeyDtype, { tokens, heads, depth }: Sizes): Pick<ScoringArgs, 'q' | 'qScale'> {
  return {
    q: normals(random, dtype, [tokens, heads, depth]),
    qScale: normals(random, 'f32', [tokens, heads], 0.1),
  }
}

/** Contiguous keys; e4m3 ones with scales of both signs. */
function contiguous(
  random: Random,
  dtype: KeyDtype,
  keys: number,
  depth: number,
): { values: Tensor; scales?: Tensor<'f32'> } {
  const values = normals(random, dtype, [keys, depth])
  if (dtype !== 'e4m3') return { values }
  const scales = scalesAbove(random, [keys], 0.01)
  for (let j = 0; j < keys; j += 3) scales.data[j]! *= -1
  return { values, scales }
}

/** The scores of a call, from poison. */
async function scoresOf(device: Device, args: Omit<IndexScoresArgs, 'into'>, width: number): Promise<Tensor> {
  const into = poisonedOutputs(device, { scores: [args.dtype ?? 'f32', [args.q.shape[0]!, width]] })
  indexScores(device, { ...args, into })
  return (await collect(into)).scores
}

async function againstReference(device: Device, args: Omit<IndexScoresArgs, 'into'>): Promise<Verdict> {
  const { scores, width } = indexScoresReference(args)
  return judge(indexScoresF32(await scoresOf(device, args, width), scores))
}

const dtypeCases: readonly ConformanceCase[] = (['f32', 'bf16', 'e4m3'] as const).flatMap(dtype =>
  [
    { tokens: 3, heads: 5, depth: 48 },
    { tokens: 2, heads: 64, depth: 128 },
    { tokens: 1, heads: 1, depth: 256 },
    { tokens: 2, heads: 128, depth: 16 },
  ].map(sizes => ({
    op,
    name: `${dtype}, contiguous, causal, ${sizes.heads} heads of ${sizes.depth}`,
    run(device: Device) {
      const random = seeded(sizes.heads)
      const q = queries(random, dtype, sizes)
      return againstReference(device, { ...q, keys: contiguous(random, dtype, 70, sizes.depth), window: 'causal' })
    },
  })),
)

const layouts: readonly (readonly [string, IndexLayout, KeyDtype])[] = [
  ['f32 pools', { format: 'pools', dtype: 'f32', depth: 64 }, 'f32'],
  ['bf16 pools', { format: 'pools', dtype: 'bf16', depth: 64 }, 'bf16'],
  ['e4m3 pools', { format: 'pools', dtype: 'e4m3', depth: 64 }, 'e4m3'],
  ['planar blocks', { format: 'planar', depth: 128 }, 'e4m3'],
]

/** Two sequences over one pool whose other layer, spare block and unused slots are NaN. */
function pagedArgs(layout: IndexLayout, dtype: KeyDtype, pageSize: number): Omit<IndexScoresArgs, 'into' | 'window'> {
  const random = seeded(pageSize)
  const { pool, blockTable } = filledIndexPool(random, layout, { lengths: [37, 18], pageSize })
  return {
    ...queries(random, dtype, { tokens: 4, heads: 4, depth: layout.depth }),
    keys: { pool, blockTable, cacheLength: ints('u32', [2], [36, 15]) },
    rowOffsets: ints('u32', [3], [0, 1, 4]),
  }
}

const pagedCases: readonly ConformanceCase[] = layouts.flatMap(([name, layout, dtype]) => [
  ...[16, 7].map(pageSize => ({
    op,
    name: `${name}, pages of ${pageSize}, two sequences, layer 1 of 2, causal`,
    run: (device: Device) =>
      againstReference(device, { ...pagedArgs(layout, dtype, pageSize), window: 'causal' as const }),
  })),
  {
    op,
    name: `${name}, window all, wider than the keys`,
    run: device => againstReference(device, { ...pagedArgs(layout, dtype, 16), window: 'all', width: 45 }),
  },
])

const given = { lo: ints('i32', [4], [-5, 20, 3, 60]), hi: ints('i32', [4], [9, 12, 3, 9000]) }

const plain = { tokens: 4, heads: 3, depth: 32 }

/** Bits of what lies outside the windows stay, the rest is written. */
async function outsideUntouched(device: Device): Promise<Verdict> {
  const random = seeded(21)
  const args = { ...queries(random, 'f32', plain), keys: contiguous(random, 'f32', 70, 32), window: given }
  const { scores: expected, width } = indexScoresReference(args)
  const actual = await scoresOf(device, { ...args, fill: false }, width)
  const bits = bitsOf(actual)
  const poison = bitsOf(poisoned('f32', [1]))[0]!
  const outside = expected.reduce((count, score) => count + Number(score === -Infinity), 0)
  const kept = countPoison(actual)
  for (const [i, score] of expected.entries()) if (score === -Infinity && bits[i] === poison) actual.data[i] = -Infinity
  const verdict = judge(indexScoresF32(actual, expected))
  return verdict.ok
    ? holds(kept === outside, `${kept} elements untouched, ${outside} lie outside the windows`)
    : verdict
}

const windowCases: readonly ConformanceCase[] = [
  {
    op,
    name: 'given windows: negative, empty, backwards, past the end; NaN keys outside them',
    run(device) {
      const random = seeded(22)
      const keys = contiguous(random, 'e4m3', 70, 32)
      const blank = nans('e4m3', [40, 32]).data
      ;(keys.values as Tensor<'e4m3'>).data.set(blank, 12 * 32)
      return againstReference(device, { ...queries(random, 'e4m3', plain), keys, window: given })
    },
  },
  { op, name: 'fill: false leaves what lies outside the windows', run: outsideUntouched },
  {
    op,
    name: 'more queries than keys: negative positions see nothing',
    run(device) {
      const random = seeded(23)
      const keys = contiguous(random, 'bf16', 2, 32)
      return againstReference(device, { ...queries(random, 'bf16', plain), keys, window: 'causal' })
    },
  },
  {
    op,
    name: 'padded sequences: rows past validLength are -inf',
    run(device) {
      const random = seeded(24)
      const keys = { ...contiguous(random, 'f32', 50, 32), kvRowOffsets: ints('u32', [3], [0, 20, 50]) }
      const validLength = ints('u32', [2], [1, 2])
      return againstReference(device, { ...queries(random, 'f32', plain), keys, window: 'causal', validLength })
    },
  },
  {
    op,
    name: 'pooled keys: one for four tokens, visible with its last',
    run(device) {
      const random = seeded(25)
      const layout = { format: 'pools', dtype: 'bf16', depth: 32 } as const
      const { pool, blockTable } = filledIndexPool(random, layout, { lengths: [9], pageSize: 4 })
      const keys = { pool, blockTable, cacheLength: ints('u32', [1], [35]) }
      return againstReference(device, { ...queries(random, 'bf16', plain), keys, window: 'causal', pool: 4 })
    },
  },
]

/** NaN and infinities reach their own row or column, and nothing else. */
const nanCases: readonly ConformanceCase[] = [
  {
    op,
    name: 'a NaN key, a NaN kScale and an infinite kScale make their columns',
    run(device) {
      const random = seeded(31)
      const keys = contiguous(random, 'e4m3', 70, 32)
      ;(keys.values as Tensor<'e4m3'>).data[11 * 32 + 3] = 0x7f
      keys.scales!.data.set([NaN], 20)
      keys.scales!.data.set([Infinity], 64)
      return againstReference(device, { ...queries(random, 'e4m3', plain), keys, window: 'causal' })
    },
  },
  {
    op,
    name: 'a NaN in q and one in qScale make their rows',
    run(device) {
      const random = seeded(32)
      const { q, qScale } = queries(random, 'bf16', plain)
      ;(q as Tensor<'bf16'>).data[(1 * 3 + 2) * 32 + 31] = 0x7fc0
      ;(qScale as Tensor<'f32'>).data[3 * 3] = NaN
      return againstReference(device, { q, qScale, keys: contiguous(random, 'bf16', 70, 32), window: 'causal' })
    },
  },
]

const bitCases: readonly ConformanceCase[] = [
  {
    op,
    name: 'bf16 scores are the f32 ones rounded once',
    async run(device) {
      const args = { ...pagedArgs({ format: 'planar', depth: 128 }, 'e4m3', 16), window: 'causal' as const }
      const f32 = await scoresOf(device, args, 37)
      const bf16 = await scoresOf(device, { ...args, dtype: 'bf16' }, 37)
      return judge(indexScoresBf16(bf16 as Tensor<'bf16'>, f32 as Tensor<'f32'>))
    },
  },
  {
    op,
    name: 'a row alone has the bits of the row in a batch; so has a repeated call',
    async run(device) {
      const random = seeded(41)
      const { q, qScale } = queries(random, 'e4m3', plain)
      const keys = contiguous(random, 'e4m3', 70, 32)
      const batch = await scoresOf(device, { q, qScale, keys, window: 'all' }, 70)
      const again = await scoresOf(device, { q, qScale, keys, window: 'all' }, 70)
      const one = { q: (q as Tensor).narrow(0, 2, 1), qScale: (qScale as Tensor<'f32'>).narrow(0, 2, 1) }
      const alone = await scoresOf(device, { ...one, keys, window: 'all' }, 70)
      return judge(
        compareBits('the same call again', again, batch),
        compareBits('row 2 alone', alone, batch.narrow(0, 2, 1)),
      )
    },
  },
]

export const indexScoresCases: readonly ConformanceCase[] = [
  ...dtypeCases,
  ...pagedCases,
  ...windowCases,
  ...nanCases,
  ...bitCases,
]
