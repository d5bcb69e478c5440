import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { layerTensors, normalTensor, smallConfig } from '../../test/dsa-layer.ts'
import { type CpuDevice, openCpuDevice } from '../cpu/device.ts'
import {
  DeviceError,
  DisposedError,
  DtypeError,
  IndexSpaceError,
  MemoryError,
  OptionError,
  ShapeError,
  type SparseMlaError,
  ValueError,
} from '../errors.ts'
import { createPagedCache, type PagedCache } from '../tensor/paged-cache.ts'
import { logical, slots } from '../tensor/spaces.ts'
import { tensor, zeros } from '../tensor/tensor.ts'
import { DsaAttention } from './dsa-attention.ts'
import { ropeTable } from './rope-table.ts'
import type { StepArgs } from './step-args.ts'
import { beginStep } from './step-batch.ts'
import { dsaWeights, fromRecord } from './weights.ts'

const { hidden } = smallConfig
const weights = dsaWeights(fromRecord(layerTensors(smallConfig, 3)), smallConfig)
const x = normalTensor([6, hidden], 4)

let device: CpuDevice
let attention: DsaAttention
let cache: PagedCache
let id: number
beforeAll(async () => {
  device = await openCpuDevice({ threads: 1 })
  attention = DsaAttention.create(device, weights, smallConfig)
})
afterAll(() => device.dispose())
beforeEach(() => {
  cache = attention.createCache({ blocks: 3, pageSize: 4, latent: 'f32', index: 'f32' })
  id = cache.addSequence()
  attention.step({ x: x.narrow(0, 0, 3), cache, sequences: [{ id, tokens: 3 }] }).out.dispose()
  return () => cache.dispose()
})

const good = (): StepArgs => ({ x, cache, sequences: [{ id, tokens: 6 }] })

type ErrorClass = new (...args: never[]) => SparseMlaError

const list = (rows: readonly (readonly number[])[]) =>
  tensor('i32', [rows.length, rows[0]!.length], Int32Array.from(rows.flat()))

const cases: readonly [string, () => Partial<StepArgs>, ErrorClass, string][] = [
  ['x of another width', () => ({ x: normalTensor([6, hidden + 1], 1) }), ShapeError, 'x is [6, 91]'],
  ['x of another dtype', () => ({ x: zeros('f16', [6, hidden]) as never }), DtypeError, 'x is f16'],
  ['x missing', () => ({ x: undefined as never }), OptionError, 'x is missing'],
  [
    'more tokens than the sequences',
    () => ({ x: normalTensor([7, hidden], 1) }),
    ShapeError,
    'x is 7 tokens; expected 6',
  ],
  ['no list of sequences', () => ({ sequences: id as never }), OptionError, 'sequences'],
  ['an unknown sequence', () => ({ sequences: [{ id: 99, tokens: 6 }] }), ValueError, 'id is 99'],
  [
    'negative tokens',
    () => ({
      sequences: [
        { id, tokens: -1 },
        { id, tokens: 7 },
      ],
    }),
    ValueError,
    'tokens is -1',
  ],
  [
    'a fractional number of tokens',
    () => ({
      sequences: [
        { id, tokens: 5.5 },
        { id, tokens: 0.5 },
      ],
    }),
    ValueError,
    'tokens is 5.5',
  ],
  ['an unknown option', () => ({ chunk: 3 }) as never, OptionError, 'chunk is an unknown option'],
  ['an unknown result', () => ({ keep: ['lse' as never] }), OptionError, 'keep is lse'],
  ['no cache', () => ({ cache: {} as never }), OptionError, 'cache'],
  ['a layer that is not there', () => ({ layer: 1 }), ValueError, 'layer is 1'],
  [
    'a selection of slots',
    () => ({ selection: slots(list([[0], [1], [2], [3], [4], [5]])) as never }),
    IndexSpaceError,
    'selection is slot',
  ],
  ['a selection of other tokens', () => ({ selection: logical(list([[0], [1]])) }), ShapeError, 'selection is [2, 1]'],
  [
    'a selection that looks ahead',
    () => ({ selection: logical(list([[3], [4], [6], [0], [0], [0]])) }),
    ValueError,
    "selection[2] is 6; expected positions up to the token's own, 5",
  ],
  [
    'scores of a given selection',
    () => ({ selection: logical(list([[0], [0], [0], [0], [0], [0]])), keep: ['scores'] }),
    OptionError,
    'keep is scores',
  ],
  ['a flag that is none', () => ({ batchInvariant: 1 as never }), OptionError, 'batchInvariant is 1'],
]

test.each(cases)('%s is refused, nothing has changed', async (_, change, kind, text) => {
  await device.sync()
  const before = device.bytesInUse
  const args = { ...good(), ...change() }
  expect(() => attention.step(args)).toThrow(kind)
  expect(() => attention.step(args)).toThrow(text)
  await expect(attention.profile(args)).rejects.toThrow(kind)
  expect(cache.length(id)).toBe(3)
  expect(device.bytesInUse).toBe(before)
})

test('negative entries of a selection, and all-ones of u32, are no look ahead', async () => {
  const entries = [
    [3, -1],
    [-5, 0],
    [5, 5],
    [0, -1],
    [-1, -1],
    [8, 0],
  ]
  const one = attention.step({ ...good(), selection: logical(list(entries)) })
  cache.truncate(id, 3)
  const unsigned = tensor(
    'u32',
    [6, 2],
    Uint32Array.from(entries.flat(), entry => (entry < 0 ? 0xffff_ffff : entry)),
  )
  const other = attention.step({ ...good(), selection: logical(unsigned) })
  const [a, b] = [await one.out.read(), await other.out.read()]
  expect(a).toEqual(b)
  expect([...a.narrow(0, 4, 1).floats()]).toEqual(new Array(hidden).fill(0))
})

describe('the cache', () => {
  const stepInto = (other: PagedCache) => () => {
    const sequence = other.addSequence()
    attention.step({ x, cache: other, sequences: [{ id: sequence, tokens: 6 }] })
  }

  test('too small for the sequence', async () => {
    const long = normalTensor([10, hidden], 5)
    await device.sync()
    const before = device.bytesInUse
    const args = {
      x: long,
      cache,
      sequences: [
        { id, tokens: 4 },
        { id: cache.addSequence(), tokens: 6 },
      ],
    }
    expect(() => attention.step(args)).toThrow(MemoryError)
    expect(() => attention.step(args)).toThrow('pages needed is 3; expected at most 2')
    expect([cache.length(id), cache.pages.freePages, device.bytesInUse]).toEqual([3, 2, before])
  })

  test('without indexer keys', () => {
    using other = attention.createCache({ blocks: 3, pageSize: 4, latent: 'f32', index: 'none' })
    expect(stepInto(other)).toThrow('a cache made with an index layout')
  })

  test('with other rows or keys', () => {
    const spec = {
      blocks: 3,
      pageSize: 4,
      layers: 1,
      alloc: (dtype: never, shape: never) => device.alloc(dtype, shape),
    }
    const latent = { format: 'plain', dtype: 'f32', width: 576, scaleBlock: 0 } as const
    const index = { format: 'pools', dtype: 'f32', depth: 64 } as const
    using shallow = createPagedCache({ ...spec, latent, index } as never)
    expect(stepInto(shallow)).toThrow('cache is keys of 64; expected 128')
    using narrow = createPagedCache({
      ...spec,
      latent: { ...latent, width: 512 },
      index: { ...index, depth: 128 },
    } as never)
    expect(stepInto(narrow)).toThrow(ShapeError)
  })

  test('on the host, on another device, disposed', async () => {
    const latent = { format: 'plain', dtype: 'f32', width: 576, scaleBlock: 0 } as const
    const index = { format: 'pools', dtype: 'f32', depth: 128 } as const
    const host = createPagedCache({ blocks: 3, pageSize: 4, layers: 1, latent, index, alloc: zeros })
    expect(stepInto(host)).toThrow(DeviceError)
    const two = await openCpuDevice({ threads: 1 })
    const elsewhere = DsaAttention.create(two, weights, smallConfig)
    expect(stepInto(elsewhere.createCache({ blocks: 3, pageSize: 4, latent: 'f32', index: 'f32' }))).toThrow(
      DeviceError,
    )
    await two.dispose()
    const gone = attention.createCache({ blocks: 3, pageSize: 4, latent: 'f32', index: 'f32' })
    gone.dispose()
    expect(stepInto(gone)).toThrow(DisposedError)
  })

  test('of unknown layouts', () => {
    const spec = { blocks: 3, pageSize: 4, latent: 'f32', index: 'f32' } as const
    expect(() => attention.createCache({ ...spec, latent: 'int4' as never })).toThrow('latent is int4')
    expect(() => attention.createCache({ ...spec, index: 'int4' as never })).toThrow('index is int4')
    expect(() => attention.createCache({ ...spec, index: undefined as never })).toThrow('index is missing')
    expect(() => attention.createCache({ ...spec, size: 3 } as never)).toThrow('size is an unknown option')
    expect(() => attention.createCache({ ...spec, blocks: 0 })).toThrow(ValueError)
  })

  test('of another step', () => {
    using other = attention.createCache({ blocks: 3, pageSize: 4, latent: 'f32', index: 'f32' })
    const batch = beginStep(other, [{ id: other.addSequence(), tokens: 6 }])
    expect(() => attention.step({ x, cache, sequences: batch })).toThrow('a step of another cache')
  })
})

describe('the layer', () => {
  const create = (change: object) => DsaAttention.create(device, weights, { ...smallConfig, ...change } as never)

  test('must know its rope style, and the rest of its config', () => {
    expect(() => create({ indexerRopeStyle: undefined })).toThrow(OptionError)
    expect(() => create({ indexerRopeStyle: undefined })).toThrow(
      "indexerRopeStyle is missing; expected 'half-split' (DeepSeek-V3.2) or 'interleaved' (GLM)",
    )
    expect(() => create({ indexerRopeStyle: 'neox' })).toThrow('indexerRopeStyle is neox')
    expect(() => create({ heads: 129 })).toThrow('heads is 129')
    expect(() => create({ temperature: 1 })).toThrow('temperature is an unknown option')
  })

  test('with rope tables too short, or of another width', () => {
    const table = ropeTable({ positions: 7, dim: 64, theta: 1e4 })
    using short = DsaAttention.create(device, weights, smallConfig, { rope: table })
    short.step({ x: x.narrow(0, 0, 4), cache, sequences: [{ id, tokens: 4 }] }).out.dispose()
    const one = { x: x.narrow(0, 0, 1), cache, sequences: [{ id, tokens: 1 }] }
    expect(() => short.step(one)).toThrow('8 positions; expected at most 7')
    expect(cache.length(id)).toBe(7)
    const wide = ropeTable({ positions: 7, dim: 66, theta: 1e4 })
    expect(() => DsaAttention.create(device, weights, smallConfig, { rope: wide })).toThrow('rope.cos is [7, 33]')
    const halves = { cos: table.cos, sin: table.sin.narrow(0, 0, 6) }
    expect(() => DsaAttention.create(device, weights, smallConfig, { rope: halves })).toThrow('rope.sin is [6, 32]')
  })

  test('disposed', () => {
    const gone = DsaAttention.create(device, weights, smallConfig)
    gone.dispose()
    expect(() => gone.step(good())).toThrow(DisposedError)
    expect(() => gone.createCache({ blocks: 1, pageSize: 1, latent: 'f32', index: 'f32' })).toThrow(DisposedError)
  })
})

describe('when the device fails', () => {
  /** Makes call number `after` of a method fail, and says how many calls there were. */
  function failing(method: 'alloc' | 'sync', after: number, error: Error) {
    const original = device[method] as (...args: unknown[]) => unknown
    let calls = 0
    Object.assign(device, {
      [method]: (...args: unknown[]) => {
        if (calls++ === after) {
          if (method === 'sync') return Promise.reject(error)
          throw error
        }
        return original.apply(device, args)
      },
    })
    return {
      get calls() {
        return calls
      },
      [Symbol.dispose]: () => void Reflect.deleteProperty(device, method),
    }
  }

  test('in any allocation of a step, the step leaves nothing behind', async () => {
    const full = new MemoryError({ where: 'test', allowed: 'fewer allocations' })
    await device.sync()
    const before = device.bytesInUse
    let allocations = 0
    {
      using counting = failing('alloc', -1, full)
      attention.step(good()).out.dispose()
      cache.truncate(id, 3)
      allocations = counting.calls
    }
    for (let after = 0; after < allocations; after++) {
      {
        using _ = failing('alloc', after, full)
        expect(() => attention.step(good())).toThrow(full)
      }
      await device.sync()
      expect([cache.length(id), device.bytesInUse]).toEqual([3, before])
    }
    expect(allocations).toBeGreaterThan(15)
  })

  test('in any stage of a profiled step, the sequence is as before', async () => {
    const broken = new Error('broken')
    await device.sync()
    const before = device.bytesInUse
    for (let after = 0; after < 7; after++) {
      {
        using _ = failing('sync', after, broken)
        await expect(attention.profile(good())).rejects.toThrow(broken)
      }
      await device.sync()
      expect([cache.length(id), device.bytesInUse]).toEqual([3, before])
    }
  })

  test('while weights are uploaded, those before are given back', async () => {
    await device.sync()
    const before = device.bytesInUse
    const full = new MemoryError({ where: 'test', allowed: 'fewer allocations' })
    using _ = failing('alloc', 5, full)
    expect(() => DsaAttention.create(device, weights, smallConfig)).toThrow(full)
    await device.sync()
    expect(device.bytesInUse).toBe(before)
  })
})
