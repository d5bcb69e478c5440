/**
 * Exact top k on a card: checks against a full sort (the cases that others' selections went wrong on, then random ones),
 * then times of whole calls by graph replays between two device events.
 *
 * node --import tsx scripts/measure-top-k.ts [folder that receives the results]
 */

import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { median } from '../src/bench/timing.ts'
import { markdownTable, textTable } from '../src/cli/table.ts'
import { seeded } from '../src/conformance/random.ts'
import { type CudaDevice, openCudaDevice } from '../src/cuda/device.ts'
import { topK } from '../src/ops/top-k.ts'
import type { DeviceTensor } from '../src/tensor/device-tensor.ts'
import { fromFloats, type Tensor, tensor } from '../src/tensor/tensor.ts'

type Floats = Float32Array
type Scores = (width: number) => (column: number) => number

interface Check {
  readonly name: string
  readonly width: number
  readonly k: number
  readonly scores: Scores
  readonly dtype?: 'f32' | 'bf16'
  readonly order?: 'score' | 'index'
  /** Half-open windows, one a row. Default: one whole row. */
  readonly windows?: readonly (readonly [number, number])[]
}

/** A permutation of 0 .. n-1, n a power of two. */
const permuted = (n: number) => (j: number) => (Math.imul(j, 40_503) >>> 0) % n

const normal =
  (seed: number): Scores =>
  () =>
    seeded(seed).normal

/** The triggers of public reports on selections, and distributions that samples and buckets could fail on. */
const reported: readonly Check[] = [
  { name: 'one crowded bucket', width: 262_144, k: 2048, scores: n => j => 1 + permuted(n)(j) / 2 ** 20 },
  ...[4095, 4096, 4097, 8192].map(crowd => ({
    name: `${crowd} values in one bucket`,
    width: 65_536,
    k: 2048,
    scores: () => (j: number) => (j % 8 === 0 && j / 8 < crowd ? 1 + permuted(8192)(j / 8) / 2 ** 20 : (j % 97) / 200),
  })),
  { name: 'all equal', width: 131_072, k: 2048, scores: () => () => 1 },
  { name: 'one +inf', width: 32_768, k: 1024, scores: () => j => (j === 12_345 ? Infinity : Math.sin(j * j)) },
  {
    name: '1025 +inf',
    width: 32_768,
    k: 1024,
    scores: () => j => (j % 31 === 7 && j < 31_775 ? Infinity : Math.sin(j)),
  },
  { name: 'largest floats', width: 32_768, k: 1024, scores: () => j => (j % 2 === 0 ? 3.4e38 : -3.4e38) },
  {
    name: 'windows around k',
    width: 4096,
    k: 2048,
    scores: normal(5),
    windows: [0, 1, 2047, 2048, 2049].map(n => [3, 3 + n] as const),
  },
  { name: 'ties at the border', width: 4096, k: 2048, scores: () => j => [2, 1, 1, 1, 0][permuted(4096)(j) % 5]! },
  ...[1, 64, 512, 1000, 1024, 2048, 4096, 8192].flatMap(k =>
    [k - 1, 5147, 20_011].map(width => ({ name: `k ${k}`, width: Math.max(1, width), k, scores: normal(k) })),
  ),
  { name: 'lowest first', width: 4096, k: 2048, scores: () => j => (j < 4 ? -9 : Math.cos(j)) },
  {
    name: 'NaN and -inf',
    width: 4096,
    k: 2048,
    scores: () => j => [NaN, -Infinity, -Infinity, -NaN, 1e-42, -1e-42, 0, -0, j, -j][permuted(4096)(j) % 10]!,
  },
  { name: 'all NaN or -inf', width: 40_000, k: 2048, scores: () => j => (j % 2 === 0 ? NaN : -Infinity) },
  ...(['ascending', 'descending'] as const).map(name => ({
    name,
    width: 100_000,
    k: 2048,
    scores: () => (j: number) => (name === 'ascending' ? j : -j),
  })),
  { name: 'a plateau of zeros', width: 60_000, k: 2048, scores: () => j => Math.max(0, (j % 1000) - 990) },
  {
    name: 'zeros of both signs, few above',
    width: 60_000,
    k: 2048,
    scores: () => j => (j % 50 === 0 ? j : [0, -0][j % 2]!),
  },
  { name: 'a period of 128', width: 32_768, k: 2048, scores: () => j => (j % 128 < 8 ? j / 1000 : -j) },
  { name: 'a period of 128, elsewhere', width: 32_768, k: 2048, scores: () => j => (j % 128 >= 120 ? j / 1000 : -j) },
  { name: 'a million', width: 1_048_577, k: 2048, scores: normal(9) },
  { name: 'a million equal', width: 1_048_577, k: 8192, scores: () => () => -3 },
]

/** Distributions, widths, k and windows drawn at random. */
function drawn(count: number): Check[] {
  const random = seeded(77)
  return Array.from({ length: count }, (_, i) => {
    const width = Math.floor(2 ** (1 + random.uniform() * 15.6))
    const k = Math.max(1, Math.min(8192, Math.floor(2 ** (random.uniform() * 13.1))))
    const [levels, shift] = [2 ** (1 + random.int(20)), random.normal()]
    const kinds: Scores[] = [
      normal(i),
      () => () => Math.round(random.normal() * levels) / levels,
      () => j => (random.int(3) === 0 ? j / 7 : shift),
      () => () => Math.exp(8 * random.normal()),
      () => () => (random.int(5) === 0 ? -Infinity : random.int(40) === 0 ? NaN : Math.fround(random.normal())),
    ]
    const lo = random.int(3) === 0 ? random.int(width) : 0
    return {
      name: `random ${i}`,
      width,
      k,
      scores: kinds[i % kinds.length]!,
      dtype: i % 4 === 3 ? 'bf16' : 'f32',
      order: i % 3 === 2 ? 'index' : 'score',
      windows: [[lo, random.int(2) === 0 ? width : lo + random.int(width + 2)]],
    } as const
  })
}

/** The best k columns of a window by sorting all of them. */
function sorted(row: Floats, [lo, hi]: readonly [number, number], k: number, order: 'score' | 'index'): Int32Array {
  const bits = new Uint32Array(1)
  const value = new Float32Array(bits.buffer)
  const entries: bigint[] = []
  for (let j = Math.max(0, lo); j < Math.min(hi, row.length); j++) {
    if (!(row[j]! > -Infinity)) continue
    value[0] = row[j]! + 0
    const key = (bits[0]! >>> 31 === 1 ? ~bits[0]! : bits[0]! | 0x8000_0000) >>> 0
    entries.push((BigInt(key) << 32n) | BigInt(0xffff_ffff - j))
  }
  const best = BigUint64Array.from(entries).sort().reverse().subarray(0, k)
  const columns = Int32Array.from(best, entry => 0xffff_ffff - Number(entry & 0xffff_ffffn))
  if (order === 'index') columns.sort()
  return columns
}

async function mismatches(device: CudaDevice, check: Check): Promise<number> {
  const { width, k, order = 'score', dtype = 'f32', windows = [[0, width]] } = check
  const rows = windows.length
  const score = check.scores(width)
  const host = fromFloats(
    dtype,
    [rows, width],
    Float32Array.from({ length: rows * width }, (_, i) => score(i % width)),
  )
  const bound = (side: 0 | 1): Tensor<'i32'> =>
    tensor(
      'i32',
      [rows],
      Int32Array.from(windows, window => window[side]),
    )
  const poison = (count: number): Tensor<'i32'> => tensor('i32', [count], new Int32Array(count).fill(123_456))
  using scores = device.upload(host)
  using indices = device.upload(poison(rows * k)).reshape([rows, k])
  using counts = device.upload(poison(rows))
  topK(device, { scores, k, order, window: { lo: bound(0), hi: bound(1) }, into: { indices, counts } })
  const [found, counted] = [(await indices.read()).data, (await counts.read()).data]
  const floats = host.floats()
  let wrong = 0
  for (const [r, window] of windows.entries()) {
    const expected = sorted(floats.subarray(r * width, (r + 1) * width), window, k, order)
    if (counted[r] !== expected.length) wrong++
    for (let i = 0; i < k; i++) if (found[r * k + i] !== (expected[i] ?? -1)) wrong++
  }
  return wrong
}

/** A matrix whose rows are one row of a distribution, each turned by another distance where `turned`. */
function matrix(
  device: CudaDevice,
  { rows, width, scores = normal(1), dtype = 'f32', turned = true }: Rate,
): DeviceTensor<'f32' | 'bf16'> {
  const score = scores(width)
  const row = fromFloats(
    dtype,
    [1, width],
    Float32Array.from({ length: width }, (_, j) => score(j)),
  ).codes() as Float32Array
  const data = new (dtype === 'f32' ? Float32Array : Uint16Array)(rows * width)
  for (let r = 0; r < rows; r++) {
    const from = turned ? (r * 7919) % width : 0
    data.set(row.subarray(from), r * width)
    data.set(row.subarray(0, from), (r + 1) * width - from)
  }
  return device.upload(tensor(dtype, [rows, width], data as never))
}

interface Rate {
  readonly name: string
  readonly rows: number
  readonly width: number
  readonly k: number
  readonly scores?: Scores
  readonly dtype?: 'f32' | 'bf16'
  readonly order?: 'score' | 'index'
  readonly turned?: boolean
}

const replays = 9

async function rate(device: CudaDevice, one: Rate): Promise<string[]> {
  const { name, rows, width, k, dtype = 'f32', order = 'score' } = one
  using input = matrix(device, one)
  using indices = device.alloc('i32', [rows, k])
  using counts = device.alloc('i32', [rows])
  const calls = rows * width > 2 ** 25 ? 4 : 20
  using graph = device.capture(() => {
    for (let i = 0; i < calls; i++) topK(device, { scores: input, k, order, into: { indices, counts } })
  })
  graph.replay()
  const times: number[] = []
  for (let i = 0; i < replays; i++) times.push((1000 * (await device.time(() => graph.replay()))) / calls)
  const bytes = rows * width * (dtype === 'f32' ? 4 : 2)
  const [middle, best] = [median(times), Math.min(...times)]
  return [name, `${rows} × ${width}`, `${k}`, middle.toFixed(1), best.toFixed(1), (bytes / middle / 1e6).toFixed(2)]
}

const prefill = { rows: 4096, width: 32_768, k: 2048 } as const
const rates: readonly Rate[] = [
  { ...prefill, name: 'normal' },
  { ...prefill, name: 'normal, by index', order: 'index' },
  { ...prefill, name: 'normal, bf16', dtype: 'bf16' },
  { ...prefill, name: 'normal', k: 1024 },
  { ...prefill, name: 'normal', k: 512 },
  { ...prefill, name: 'all equal', scores: () => () => 1 },
  { ...prefill, name: 'ascending', scores: () => j => j, turned: false },
  { ...prefill, name: 'descending', scores: () => j => -j, turned: false },
  { ...prefill, name: 'one crowded bucket', scores: n => j => 1 + permuted(n)(j) / 2 ** 20 },
  { ...prefill, name: 'a plateau of zeros', scores: () => j => Math.max(0, (j % 1000) - 990) },
  { ...prefill, name: 'a period of 128', scores: () => j => (j % 128 < 8 ? j / 1000 : -j), turned: false },
  { name: 'normal', rows: 64, width: 131_072, k: 2048 },
  { name: 'normal', rows: 128, width: 32_768, k: 2048 },
  { name: 'normal', rows: 16, width: 131_072, k: 2048 },
  { name: 'normal', rows: 1, width: 131_072, k: 2048 },
  { name: 'normal', rows: 1, width: 1_048_576, k: 2048 },
]

await using device = await openCudaDevice()
console.log(device.explain())
const checks = [...reported, ...drawn(200)]
let wrong = 0
for (const check of checks) {
  const count = await mismatches(device, check)
  if (count > 0) console.log(`WRONG ${check.name}: ${check.width} columns, k ${check.k}: ${count} mismatches`)
  wrong += count
}
console.log(`${checks.length} checks, ${wrong} mismatches`)
const rows: string[][] = []
for (const one of rates) rows.push(await rate(device, one))
const table = { head: ['scores', 'rows × columns', 'k', 'µs, median', 'µs, best', 'TB/s'], align: 'llrrrr', rows }
console.log(textTable(table))
const [, , folder] = process.argv
if (folder !== undefined) {
  mkdirSync(folder, { recursive: true })
  const date = new Date().toISOString().slice(0, 10)
  const text = `${device.explain()}; ${date}\n\n\`scripts/measure-top-k.ts\`: ${checks.length} checks against a full sort, ${wrong} mismatches; ${replays} graph replays of 4 to 20 whole calls between device events\n\n${markdownTable(table)}\n`
  writeFileSync(join(folder, `${date}-cuda-top-k.md`), text)
}
