import { afterAll, describe, expect, test } from 'vitest'
import { expectGate, poisoned, sameBits } from '../../../test/gates.ts'
import { i32 } from '../../../test/index-cases.ts'
import { assemble, hasPtxas } from '../../../test/ptxas.ts'
import { seeded } from '../../../test/random.ts'
import {
  expectSelection,
  expectTopK,
  rowOf,
  scatter,
  selectionEdges,
  type TopKCase,
} from '../../../test/selection-cases.ts'
import type { GpuPlan } from '../../lang/launch.ts'
import { topK } from '../../ops/top-k.ts'
import { printPtx } from '../../ptx/print.ts'
import { SimDevice } from '../../sim/device.ts'
import { fromFloats, type Tensor } from '../../tensor/tensor.ts'
import { topKReference } from './reference.ts'
import { traceTopKSm90 } from './sm90.ts'
import { ownSamples, sizesOf, type TopKSm90Config } from './sm90-config.ts'
import { shareRows } from './sm90-plan.ts'

const device = new SimDevice('sm_90a')
afterAll(() => device.dispose())

/** Small blocks: tiles of 1024 scores, 1088 entries in the list, 256 to order. */
const small = { room: 64, threads: 64 } as const
const smallSizes = sizesOf({ ...small, dtype: 'f32', order: 'score', slots: false, cluster: 1 })

/** Runs topK with blocks of another size and holds it against the full sort. */
async function expectWith(
  config: Pick<TopKSm90Config, 'room' | 'threads' | 'cluster'>,
  args: TopKCase,
  on: SimDevice = device,
): Promise<void> {
  const { scores, k, order = 'score' } = args
  const tokens = scores.shape[0]!
  const inputs = { scores: on.upload(scores as Tensor<'f32'>) }
  const outputs = { indices: on.upload(poisoned('i32', [tokens, k])), counts: on.upload(poisoned('i32', [tokens])) }
  const { hi, lo } = args.window === undefined || args.window === 'all' ? {} : args.window
  const window = hi && { hi: on.upload(hi as Tensor<'i32'>), lo: on.upload(lo as Tensor<'i32'>) }
  const plan = topK.plan(on, { ...args, window, scores: inputs.scores, into: outputs }) as GpuPlan
  const launches = plan.launches.map(launch => {
    if (!launch.kernel.name.startsWith('top_k_sm90')) return launch
    const kernel = traceTopKSm90({ ...config, dtype: inputs.scores.dtype as 'f32', order, slots: false })
    return { ...launch, kernel, grid: [tokens * config.cluster, 1] as const }
  })
  on.submit({ ...plan, launches } as GpuPlan, { inputs, outputs })
  const found = { indices: await outputs.indices.read(), counts: await outputs.counts.read() }
  expectSelection(found, topKReference(args))
}

/** Whether score j of a row of n, a multiple of 8, is one of the 512 that a small block samples. */
const isSampled = (j: number, n: number): boolean => {
  const sector = Math.floor(j / 8)
  const parts = (small.threads * ownSamples) / 8
  const part = Math.floor((sector * parts) / (n / 8))
  const begin = Math.floor((part * (n / 8)) / parts)
  const spread = BigInt(Math.floor(n / 8 / parts))
  return sector === begin + Number((BigInt(Math.imul(part, 0x9e3779b9) >>> 0) * spread) >> 32n)
}

/** Rows that a sample misleads, and rows that fill the list in every way. */
const rows: Readonly<Record<string, (j: number, n: number) => number>> = {
  'high only where the sample looks': (j, n) => (isSampled(j, n) && j % 16 < 2 ? 9 : 0) + Math.sin(j),
  'low only where the sample looks': (j, n) => (isSampled(j, n) ? -9 : 0) + Math.sin(j),
  'NaN only where the sample looks': (j, n) => (isSampled(j, n) ? NaN : Math.sin(j)),
  'each score twice': j => Math.sin(j >> 1),
  'all equal': () => 0.5,
  ascending: j => j,
  'zeros of both signs': j => (j % 500 === 499 ? j : [0, -0][j % 2]!),
}

selectionEdges(device)

describe('small blocks', () => {
  test('the list takes a whole tile after a cut', () => {
    expect(smallSizes).toMatchObject({ tile: 1024, sorted: 256, capacity: 1088 })
  })

  test.each(Object.entries(rows))('%s', async (_, score) => {
    const row = (n: number) => rowOf(n, j => score(j, n))
    await expectWith({ ...small, cluster: 1 }, { scores: row(8192), k: 50 })
    // Four lists of up to 1024 entries do not fit into one.
    await expectWith({ ...small, cluster: 4 }, { scores: row(4096), k: 64 })
  })

  test('order by index, bf16, parts without columns', async () => {
    const scores = rowOf(5000, j => scatter(8192)(j) % 300).cast('bf16')
    const window = { lo: i32(4091), hi: i32(4100) }
    await expectWith({ ...small, cluster: 2 }, { scores, k: 64, order: 'index' })
    await expectWith({ ...small, cluster: 8 }, { scores, k: 64, window })
  })

  test('the same bits whatever the order in which warps run', async () => {
    const scores = rowOf(3000, j => scatter(4096)(j) % 7)
    for (const seed of [2, 3])
      await expectWith({ ...small, cluster: 2 }, { scores, k: 60 }, new SimDevice('sm_90a', { seed }))
  })
})

describe('whole blocks', () => {
  const normalRow = (length: number, seed = 1) => rowOf(length, seeded(seed).normal)

  test.each([1, 1000, 2500])('k %i of 7000', async k => {
    await expectTopK(device, { scores: normalRow(7000, k), k })
  })

  test('a long row among few takes a cluster, and has the bits of the row among many', async () => {
    const share = (tokens: number, width: number) => shareRows({ tokens, width, dtype: 'f32' }, device.limits)
    expect(share(1, 33_000)).toEqual({ cluster: 2, threads: 512 })
    expect(share(1, 2 ** 20)).toEqual({ cluster: 2, threads: 1024 })
    expect(share(8, 33_000)).toEqual({ cluster: 1, threads: 512 })
    expect(share(9, 2 ** 20)).toEqual({ cluster: 1, threads: 256 })
    const row = rowOf(33_000, i => Math.round(seeded(i).normal() * 20))
    await expectTopK(device, { scores: row, k: 500 })
    await expectWith({ room: 512, threads: 256, cluster: 1 }, { scores: row, k: 500 })
  })

  test.each(['f32', 'bf16'] as const)('%s rows that begin anywhere', async dtype => {
    const wide = fromFloats(dtype, [2, 4501], Float32Array.from({ length: 9002 }, seeded(33).normal))
    await expectTopK(device, { scores: wide.narrow(1, 3, 4490), k: 70 })
    const uploaded = device.upload(wide).narrow(1, 3, 4490)
    const { indices } = topK(device, { scores: uploaded, k: 70 })
    expectGate(sameBits(await indices.read(), topKReference({ scores: wide.narrow(1, 3, 4490), k: 70 }).indices))
  })

  test('scores outside the windows are never read', async () => {
    const scores = device.alloc('f32', [2, 5001])
    const inside = normalRow(4100)
    device.write(scores.narrow(0, 1, 1).narrow(1, 7, 4100), inside)
    const window = { lo: i32(5, 7), hi: i32(5, 4107) }
    const { indices, counts } = topK(device, { scores, k: 40, window })
    const expected = topKReference({ scores: inside, k: 40 }).indices.data.map(j => j + 7)
    expect((await counts.read()).data).toEqual(Int32Array.of(0, 40))
    expect((await indices.read()).data.subarray(40)).toEqual(expected)
  })
})

describe.runIf(hasPtxas)('ptxas accepts the kernels without spills', () => {
  const config = { dtype: 'f32', order: 'score', slots: false, room: 2048, cluster: 1, threads: 256 } as const
  const configs: Readonly<Record<string, TopKSm90Config>> = {
    'f32, by score': config,
    'bf16, by index, to slots': { ...config, dtype: 'bf16', order: 'index', slots: true },
    'f32, a cluster of 8': { ...config, cluster: 8 },
    'bf16, to slots, a cluster of 2, k 8192': { ...config, dtype: 'bf16', slots: true, cluster: 2, room: 8192 },
  }
  test.each(Object.entries(configs))('%s', async (_, c) => {
    expect(await assemble(printPtx(traceTopKSm90(c)), 'sm_90a')).toMatchObject({ spilledBytes: 0, complaints: [] })
  })
})
