import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { fp8Tensors, layerTensors, normalTensor, smallConfig } from '../../test/dsa-layer.ts'
import { type CpuDevice, openCpuDevice } from '../cpu/device.ts'
import { type LatentLayoutName, latentLayouts } from '../tensor/cache-layout.ts'
import type { DeviceTensor } from '../tensor/device-tensor.ts'
import { logical } from '../tensor/spaces.ts'
import { fromFloats, type Tensor, tensor } from '../tensor/tensor.ts'
import type { DsaConfig } from './config.ts'
import { DsaAttention } from './dsa-attention.ts'
import type { DsaCacheSpec, IndexLayoutName } from './dsa-cache.ts'
import { dsaReference } from './reference.ts'
import type { StepOutput } from './step-args.ts'
import { beginStep } from './step-batch.ts'
import { dsaWeights, fromRecord } from './weights.ts'

const tokens = 37
const keepAll: readonly StepOutput[] = ['selection', 'context', 'scores']

/** Largest error in units of the largest reference value. */
function relativeError(actual: ArrayLike<number>, expected: ArrayLike<number>): number {
  const peak = Math.max(...Array.from(expected, Math.abs))
  return Math.max(...Array.from(actual, (value, i) => Math.abs(value - expected[i]!))) / peak
}

function cosine(a: ArrayLike<number>, b: ArrayLike<number>): number {
  let [ab, aa, bb] = [0, 0, 0]
  for (let i = 0; i < a.length; i++) {
    ab += a[i]! * b[i]!
    aa += a[i]! ** 2
    bb += b[i]! ** 2
  }
  return ab / Math.sqrt(aa * bb)
}

const flat = (rows: readonly Float64Array[]): number[] => rows.flatMap(row => [...row])

/** Selected positions of each token. */
function picksOf(selection: Tensor<'i32'>): number[][] {
  const [count, k] = selection.shape as [number, number]
  const codes = [...selection.codes()]
  return Array.from({ length: count }, (_, t) => codes.slice(t * k, (t + 1) * k).filter(i => i >= 0))
}

const yarn = { factor: 40, originalMaxPositions: 16, mscale: 1, mscaleAllDim: 1 }

const models: readonly [string, DsaConfig][] = [
  ['DeepSeek-V3.2', smallConfig],
  ['with YaRN', { ...smallConfig, yarn, rmsEps: 1e-5 }],
  ['GLM', { ...smallConfig, indexerRopeStyle: 'interleaved', nope: 192, v: 256, indexHeads: 32, ropeTheta: 8e6 }],
  ['one head of each, half-split everywhere', { ...smallConfig, heads: 1, indexHeads: 1, mlaRopeStyle: 'half-split' }],
  ['topk larger than the sequence', { ...smallConfig, indexTopk: 300, indexDim: 80 }],
  ['rotated by Hadamard', { ...smallConfig, hadamard: true }],
]

let device: CpuDevice
beforeAll(async () => {
  device = await openCpuDevice({ threads: 1 })
})
afterAll(() => device.dispose())

/** A layer, its cache, and what one sequence of random tokens gives. */
function layer(config: DsaConfig, spec: Partial<DsaCacheSpec> = {}, on = device) {
  const tensors = layerTensors(config, 1)
  const attention = DsaAttention.create(on, dsaWeights(fromRecord(tensors), config), config)
  const cache = attention.createCache({ blocks: 24, pageSize: 5, latent: 'f32', index: 'f32', ...spec })
  const x = normalTensor([tokens, config.hidden], 7)
  return {
    tensors,
    attention,
    cache,
    x,
    async run(keep: readonly StepOutput[] = ['selection']) {
      const id = cache.addSequence()
      const { out, selection, context, scores } = attention.step({
        x,
        cache,
        sequences: [{ id, tokens }],
        keep,
        batchInvariant: true,
      })
      const result = {
        out: (await out.read()).floats(),
        picks: selection && picksOf(await selection.read()),
        context: (await context?.read())?.floats(),
        scores: (await scores?.read())?.floats(),
      }
      for (const t of [out, selection, context, scores]) t?.dispose()
      cache.release(id)
      return result
    },
    [Symbol.dispose]() {
      attention.dispose()
      cache.dispose()
    },
  }
}

test.each(models)('%s equals the reference in float64', async (_, config) => {
  using made = layer(config)
  const expected = dsaReference(fromRecord(made.tensors), config, made.x)
  const actual = await made.run(keepAll)
  expect(actual.picks).toEqual(expected.selection)
  expect(relativeError(actual.context!, flat(expected.context))).toBeLessThan(1e-5)
  expect(relativeError(actual.out, flat(expected.out))).toBeLessThan(1e-5)
  const visible = expected.scores.map((_row, t) => actual.scores!.subarray(t * tokens, t * tokens + t + 1))
  expect(
    relativeError(
      visible.flatMap(row => [...row]),
      flat(expected.scores),
    ),
  ).toBeLessThan(1e-5)
})

test.each<[string, Partial<DsaConfig>, boolean]>([
  ['indexer', { indexerRopeStyle: 'interleaved' }, false],
  ['MLA', { mlaRopeStyle: 'half-split' }, true],
])('the other rope style of the %s gives another result', async (_, change, samePicks) => {
  using made = layer({ ...smallConfig, ...change })
  const expected = dsaReference(fromRecord(made.tensors), smallConfig, made.x)
  const actual = await made.run()
  expect(JSON.stringify(actual.picks) === JSON.stringify(expected.selection)).toBe(samePicks)
  expect(relativeError(actual.out, flat(expected.out))).toBeGreaterThan(0.01)
})

test('fp8 weights with block scales equal the reference on the values they stand for', async () => {
  const config = { ...smallConfig, hidden: 130, qLoraRank: 129 }
  const tensors = fromRecord(fp8Tensors(layerTensors(config, 2)))
  using attention = DsaAttention.create(device, dsaWeights(tensors, config), config)
  using cache = attention.createCache({ blocks: 3, pageSize: 16, latent: 'f32', index: 'f32' })
  const x = normalTensor([tokens, config.hidden], 8)
  const expected = dsaReference(tensors, config, x)
  const sequences = [{ id: cache.addSequence(), tokens }]
  const { out, selection } = attention.step({ x, cache, sequences, keep: ['selection'] })
  expect(picksOf(await selection!.read())).toEqual(expected.selection)
  expect(relativeError((await out.read()).floats(), flat(expected.out))).toBeLessThan(1e-5)
})

// A cosine of e4m3's relative error 2^-4/√12 on every key and value is 0.9997; that of bf16 is beyond 0.99999.
const layouts: readonly [LatentLayoutName, number][] = [
  ['f32', 0.999999999],
  ['bf16', 0.99999],
  ['fp8', 0.998],
  ['fp8-token', 0.998],
  ['fp8-block128', 0.998],
  ['packed656', 0.998],
]

test('every latent layout is tried', () => {
  expect(layouts.map(([name]) => name)).toEqual(Object.keys(latentLayouts))
})

test.each(layouts)('latent rows in %s', async (latent, atLeast) => {
  using made = layer(smallConfig, { latent, blocks: 2, pageSize: 32 })
  const expected = dsaReference(fromRecord(made.tensors), smallConfig, made.x)
  const actual = await made.run()
  expect(actual.picks).toEqual(expected.selection)
  expect(cosine(actual.out, flat(expected.out))).toBeGreaterThan(atLeast)
})

test.each<[IndexLayoutName, boolean, number]>([
  ['bf16', false, 0.98],
  ['bf16', true, 0.98],
  ['fp8', false, 0.85],
  ['fp8', true, 0.85],
  ['fp8-planar', true, 0.85],
])('indexer in %s, Hadamard %s, selects nearly what f32 selects', async (index, hadamard, atLeast) => {
  const config = { ...smallConfig, hadamard }
  using made = layer(config, { index })
  const expected = dsaReference(fromRecord(made.tensors), config, made.x)
  const { picks } = await made.run()
  const right = picks!.map((row, t) => row.filter(i => expected.selection[t]!.includes(i)).length)
  const sum = (values: number[]): number => values.reduce((a, b) => a + b, 0)
  expect(picks!.map(row => row.length)).toEqual(expected.selection.map(row => row.length))
  expect(sum(right) / sum(expected.selection.map(row => row.length))).toBeGreaterThan(atLeast)
})

test('two threads give the bits of one', async () => {
  const two = await openCpuDevice({ threads: 2 })
  for (const spec of [{}, { latent: 'fp8-block128', index: 'fp8' }] as const) {
    using made = layer(smallConfig, spec)
    using other = layer(smallConfig, spec, two)
    expect(await other.run(keepAll)).toEqual(await made.run(keepAll))
  }
  await two.dispose()
})

test('planar and pooled fp8 keys give the same bits', async () => {
  using pools = layer(smallConfig, { index: 'fp8' })
  using planar = layer(smallConfig, { index: 'fp8-planar' })
  expect(await planar.run(keepAll)).toEqual(await pools.run(keepAll))
})

test('memory that nothing was written to is never read', async () => {
  using clean = layer(smallConfig)
  using made = layer(smallConfig)
  const { latent, index } = { latent: made.cache.latent(0).values, index: made.cache.index(0).values }
  for (const pool of [latent, index] as DeviceTensor<'f32'>[])
    device.write(pool, fromFloats('f32', pool.shape, new Float32Array(pool.size).fill(Number.NaN)))
  expect(await made.run(keepAll)).toEqual(await clean.run(keepAll))
})

describe('steps', () => {
  /** Rows of `x` in steps of `chunk` tokens. */
  async function inChunks(chunk: number, batchInvariant: boolean, spec: Partial<DsaCacheSpec> = {}) {
    using made = layer(smallConfig, spec)
    const { attention, cache, x } = made
    const id = cache.addSequence()
    const outs: Tensor[] = []
    const picks: number[][] = []
    for (let start = 0; start < tokens; start += chunk) {
      const count = Math.min(chunk, tokens - start)
      const rows = x.narrow(0, start, count)
      const sequences = [{ id, tokens: count }]
      const step = attention.step({ x: rows, cache, sequences, keep: ['selection'], batchInvariant })
      outs.push(await step.out.read())
      picks.push(...picksOf(await step.selection!.read()))
    }
    return { out: outs.flatMap(out => [...out.floats()]), picks }
  }

  test.each([16, 8, 7, 1])('chunks of %d are one shot', async chunk => {
    for (const spec of [{}, { latent: 'packed656', index: 'fp8' }] as const) {
      const whole = await inChunks(tokens, true, spec)
      expect(await inChunks(chunk, true, spec)).toEqual(whole)
      const decoded = await inChunks(chunk, false, spec)
      expect(decoded.picks).toEqual(whole.picks)
      expect(relativeError(decoded.out, whole.out)).toBeLessThan(1e-6)
    }
  })

  test('a ragged batch equals its sequences alone, bit for bit', async () => {
    using made = layer(smallConfig)
    const { attention, cache, x } = made
    const ids = [0, 1, 2, 3].map(() => cache.addSequence())
    const lengths = [
      [9, 0, 4, 3],
      [1, 7, 0, 2],
    ]
    const alone = new Map<number, number[]>(ids.map(id => [id, []]))
    const batched = new Map<number, number[]>(ids.map(id => [id, []]))
    const solo = attention.createCache({ blocks: 12, pageSize: 3, latent: 'f32', index: 'f32' })
    const soloIds = ids.map(() => solo.addSequence())
    let start = 0
    for (const counts of lengths) {
      const total = counts.reduce((a, b) => a + b, 0)
      const sequences = ids.map((id, b) => ({ id, tokens: counts[b]! }))
      const rows = x.narrow(0, start, total)
      const out = await attention.step({ x: rows, cache, sequences, batchInvariant: true }).out.read()
      let at = 0
      for (const [b, count] of counts.entries()) {
        batched.get(ids[b]!)!.push(...out.narrow(0, at, count).floats())
        const single = { x: rows.narrow(0, at, count), cache: solo, batchInvariant: true }
        const step = attention.step({ ...single, sequences: [{ id: soloIds[b]!, tokens: count }] })
        alone.get(ids[b]!)!.push(...(await step.out.read()).floats())
        at += count
      }
      start += total
    }
    solo.dispose()
    expect(batched).toEqual(alone)
  })

  test.each([1, 3, 8])('%d queries a sequence of three at once', async queries => {
    const all: number[][] = []
    for (const batchInvariant of [true, false]) {
      using made = layer(smallConfig, { latent: 'bf16' })
      const { attention, cache } = made
      const ids = [5, 0, 2].map(length => {
        const id = cache.addSequence()
        const x = normalTensor([length, smallConfig.hidden], 20 + length)
        attention.step({ x, cache, sequences: [{ id, tokens: length }] })
        return id
      })
      const x = normalTensor([3 * queries, smallConfig.hidden], 30)
      const sequences = ids.map(id => ({ id, tokens: queries }))
      const { out, context } = attention.step({ x, cache, sequences, batchInvariant, keep: ['context'] })
      expect(context!.shape).toEqual([3 * queries, smallConfig.heads, smallConfig.v])
      all.push([...(await out.read()).floats()])
    }
    expect(relativeError(all[1]!, all[0]!)).toBeLessThan(1e-6)
  })

  test('no tokens at all', async () => {
    using made = layer(smallConfig)
    const { attention, cache, x } = made
    const none = attention.step({ x: x.narrow(0, 0, 0), cache, sequences: [], keep: keepAll })
    expect((await none.out.read()).shape).toEqual([0, smallConfig.hidden])
  })

  test('layers of a stack share one step of one cache', async () => {
    using made = layer(smallConfig)
    const { attention, x } = made
    const stack = attention.createCache({ blocks: 4, pageSize: 16, layers: 3, latent: 'f32', index: 'f32' })
    const id = stack.addSequence()
    const batch = beginStep(stack, [{ id, tokens }])
    const layers = [0, 2].map(index => attention.step({ x, cache: stack, sequences: batch, layer: index }).out)
    const expected = await made.run()
    for (const out of layers) expect((await out.read()).floats()).toEqual(expected.out)
    expect(stack.length(id)).toBe(tokens)
    stack.dispose()
  })
})

test('a given selection takes the place of the indexer, on the host and on the device', async () => {
  using made = layer(smallConfig)
  const { attention, cache, x } = made
  const own = attention.step({ x, cache, sequences: [{ id: cache.addSequence(), tokens }], keep: ['selection'] })
  const expected = await own.out.read()
  for (const selection of [own.selection!, await own.selection!.read()])
    for (const index of ['f32', 'none'] as const) {
      using other = attention.createCache({ blocks: 8, pageSize: 5, latent: 'f32', index })
      const sequences = [{ id: other.addSequence(), tokens }]
      const { out } = attention.step({ x, cache: other, sequences, selection: logical(selection) })
      expect(await out.read()).toEqual(expected)
    }
})

test('the keys of a step with a given selection serve the indexer later', async () => {
  using made = layer(smallConfig)
  const { attention, cache, x } = made
  const id = cache.addSequence()
  const first = logical(
    tensor(
      'i32',
      [20, 1],
      Int32Array.from({ length: 20 }, (_, t) => t),
    ),
  )
  attention.step({ x: x.narrow(0, 0, 20), cache, sequences: [{ id, tokens: 20 }], selection: first })
  const rest = { x: x.narrow(0, 20, tokens - 20), cache, sequences: [{ id, tokens: tokens - 20 }] }
  const { selection } = attention.step({ ...rest, keep: ['selection'] })
  expect(picksOf(await selection!.read())).toEqual((await made.run()).picks!.slice(20))
})

test('profile gives the result of step, and the time of every stage', async () => {
  using made = layer(smallConfig)
  const { attention, cache, x } = made
  const seen: string[] = []
  const options = { x, cache, batchInvariant: true, onStage: (stage: string) => seen.push(stage) }
  const profiled = await attention.profile({ ...options, sequences: [{ id: cache.addSequence(), tokens }] })
  const names = ['kv_proj', 'q_proj', 'indexer', 'select', 'attend', 'out_proj']
  expect(profiled.stages.map(({ name }) => name)).toEqual(names)
  expect(profiled.stages.every(({ ms }) => ms > 0 && ms < 60_000)).toBe(true)
  expect((await profiled.out.read()).floats()).toEqual((await made.run()).out)
  attention.step({ ...options, x: x.narrow(0, 0, 1), sequences: [{ id: cache.addSequence(), tokens: 1 }] })
  expect(seen).toEqual([...names, ...names])
})

test('everything but the results is given back', async () => {
  await device.sync()
  const empty = device.bytesInUse
  const made = layer(smallConfig, { index: 'fp8' })
  await made.run(keepAll)
  await device.sync()
  const { attention, cache, x } = made
  const id = cache.addSequence()
  const idle = device.bytesInUse
  for (const keep of [keepAll, []] as const) {
    const { out, ...kept } = attention.step({ x, cache, sequences: [{ id, tokens }], keep })
    cache.truncate(id, 0)
    await device.sync()
    expect(device.bytesInUse).toBeGreaterThan(idle)
    for (const result of [out, ...Object.values(kept)]) result.dispose()
    expect(device.bytesInUse).toBe(idle)
  }
  made[Symbol.dispose]()
  attention.dispose()
  expect(device.bytesInUse).toBe(empty)
})
