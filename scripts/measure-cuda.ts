/**
 * What the cuda device costs beside its kernels: opening, compiling, the driver's cache, launches, graphs, copies; and
 * what a fault leaves of the process. Needs a card.
 *
 * node --import tsx scripts/measure-cuda.ts [folder that receives the results]
 */

import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { cpus, tmpdir } from 'node:os'
import { join } from 'node:path'
import { noise } from '../src/bench/data.ts'
import { median } from '../src/bench/timing.ts'
import { digits, markdownTable, textTable } from '../src/cli/table.ts'
import { openCpuDevice } from '../src/cpu/device.ts'
import { type CudaDevice, openCudaDevice } from '../src/cuda/device.ts'
import type { KernelReport } from '../src/cuda/modules.ts'
import { FaultError } from '../src/errors.ts'
import { type Kernel, kernel } from '../src/lang/kernel.ts'
import type { GpuPlan, LaunchArg } from '../src/lang/launch.ts'
import { input, output } from '../src/lang/params.ts'
import type { Target } from '../src/lang/types.ts'
import { indexScores } from '../src/ops/index-scores.ts'
import { indexTopK } from '../src/ops/index-top-k.ts'
import { multiply } from '../src/ops/multiply.ts'
import { sparsePrefill } from '../src/ops/sparse-prefill.ts'
import { topK } from '../src/ops/top-k.ts'
import type { DeviceTensor } from '../src/tensor/device-tensor.ts'
import { slots } from '../src/tensor/spaces.ts'
import { tensor, zeros } from '../src/tensor/tensor.ts'

/** Argument of the processes that only load kernels. */
const loadOnly = '--load'

type Row = [what: string, value: number, unit: string]
const rows: Row[] = []
const note = (...row: Row): void => {
  rows.push(row)
  console.log(`${row[0]}: ${digits(row[1])} ${row[2]}`)
}

const planOf = (traced: Kernel, args: Record<string, LaunchArg>): GpuPlan => ({
  kind: 'gpu',
  op: traced.name,
  scratch: {},
  scratchBytes: 0,
  launches: [{ kernel: traced, grid: [1, 1], args }],
})

const addOne = (target: Target): Kernel =>
  kernel(
    { name: 'add_one', target, threads: 32, params: { x: input('f32', 'x'), y: output('f32', 'y') } },
    (k, { x, y }) => y.store(k.threadIdx, x.load(k.threadIdx).add(1)),
  )

/** Calls one operation of each family, so that their kernels are compiled. */
function callSome(device: CudaDevice): void {
  const q = noise('e4m3', [64, 64, 128], 1)
  const qScale = noise('f32', [64, 64], 2)
  const keys = { values: noise('e4m3', [256, 128], 3), scales: noise('f32', [256], 4) }
  indexScores(device, { q, qScale, keys, window: 'causal' }).scores.dispose()
  topK(device, { scores: noise('f32', [4, 1000], 5), k: 100 }).indices.dispose()
  const values = noise('bf16', [4, 1, 64, 576], 6)
  const { out } = sparsePrefill(device, {
    q: noise('bf16', [4, 16, 576], 7),
    cache: { format: 'plain', values, scaleBlock: 0, layer: 0 },
    indices: slots(zeros('i32', [4, 64])),
    scale: 0.1,
  })
  out.dispose()
}

/** In a process of its own: what it took to load each kernel. */
async function loadKernels(): Promise<void> {
  await using device = await openCudaDevice()
  callSome(device)
  await device.sync()
  console.log(JSON.stringify(device.kernels))
}

/** Loads the kernels in fresh processes: with the driver's cache off, filling a cache, and from it. */
function measureCompiling(): void {
  const folder = mkdtempSync(join(tmpdir(), 'sparse-mla-measure-'))
  const child = (env: Record<string, string>): KernelReport[] => {
    const args = [...process.execArgv, process.argv[1]!, loadOnly]
    return JSON.parse(execFileSync(process.execPath, args, { env: { ...process.env, ...env }, encoding: 'utf8' }))
  }
  try {
    const runs = {
      'compiled, no cache': child({ CUDA_CACHE_DISABLE: '1' }),
      'compiled into an empty cache': child({ CUDA_CACHE_PATH: folder }),
      "from the driver's cache": child({ CUDA_CACHE_PATH: folder }),
    }
    note('trace to PTX, longest', Math.max(...Object.values(runs)[2]!.map(one => one.printMilliseconds)), 'ms')
    for (const [title, reports] of Object.entries(runs)) {
      const times = reports.map(({ loadMilliseconds }) => loadMilliseconds)
      note(`PTX to function, longest of ${times.length}, ${title}`, Math.max(...times), 'ms')
      note(`PTX to function, median, ${title}`, median(times), 'ms')
      console.log(kernelTable(reports))
    }
  } finally {
    rmSync(folder, { recursive: true })
  }
}

const kernelTable = (reports: readonly KernelReport[]): string =>
  textTable({
    head: ['kernel', 'print ms', 'load ms', 'registers', 'local bytes', 'shared bytes', 'threads', 'complaints'],
    align: 'lrrrrrrl',
    rows: reports.map(k => [
      k.name,
      digits(k.printMilliseconds),
      digits(k.loadMilliseconds),
      ...[k.registers, k.localBytes, k.sharedBytes, k.threads].map(String),
      k.complaints.join(' '),
    ]),
  })

/** Host microseconds of one call, in a run of `count`; the median of several runs. */
async function hostMicroseconds(device: CudaDevice, count: number, call: () => void): Promise<number> {
  const runs: number[] = []
  for (let run = 0; run < 9; run++) {
    await device.sync()
    const start = performance.now()
    for (let i = 0; i < count; i++) call()
    runs.push(((performance.now() - start) * 1000) / count)
  }
  return median(runs)
}

async function measureLaunches(device: CudaDevice): Promise<void> {
  const [x, y] = [device.upload(noise('f32', [32], 1)), device.alloc('f32', [32])]
  const plan = planOf(addOne(device.limits.target as Target), { x, y })
  const launch = (): void => device.submit(plan, { inputs: { x }, outputs: { y } })
  const repeat = (count: number, call: () => void) => (): void => {
    for (let i = 0; i < count; i++) call()
  }
  note('launch, host, 500 back to back', await hostMicroseconds(device, 500, launch), 'µs')
  note('launch, card, 2000 back to back', ((await device.time(repeat(2000, launch))) * 1000) / 2000, 'µs')
  const row = x.reshape([1, 32])
  const call = (): void => multiply(device, { x: row, y: row }).out.dispose()
  note('multiply, whole call, host', await hostMicroseconds(device, 500, call), 'µs')
  using graph = device.capture(repeat(100, launch))
  note('graph of 100 launches, host', await hostMicroseconds(device, 20, () => graph.replay()), 'µs')
  note('graph of 100 launches, card, each', ((await device.time(repeat(50, () => graph.replay()))) * 1000) / 5000, 'µs')
  const reads: number[] = []
  for (let i = 0; i < 200; i++) {
    const start = performance.now()
    launch()
    await y.read()
    reads.push((performance.now() - start) * 1000)
  }
  note('launch and read of 128 bytes', median(reads), 'µs')
}

async function measureCopies(device: CudaDevice): Promise<void> {
  const bytes = 256 << 20
  const host = zeros('u8', [bytes])
  const there = device.upload(host)
  const rate = (start: number): number => bytes / (performance.now() - start) / 1e6
  await there.read()
  await device.sync()
  let start = performance.now()
  device.write(there, host)
  await device.sync()
  note('upload of 256 MiB', rate(start), 'GB/s')
  start = performance.now()
  await there.read()
  note('read of 256 MiB', rate(start), 'GB/s')
}

/** Records selection and attention as one graph; its results must stay those of the plain calls, whatever runs between. */
async function checkGraph(device: CudaDevice): Promise<string> {
  const [tokens, keys] = [48, 640]
  const q = device.upload(noise('bf16', [tokens, 16, 128], 1))
  const index = {
    q,
    qScale: device.upload(noise('f32', [tokens, 16], 2)),
    keys: { values: device.upload(noise('bf16', [keys, 128], 3)) },
  }
  const blocks = keys / 64
  const blockTable = tensor(
    'u32',
    [1, blocks],
    Uint32Array.from({ length: blocks }, (_, i) => i),
  )
  const identity = { blockTable, pageSize: 64, blocks }
  const pool = device.upload(noise('bf16', [keys / 64, 1, 64, 576], 4))
  const query = device.upload(noise('bf16', [tokens, 16, 576], 5))
  const cache = { format: 'plain', values: pool, scaleBlock: 0, layer: 0 } as const
  const attend = (k: number): DeviceTensor<'bf16'> => {
    const { indices, counts } = indexTopK(device, { ...index, window: 'causal', k, slots: identity })
    const { out, lse, maxLogits } = sparsePrefill(device, { q: query, cache, indices, scale: 0.05 })
    for (const t of [indices, counts, lse, maxLogits]) t.dispose()
    return out as DeviceTensor<'bf16'>
  }
  const expected = (await attend(64).read()).data
  let out!: DeviceTensor<'bf16'>
  using graph = device.capture(() => {
    out = attend(64)
  })
  for (let i = 0; i < 8; i++) {
    graph.replay()
    attend(32 + i).dispose()
    const { data } = await out.read()
    const differ = data.filter((code, j) => code !== expected[j]).length
    if (differ > 0) return `replay ${i} of a graph: ${differ} of ${data.length} codes differ from the plain calls`
  }
  return 'graph of indexTopK and sparsePrefill: 8 replays with other work between give the bits of the plain calls'
}

/** Stores to address 0, and looks what is left of the process. */
async function measureFault(): Promise<string> {
  const broken = await openCudaDevice()
  const x = broken.upload(noise('f32', [32], 1))
  const plan = planOf(addOne(broken.limits.target as Target), { x, y: undefined })
  broken.submit(plan, { inputs: { x }, outputs: {} })
  const seen = await broken.sync().catch((error: unknown) => error)
  if (!(seen instanceof FaultError)) throw new Error(`a store to address 0 gave ${String(seen)}`)
  await broken.dispose()
  const again = await openCudaDevice().catch((error: unknown) => error)
  await using cpu = await openCpuDevice({ threads: 1 })
  const works = (await cpu.upload(noise('f32', [4], 1)).read()).data.length === 4
  return [
    `after a store to address 0: ${seen.message}`,
    `opening the card again: ${again instanceof Error ? again.message : 'works'}`,
    `the cpu device in the same process: ${works ? 'works' : 'fails'}`,
  ].join('\n')
}

async function main(folder: string | undefined): Promise<void> {
  const start = performance.now()
  const device = await openCudaDevice()
  note('open', performance.now() - start, 'ms')
  const title = device.explain()
  console.log(title)
  await measureLaunches(device)
  await measureCopies(device)
  const graph = await checkGraph(device)
  await device.dispose()
  measureCompiling()
  console.log(graph)
  const fault = await measureFault()
  console.log(fault)
  if (folder === undefined) return
  mkdirSync(folder, { recursive: true })
  const table = markdownTable({
    head: ['what', 'value', 'unit'],
    align: 'lrl',
    rows: rows.map(([what, value, unit]) => [what, digits(value), unit]),
  })
  const date = new Date().toISOString()
  const head = `${title}; ${cpus()[0]?.model.trim()}, Node ${process.version}; ${date}`
  const text = [head, '`node --import tsx scripts/measure-cuda.ts`', table, graph, fault.replaceAll('\n', '\n\n')]
  writeFileSync(join(folder, `${date.slice(0, 10)}-cuda-device.md`), `${text.join('\n\n')}\n`)
}

const [argument] = process.argv.slice(2)
await (argument === loadOnly ? loadKernels() : main(argument))
