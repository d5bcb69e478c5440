/**
 * Scoring with selection on a card: checks that it has the bits of the two operations for keys in hostile orders, then
 * times it against its two steps, with score windows of several sizes, by graph replays between two device events.
 *
 * node --import tsx scripts/measure-index-top-k.ts [folder that receives the results]
 */

import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { median } from '../src/bench/timing.ts'
import { markdownTable, textTable } from '../src/cli/table.ts'
import { seeded } from '../src/conformance/random.ts'
import { type CudaDevice, openCudaDevice } from '../src/cuda/device.ts'
import type { GpuPlan } from '../src/lang/launch.ts'
import { indexScores } from '../src/ops/index-scores.ts'
import { type IndexTopKArgs, indexTopK } from '../src/ops/index-top-k.ts'
import { topK } from '../src/ops/top-k.ts'
import type { DeviceTensor } from '../src/tensor/device-tensor.ts'
import { type Tensor, tensor } from '../src/tensor/tensor.ts'

const depth = 128
const k = 2048
const mebibyte = 2 ** 20

interface Shape {
  readonly tokens: number
  readonly keys: number
  readonly heads: number
}

/** e4m3 codes of both signs, f32 weights, and scales by key. */
function operands({ tokens, keys, heads }: Shape, scale: (key: number) => number) {
  const random = seeded(tokens + keys)
  const codes = (rows: number, ...shape: number[]): Tensor<'e4m3'> =>
    tensor(
      'e4m3',
      [...shape, depth],
      Uint8Array.from({ length: rows * depth }, () => 0x28 + random.int(32) + 128 * random.int(2)),
    )
  const floats = (shape: number[], value: (i: number) => number): Tensor<'f32'> =>
    tensor(
      'f32',
      shape,
      Float32Array.from({ length: shape.reduce((a, b) => a * b) }, (_, i) => value(i)),
    )
  return {
    q: codes(tokens * heads, tokens, heads),
    qScale: floats([tokens, heads], () => random.uniform() - 0.5),
    keys: { values: codes(keys, keys), scales: floats([keys], scale) },
    window: 'causal',
    k,
  } as const
}

/** Scales that make scores rise, fall, tie, and crowd. */
const orders: Readonly<Record<string, (key: number) => number>> = {
  random: key => 0.5 + seeded(key).uniform(),
  rising: key => key + 1,
  falling: key => 1 / (key + 1),
  'all equal': () => 0,
  crowded: key => 1 + key * 2 ** -23,
  'a plateau of zeros': key => (key % 9 === 0 ? 1 : 0),
}

async function mismatches(device: CudaDevice, args: Omit<IndexTopKArgs, 'into'>): Promise<number> {
  const { k: _, ...scoring } = args
  const { scores } = indexScores(device, scoring)
  const steps = topK(device, { scores, k })
  const whole = indexTopK(device, args)
  const parts = indexTopK(device, { ...args, fused: false, budgetBytes: 300 * 4 * scores.shape[1]! })
  const read = async (t: DeviceTensor): Promise<Int32Array> => (await t.read()).data as Int32Array
  const expected = await read(steps.indices)
  let wrong = 0
  for (const other of [whole, parts]) {
    const found = await read(other.indices)
    for (const [i, index] of found.entries()) if (index !== expected[i]) wrong++
    other.indices.dispose()
    other.counts.dispose()
  }
  for (const t of [scores, steps.indices, steps.counts]) t.dispose()
  return wrong
}

const replays = 9

async function timed(
  device: CudaDevice,
  calls: number,
  call: () => void,
): Promise<readonly [middle: number, best: number]> {
  using graph = device.capture(() => {
    for (let i = 0; i < calls; i++) call()
  })
  graph.replay()
  const times: number[] = []
  for (let i = 0; i < replays; i++) times.push((1000 * (await device.time(() => graph.replay()))) / calls)
  return [median(times), Math.min(...times)]
}

async function rates(device: CudaDevice, shape: Shape): Promise<string[][]> {
  const { tokens, keys, heads } = shape
  const host = operands(shape, orders.random!)
  const args = {
    ...host,
    q: device.upload(host.q),
    qScale: device.upload(host.qScale),
    keys: { values: device.upload(host.keys.values), scales: device.upload(host.keys.scales) },
  }
  const { k: _, ...scoring } = args
  const scores = device.alloc('f32', [tokens, keys])
  const into = { indices: device.alloc('i32', [tokens, k]), counts: device.alloc('i32', [tokens]) }
  const calls = tokens * keys > 2 ** 24 ? 3 : 10
  const rows: string[][] = []
  const add = async (name: string, bytes: number, call: () => void): Promise<void> => {
    const [middle, best] = await timed(device, calls, call)
    rows.push([
      `${tokens} × ${keys}, ${heads} heads`,
      name,
      (bytes / mebibyte).toFixed(0),
      middle.toFixed(0),
      best.toFixed(0),
    ])
  }
  const hi = device.upload(
    tensor(
      'i32',
      [tokens],
      Int32Array.from({ length: tokens }, (_unused, t) => keys - tokens + t + 1),
    ),
  )
  const matrix = 4 * tokens * keys
  await add('indexScores', matrix, () => void indexScores(device, { ...scoring, fill: false, into: { scores } }))
  await add('topK', matrix, () => void topK(device, { scores, k, window: { hi }, into }))
  const fused = (more: object): void => void indexTopK(device, { ...args, ...more, into } as never)
  const bytesOf = (more: object): number =>
    (indexTopK.plan(device, { ...args, ...more, into } as never) as GpuPlan).scratchBytes
  await add('indexTopK', bytesOf({}), () => fused({}))
  for (const size of [32, 64, 128, 256]) {
    const budget = { fused: false, budgetBytes: Math.max(size * mebibyte, 4 * keys) }
    await add(`windows of ${size} MiB`, bytesOf(budget), () => fused(budget))
  }
  for (const t of [args.q, args.qScale, args.keys.values, args.keys.scales, scores, into.indices, into.counts, hi])
    t.dispose()
  return rows
}

await using device = await openCudaDevice()
console.log(device.explain())
let wrong = 0
for (const [name, scale] of Object.entries(orders))
  for (const shape of [
    { tokens: 700, keys: 5000, heads: 64 },
    { tokens: 3, keys: 40_000, heads: 32 },
  ]) {
    const count = await mismatches(device, operands(shape, scale))
    if (count > 0) console.log(`WRONG ${name}, ${shape.tokens} tokens: ${count} mismatches`)
    wrong += count
  }
console.log(`${2 * Object.keys(orders).length} checks, ${wrong} mismatches`)
const rows: string[][] = []
for (const shape of [
  { tokens: 4096, keys: 32_768, heads: 64 },
  { tokens: 4096, keys: 131_072, heads: 64 },
  { tokens: 16, keys: 131_072, heads: 64 },
])
  rows.push(...(await rates(device, shape)))
const table = {
  head: ['tokens × keys, causal', 'call', 'MiB of scores', 'µs, median', 'µs, best'],
  align: 'llrrr',
  rows,
}
console.log(textTable(table))
const [, , folder] = process.argv
if (folder !== undefined) {
  mkdirSync(folder, { recursive: true })
  const date = new Date().toISOString().slice(0, 10)
  const text = `${device.explain()}; ${date}\n\n\`scripts/measure-index-top-k.ts\`: ${wrong} mismatches against the two operations; ${replays} graph replays of whole calls between device events\n\n${markdownTable(table)}\n`
  writeFileSync(join(folder, `${date}-cuda-index-top-k.md`), text)
}
