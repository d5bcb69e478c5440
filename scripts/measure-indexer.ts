/**
 * Rates of the lightning indexer on a card, at the shapes its peers are measured at: the whole call, the
 * windows' kernel included, in batches between two device events. Checks a few small shapes first.
 *
 * node --import tsx scripts/measure-indexer.ts [folder that receives the results]
 */

import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { median } from '../src/bench/timing.ts'
import { markdownTable, textTable } from '../src/cli/table.ts'
import { describeReport } from '../src/conformance/gate.ts'
import { indexScoresF32 } from '../src/conformance/gates.ts'
import { seeded } from '../src/conformance/random.ts'
import { type CudaDevice, openCudaDevice } from '../src/cuda/device.ts'
import { indexScoresReference } from '../src/kernels/index-scores/reference.ts'
import { indexScores } from '../src/ops/index-scores.ts'
import { type Tensor, tensor } from '../src/tensor/tensor.ts'

const depth = 128
const callsPerBatch = 10
const batches = 9
/** Random codes, repeated where more are needed; no multiple of a row, so that rows differ. */
const blockCodes = 1_000_003
const repetitions = 20

interface Case {
  readonly tokens: number
  readonly keys: number
  readonly heads: number
}

/** e4m3 codes of both signs, f32 weights and scales. */
function operands({ tokens, keys, heads }: Case) {
  const random = seeded(tokens + keys)
  const codes = (rows: number, ...shape: number[]): Tensor<'e4m3'> => {
    const data = new Uint8Array(rows * depth)
    const block = Uint8Array.from(
      { length: Math.min(data.length, blockCodes) },
      () => 0x28 + random.int(32) + 128 * random.int(2),
    )
    for (let at = 0; at < data.length; at += block.length) data.set(block.subarray(0, data.length - at), at)
    return tensor('e4m3', [...shape, depth], data)
  }
  const floats = (...shape: number[]): Tensor<'f32'> => {
    const count = shape.reduce((a, b) => a * b)
    return tensor(
      'f32',
      shape,
      Float32Array.from({ length: count }, () => random.uniform() - 0.5),
    )
  }
  return {
    q: codes(tokens * heads, tokens, heads),
    qScale: floats(tokens, heads),
    values: codes(keys, keys),
    scales: floats(keys),
  }
}

async function checkSmall(device: CudaDevice, one: Case): Promise<void> {
  const { q, qScale, values, scales } = operands(one)
  const args = { q, qScale, keys: { values, scales }, window: 'causal' } as const
  const actual = (await indexScores(device, args).scores.read()) as Tensor<'f32'>
  const report = indexScoresF32(actual, indexScoresReference(args).scores)
  if (!report.ok) throw new Error(describeReport(report))
}

/** Runs of the same call must agree in every bit. */
async function checkRepeats(device: CudaDevice, one: Case): Promise<void> {
  const { q, qScale, values, scales } = operands(one)
  const placed = { q: device.upload(q), qScale: device.upload(qScale) }
  const keys = { values: device.upload(values), scales: device.upload(scales) }
  const { scores } = indexScores(device, { ...placed, keys, window: 'causal' })
  const bits = async (): Promise<Buffer> => Buffer.from(((await scores.read()) as Tensor<'f32'>).codes().buffer)
  const first = await bits()
  for (let i = 1; i < repetitions; i++) {
    indexScores(device, { ...placed, keys, window: 'causal', into: { scores } })
    if (!first.equals(await bits())) throw new Error(`run ${i} of ${describe(one)} has other bits`)
  }
  for (const t of [placed.q, placed.qScale, keys.values, keys.scales, scores]) t.dispose()
}

const describe = ({ tokens, keys, heads }: Case): string => `${tokens} × ${keys}, ${heads} heads`

async function measure(device: CudaDevice, one: Case, fill: boolean): Promise<string[]> {
  const { tokens, keys, heads } = one
  const host = operands(one)
  const [q, qScale, values, scales] = [host.q, host.qScale, host.values, host.scales].map(t => device.upload(t))
  const scores = device.alloc('f32', [tokens, keys])
  const call = (): void => {
    const args = { q: q!, qScale: qScale as never, keys: { values: values!, scales: scales as never } }
    indexScores(device, { ...args, window: 'causal', fill, into: { scores } })
  }
  const batch = (): Promise<number> =>
    device.time(() => {
      for (let i = 0; i < callsPerBatch; i++) call()
    })
  await batch()
  const times: number[] = []
  for (let i = 0; i < batches; i++) times.push((await batch()) / callsPerBatch)
  for (const t of [q, qScale, values, scales, scores]) t!.dispose()
  const window = tokens * keys - (tokens * (tokens - 1)) / 2
  const rate = (ms: number): string => ((2 * window * heads * depth) / ms / 1e9).toFixed(0)
  const [middle, best] = [median(times), Math.min(...times)]
  return [describe(one), `${fill}`, (1000 * middle).toFixed(0), rate(middle), (1000 * best).toFixed(0), rate(best)]
}

await using device = await openCudaDevice()
console.log(device.explain())
for (const heads of [32, 64]) for (const tokens of [1, 29]) await checkSmall(device, { tokens, keys: 777, heads })
await checkRepeats(device, { tokens: 1024, keys: 4096, heads: 64 })
console.log(`${repetitions} runs of one call have the same bits`)
const cases: readonly Case[] = [
  { tokens: 2048, keys: 8192, heads: 64 },
  { tokens: 4096, keys: 32_768, heads: 64 },
  { tokens: 2048, keys: 65_536, heads: 64 },
  { tokens: 4096, keys: 32_768, heads: 32 },
]
const rows: string[][] = []
for (const fill of [false, true])
  for (const one of cases) {
    const row = await measure(device, one, fill)
    console.log(row.join('  '))
    rows.push(row)
  }
const head = ['tokens × keys, causal', 'fill', 'µs, median', 'TFLOP/s', 'µs, best', 'TFLOP/s']
const table = { head, align: 'llrrrr', rows }
console.log(textTable(table))
const [, , folder] = process.argv
if (folder !== undefined) {
  mkdirSync(folder, { recursive: true })
  const date = new Date().toISOString().slice(0, 10)
  const text = `${device.explain()}; ${date}\n\n\`scripts/measure-indexer.ts\`: ${batches} batches of ${callsPerBatch} calls between device events, the windows' kernel included\n\n${markdownTable(table)}\n`
  writeFileSync(join(folder, `${date}-cuda-indexer.md`), text)
}
