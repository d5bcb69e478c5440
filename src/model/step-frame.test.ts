import { afterAll, describe, expect, test } from 'vitest'
import { layerTensors, normalTensor, smallConfig } from '../../test/dsa-layer.ts'
import { openCpuDevice } from '../cpu/device.ts'
import { openCudaDevice } from '../cuda/device.ts'
import { FakeDriver } from '../cuda/fake-driver.ts'
import type { Device } from '../device.ts'
import { MemoryError, OptionError, ShapeError } from '../errors.ts'
import type { DeviceTensor } from '../tensor/device-tensor.ts'
import type { AppendRequest } from '../tensor/page-table.ts'
import type { PagedCache } from '../tensor/paged-cache.ts'
import type { Tensor } from '../tensor/tensor.ts'
import { DsaAttention, type DsaOptions } from './dsa-attention.ts'
import { StepFrame } from './step-frame.ts'
import { dsaWeights, fromRecord } from './weights.ts'

const cpu = await openCpuDevice({ threads: 1 })
afterAll(() => cpu.dispose())

const { hidden } = smallConfig

function layer(device: Device, options: DsaOptions = {}): { attention: DsaAttention; cache: PagedCache } {
  const attention = DsaAttention.create(
    device,
    dsaWeights(fromRecord(layerTensors(smallConfig, 1)), smallConfig),
    smallConfig,
    options,
  )
  const cache = attention.createCache({ blocks: 24, pageSize: 5, latent: 'f32', index: 'f32' })
  return { attention, cache }
}

/** `rows` of x, each token its own, in a tensor of `room` rows whose others are NaN. */
function inputs(rows: number, room: number, seed: number): Tensor<'bf16'> {
  const x = normalTensor([room, hidden], seed)
  x.data.fill(0x7fc0, rows * hidden)
  return x
}

/** Steps as lists of new tokens a sequence. */
const ragged = [
  [5, 9, 3],
  [1, 12, 4],
  [7, 0, 2],
]
const decoded = [
  [1, 1, 1],
  [1, 1, 1],
]

describe('steps in a frame give the bits of plain steps', () => {
  test.each([
    ['ragged', ragged, { tokens: 23 }],
    ['ragged, no room to spare', ragged, { tokens: 17 }],
    ['decoded', decoded, { queries: 1 }],
  ] as const)('%s', async (_name, steps, room) => {
    const [plain, framed] = [layer(cpu), layer(cpu)]
    const sequences = 'queries' in room ? 3 : 4
    using frame = new StepFrame(cpu, { cache: framed.cache, sequences, ...room, maxKeys: 40 })
    const ids = [0, 1, 2].map(() => (plain.cache.addSequence(), framed.cache.addSequence()))
    for (const [nth, counts] of steps.entries()) {
      const requests: AppendRequest[] = ids.map((id, b) => ({ id, tokens: counts[b]! }))
      const count = counts.reduce((a, b) => a + b, 0)
      const x = inputs(count, frame.tokens, nth)
      const expected = plain.attention.step({ x: x.narrow(0, 0, count), cache: plain.cache, sequences: requests })
      frame.begin(requests)
      const { out } = framed.attention.step({ x, cache: framed.cache, sequences: frame })
      expect((await out.read()).narrow(0, 0, count).codes()).toEqual((await expected.out.read()).codes())
    }
  })

  test('activations of bf16 stay near those of f32', async () => {
    const [exact, rounded] = [layer(cpu), layer(cpu, { activations: 'bf16' })]
    const x = inputs(9, 9, 4)
    const results = [exact, rounded].map(async ({ attention, cache }) => {
      const { out } = attention.step({ x, cache, sequences: [{ id: cache.addSequence(), tokens: 9 }] })
      return (await out.read()).floats()
    })
    const [a, b] = (await Promise.all(results)) as [Float32Array, Float32Array]
    const peak = Math.max(...a.map(Math.abs))
    const worst = Math.max(...a.map((value, i) => Math.abs(value - b[i]!)))
    expect(worst).toBeLessThan(0.02 * peak)
    expect(worst).toBeGreaterThan(0)
  })
})

describe('a frame refuses', () => {
  const { cache } = layer(cpu)
  const id = cache.addSequence()
  const spec = { cache, sequences: 2, maxKeys: 12 }

  test('specifications without or with two counts of tokens', () => {
    for (const counts of [{}, { queries: 1, tokens: 4 }])
      expect(() => new StepFrame(cpu, { ...spec, ...counts })).toThrow(OptionError)
  })

  test('more sequences, tokens or keys than it has room for, and the cache is as before', () => {
    using frame = new StepFrame(cpu, { ...spec, tokens: 8 })
    using single = new StepFrame(cpu, { ...spec, queries: 2 })
    expect(() => frame.begin([1, 2, 3].map(() => ({ id, tokens: 1 })))).toThrow(ShapeError)
    expect(() => frame.begin([{ id, tokens: 9 }])).toThrow('tokens is 9; expected at most 8')
    expect(() => single.begin([{ id, tokens: 1 }])).toThrow(
      'tokens is 1; expected 2, as every sequence of the frame has',
    )
    frame.begin([{ id, tokens: 8 }])
    expect(() => frame.begin([{ id, tokens: 5 }])).toThrow(MemoryError)
    expect(cache.length(id)).toBe(8)
    const { attention } = layer(cpu)
    const other = attention.createCache({ blocks: 2, pageSize: 4, latent: 'f32', index: 'f32' })
    expect(() => attention.step({ x: inputs(8, 8, 1), cache: other, sequences: frame })).toThrow(
      'a step of another cache',
    )
  })
})

test('a recorded step takes one copy and one launch, and reads nothing on the host', async () => {
  const driver = new FakeDriver()
  await using device = await openCudaDevice(0, { driver })
  const { attention, cache } = layer(device, { activations: 'bf16' })
  using frame = new StepFrame(device, { cache, sequences: 2, queries: 1, maxKeys: 60 })
  const ids = [cache.addSequence(), cache.addSequence()]
  const requests = ids.map(id => ({ id, tokens: 1 }))
  const x = device.upload(normalTensor([2, hidden], 3))
  const batch = frame.begin(requests)
  let out: DeviceTensor | undefined
  const record = () => device.capture(() => void attention.step({ x, cache, sequences: frame }))
  expect(record).toThrow('call attention.reserve(60) first')
  attention.reserve(frame.longest)
  using graph = device.capture(() => {
    out = attention.step({ x, cache, sequences: frame }).out
  })
  batch.undo()
  const [copies, allocations] = [driver.count('cuMemcpyHtoDAsync_v2'), driver.count('cuMemAlloc_v2')]
  for (let step = 0; step < 3; step++) {
    const from = driver.calls.length
    frame.begin(requests)
    graph.replay()
    expect(driver.calls.slice(from).filter(name => name !== 'cuCtxSetCurrent')).toEqual([
      'cuMemcpyHtoDAsync_v2',
      'cuGraphLaunch',
    ])
  }
  expect(driver.count('cuMemcpyHtoDAsync_v2')).toBe(copies + 3)
  expect(driver.count('cuMemAlloc_v2')).toBe(allocations)
  expect([cache.length(ids[0]!), out!.shape]).toEqual([3, [2, hidden]])
})
