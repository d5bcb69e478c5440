/**
 * Rates of native fp8 sparse prefill on a card: 4096 tokens over random lists of 2048 slots, in batches between two device
 * events: one after the other, where an H200 comes to its power limit, and after pauses. Checks small shapes first.
 *
 * node --import tsx scripts/measure-sparse-native.ts [folder that receives the results]
 */

import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import { median } from '../src/bench/timing.ts'
import { markdownTable } from '../src/cli/table.ts'
import { describeReport } from '../src/conformance/gate.ts'
import { attentionNativeFp8, hopperFp8ScoreRounding } from '../src/conformance/gates.ts'
import { seeded } from '../src/conformance/random.ts'
import { type CudaDevice, openCudaDevice } from '../src/cuda/device.ts'
import { encodeE4m3 } from '../src/dtypes/e4m3.ts'
import { sparsePrefillReference } from '../src/kernels/latent-attention/reference.ts'
import { type SparsePrefillArgs, sparsePrefill } from '../src/ops/sparse-prefill.ts'
import type { DeviceTensor } from '../src/tensor/device-tensor.ts'
import { slots } from '../src/tensor/spaces.ts'
import { type Tensor, tensor } from '../src/tensor/tensor.ts'

const width = 576
const scale = 192 ** -0.5
const [callsPerBatch, batches, warmUps] = [5, 9, 60]
const [restedBatches, pauseMs] = [8, 40]
/** Normal values that operands repeat, shifted. */
const period = 1_000_003

interface Case {
  readonly tokens: number
  readonly heads: number
  readonly topk: number
  readonly keys: number
  /** Standard deviation of the values. */
  readonly sd: number
  /** A scale for each row and query vector. */
  readonly scaled?: boolean
  /** Token i has i + 1 keys. */
  readonly early?: boolean
}

const patterns = new Map<number, Uint8Array>()

function patternOf(sd: number): Uint8Array {
  const random = seeded(7)
  const pattern = patterns.get(sd) ?? Uint8Array.from({ length: period }, () => encodeE4m3(sd * random.normal()))
  patterns.set(sd, pattern)
  return pattern
}

function codes(count: number, sd: number, shift: number): Uint8Array {
  const pattern = patternOf(sd)
  const out = new Uint8Array(count)
  let from = shift
  for (let at = 0; at < count; from = 0) {
    const part = pattern.subarray(from, from + count - at)
    out.set(part, at)
    at += part.length
  }
  return out
}

const someScales = (count: number): Float32Array =>
  Float32Array.from({ length: count }, (_, i) => 0.7 + ((i * 0.618) % 1))

function operands({ tokens, heads, topk, keys, sd, scaled = false, early = false }: Case): SparsePrefillArgs {
  const list = new Int32Array(tokens * topk)
  let state = 12_345
  for (let i = 0; i < list.length; i++) {
    state ^= state << 13
    state ^= state >>> 17
    state ^= state << 5
    list[i] = early && i % topk > Math.floor(i / topk) ? -1 : (state >>> 0) % keys
  }
  const pool = [keys / 64, 1, 64]
  return {
    q: tensor('e4m3', [tokens, heads, width], codes(tokens * heads * width, sd, 77)),
    qScale: scaled ? tensor('f32', [tokens, heads], someScales(tokens * heads)) : undefined,
    cache: {
      format: 'plain',
      values: tensor('e4m3', [...pool, width], codes(keys * width, sd, 12_345)),
      scales: scaled ? tensor('f32', [...pool, 1], someScales(keys)) : undefined,
      scaleBlock: scaled ? width : 0,
      layer: 0,
    },
    indices: slots(tensor('i32', [tokens, topk], list)),
    scale,
  }
}

async function checkSmall(device: CudaDevice, one: Case): Promise<void> {
  const args = operands(one)
  const out = (await sparsePrefill(device, args).out.read()) as Tensor
  const report = attentionNativeFp8(out, sparsePrefillReference(args), { g: hopperFp8ScoreRounding })
  if (!report.ok) throw new Error(describeReport(report))
}

async function measure(device: CudaDevice, one: Case): Promise<string[]> {
  const { tokens, heads, topk, keys, sd } = one
  const host = operands(one)
  const uploads: DeviceTensor[] = []
  const upload = <T extends Tensor>(t: T | undefined): T | undefined => {
    if (t === undefined) return undefined
    const placed = device.upload(t)
    uploads.push(placed)
    return placed as unknown as T
  }
  const { cache } = host
  const args = {
    ...host,
    q: upload(host.q as Tensor)!,
    qScale: upload(host.qScale as Tensor<'f32'> | undefined),
    cache: { ...cache, values: upload(cache.values as Tensor)!, scales: upload(cache.scales as Tensor | undefined) },
    indices: upload(host.indices as Tensor)!,
    into: {
      out: device.alloc('bf16', [tokens, heads, 512]),
      lse: device.alloc('f32', [tokens, heads]),
      maxLogits: device.alloc('f32', [tokens, heads]),
    },
  } as SparsePrefillArgs
  const batch = (calls: number): Promise<number> =>
    device.time(() => {
      for (let i = 0; i < calls; i++) sparsePrefill(device, args)
    })
  await batch(warmUps)
  const times: number[] = []
  for (let i = 0; i < batches; i++) times.push((await batch(callsPerBatch)) / callsPerBatch)
  const rested: number[] = []
  for (let i = 0; i < restedBatches; i++) {
    await setTimeout(pauseMs)
    await batch(1)
    rested.push((await batch(2)) / 2)
  }
  for (const t of [...uploads, ...Object.values(args.into!)]) t!.dispose()
  const rate = (ms: number): string => ((2 * tokens * heads * topk * (width + 512)) / ms / 1e9).toFixed(0)
  const [middle, best] = [median(times), Math.min(...times)]
  const what = [`sd ${sd}`, one.scaled ? 'scaled' : '', one.early ? 'token i has i + 1 keys' : ''].filter(Boolean)
  return [
    `${heads} heads, ${keys} keys, ${what.join(', ')}`,
    middle.toFixed(3),
    rate(middle),
    rate(best),
    rate(median(rested)),
  ]
}

await using device = await openCudaDevice()
console.log(device.explain())
for (const heads of [1, 8, 12, 64, 70, 128])
  for (const scaled of [false, true])
    await checkSmall(device, { tokens: 5, heads, topk: 200, keys: 640, sd: 1, scaled })
const usual = { tokens: 4096, heads: 128, topk: 2048, keys: 32_768, sd: 0.5 }
const cases: readonly Case[] = [
  usual,
  { ...usual, sd: 1 },
  { ...usual, keys: 8192 },
  { ...usual, keys: 131_072 },
  { ...usual, heads: 64 },
  { ...usual, heads: 16 },
  { ...usual, scaled: true },
  { ...usual, early: true },
]
const rows: string[][] = []
for (const one of cases) {
  rows.push(await measure(device, one))
  console.log(rows.at(-1)!.join('  '))
}
const table = {
  head: ['4096 tokens × 2048 entries', 'ms, median', 'TFLOP/s', 'best', 'after pauses'],
  align: 'lrrrr',
  rows,
}
const [, , folder] = process.argv
if (folder !== undefined) {
  mkdirSync(folder, { recursive: true })
  const date = new Date().toISOString().slice(0, 10)
  const text = `${device.explain()}; ${date}\n\n\`scripts/measure-sparse-native.ts\`: ${batches} batches of ${callsPerBatch} calls between device events; after pauses: the median of ${restedBatches} batches of 2, each ${pauseMs} ms and a call after the one before. FLOPs count whole lists: 2 · tokens · heads · 2048 · (576 + 512).\n\n${markdownTable(table)}\n`
  writeFileSync(join(folder, `${date}-cuda-sparse-native.md`), text)
}
