import { describe, expect, test } from 'vitest'
import { pageKeys, randomScoring } from '../../test/index-cases.ts'
import { openCudaDevice } from '../cuda/device.ts'
import { FakeDriver } from '../cuda/fake-driver.ts'
import type { Device, Plan } from '../device.ts'
import { DeviceError, DisposedError, OverlapError, ValueError } from '../errors.ts'
import type { GpuPlan } from '../lang/launch.ts'
import { SimDevice } from '../sim/device.ts'
import type { DeviceTensor } from '../tensor/device-tensor.ts'
import { fromFloats, type Tensor, tensor, zeros } from '../tensor/tensor.ts'
import { signatureOf } from './call-signature.ts'
import { indexScores } from './index-scores.ts'
import { multiply } from './multiply.ts'
import { rope } from './rope.ts'
import { topK } from './top-k.ts'

const device = new SimDevice('sm_80')
const rows = (count: number, first = 1): DeviceTensor<'f32'> =>
  device.upload(
    fromFloats(
      'f32',
      [count, 4],
      Float32Array.from({ length: 4 * count }, (_, i) => first + i),
    ),
  )
const valuesOf = async (t: DeviceTensor): Promise<number[]> => [...(await t.read()).floats()]

describe('the signature of a call', () => {
  const x = rows(6)
  const of = (args: object): string | undefined => signatureOf(args)?.text

  test('is that of another tensor of the same description, in order', () => {
    const y = rows(6)
    expect(of({ x, factor: 2 })).toBe(of({ x: y, factor: 2 }))
    expect(signatureOf({ a: y, b: { c: [x, y] } })!.tensors).toEqual([y, x, y])
    expect(of({ x: x.narrow(0, 0, 2) })).toBe(of({ x: x.narrow(0, 0, 2), y: undefined })?.replace('y:;', ''))
  })

  test('differs with every option, extent, stride, dtype, space and alignment', () => {
    const wide = device.alloc('f32', [6, 64])
    const calls = [
      { x },
      { x, factor: 2 },
      { x, factor: -0 },
      { x, factor: 0 },
      { x, factor: '2' },
      { x, flag: true },
      { x, flag: false },
      { y: x },
      { x: { y: x } },
      { x: rows(5) },
      { x: device.alloc('i32', [6, 4]) },
      { x: x.withSpace('slot') },
      { x: wide.narrow(1, 0, 4) },
      { x: wide.narrow(1, 1, 4) },
      { x: null },
    ]
    const texts = calls.map(of)
    expect(new Set(texts).size).toBe(calls.length)
    expect(of({ x: wide.narrow(1, 32, 4) })).toBe(of({ x: wide.narrow(1, 0, 4) }))
  })

  test('is missing where values count or more than plain data comes', () => {
    const host = tensor('f32', [1], Float32Array.of(1))
    for (const value of [host, () => 1, new Map(), AbortSignal.abort(), Symbol('a'), 1n])
      expect(of({ x, value })).toBeUndefined()
  })
})

describe('a call that comes again', () => {
  test('is checked and planned twice at most, and runs on the tensors of each time', async () => {
    const checked: Plan[] = []
    const counting: Device = Object.assign(new SimDevice('sm_90a'), {})
    const { submit } = counting
    counting.submit = (plan, ...rest) => {
      checked.push(plan)
      submit.call(counting, plan, ...rest)
    }
    const inputs = [1, 5, 9, 13].map(first => counting.upload(fromFloats('f32', [1, 4], [first, 2, 3, 4])))
    const results = inputs.map(x => valuesOf(multiply(counting, { x, factor: 3 }).out))
    expect((await Promise.all(results)).map(([first]) => first)).toEqual([3, 15, 27, 39])
    const launches = checked.map(plan => (plan as GpuPlan).launches[0]!)
    expect(launches.map(({ args }) => (args.x as DeviceTensor).allocation)).toEqual(inputs.map(t => t.allocation))
    expect(new Set(launches.map(({ kernel }) => kernel)).size).toBe(1)
  })

  test('tells views of one tensor apart, and views that are other tensors the next time', async () => {
    const angles = (value: number): DeviceTensor<'f32'> =>
      device.upload(fromFloats('f32', [2, 2, 2], new Float32Array(8).fill(value)))
    const positions = device.upload(tensor('i32', [1], Int32Array.of(1)))
    const turn = (cos: DeviceTensor<'f32'>, sin: DeviceTensor<'f32'>): Promise<number[]> => {
      const x = device.upload(fromFloats('f32', [1, 4], [1, 0, 1, 0]))
      return valuesOf(rope(device, { x, cos, sin, positions, style: 'interleaved', start: 0, length: 4 }).out)
    }
    const both = device.upload(fromFloats('f32', [2, 2, 2], [1, 1, 1, 1, 2, 2, 2, 2]))
    for (let i = 0; i < 3; i++) expect(await turn(both.select(0, 0), both.select(0, 1))).toEqual([1, 2, 1, 2])
    expect(await turn(angles(5).select(0, 0), angles(7).select(0, 0))).toEqual([5, 7, 5, 7])
    expect(await turn(both.select(0, 1), both.select(0, 1))).toEqual([2, 2, 2, 2])
  })

  test('keeps the place of views of another dtype: planar pools that begin within an allocation', async () => {
    const { q, qScale, keys } = randomScoring({ tokens: 2, keys: 9, heads: 2, depth: 16 })
    const paged = pageKeys(keys, { pageSize: 4, lengths: [9], format: 'planar' })
    const { pool } = paged
    const [blocks, layers, bytes] = pool.values.shape as readonly number[]
    const wide = zeros('u8', [2 * blocks!, layers!, bytes!])
    wide.data.set((pool.values as Tensor<'u8'>).data, blocks! * layers! * bytes!)
    const args = {
      q: device.upload(q),
      qScale: device.upload(qScale),
      keys: {
        pool: { ...pool, values: device.upload(wide).narrow(0, blocks!, blocks!) as never },
        blockTable: device.upload(paged.blockTable),
        cacheLength: device.upload(tensor('u32', [1], Uint32Array.of(9))),
        lengthsIncludeNew: true,
      },
      rowOffsets: device.upload(tensor('u32', [2], Uint32Array.of(0, 2))),
      window: 'all',
      width: 9,
    } as const
    const [first, ...again] = await Promise.all(
      [1, 2, 3, 4].map(() => valuesOf(indexScores(device, args as never).scores)),
    )
    expect(first!.every(Number.isFinite)).toBe(true)
    expect(again).toEqual([first, first, first])
  })

  test('gives fresh outputs, or fills those of the caller', async () => {
    const scores = rows(2)
    const made = [1, 2, 3].map(() => topK(device, { scores, k: 2 }))
    expect(new Set(made.map(({ indices }) => indices.allocation)).size).toBe(3)
    for (const { indices } of made) {
      expect(indices.space).toBe('logical')
      expect(await valuesOf(indices)).toEqual([3, 2, 3, 2])
    }
    for (const first of [1, 2, 3, 4]) {
      const out = device.alloc('f32', [2, 8])
      multiply(device, { x: rows(2, first), into: { out: out.narrow(1, 4, 4) } })
      expect((await valuesOf(out.narrow(1, 4, 4)))[0]).toBe(first)
    }
  })

  test('is still refused on tensors that are gone, overlap, or lie elsewhere', () => {
    const x = rows(3)
    for (let i = 0; i < 3; i++) multiply(device, { x, into: { out: rows(3) } })
    const wide = device.alloc('f32', [6, 4])
    for (let i = 0; i < 3; i++) multiply(device, { x: wide.narrow(0, 0, 3), into: { out: wide.narrow(0, 3, 3) } })
    expect(() => multiply(device, { x, into: { out: x } })).toThrow(OverlapError)
    expect(() => multiply(device, { x: wide.narrow(0, 0, 3), into: { out: wide.narrow(0, 2, 3) } })).toThrow(
      OverlapError,
    )
    const gone = rows(3)
    gone.dispose()
    expect(() => multiply(device, { x: gone, into: { out: rows(3) } })).toThrow(DisposedError)
    const elsewhere = new SimDevice('sm_90a').alloc('f32', [3, 4])
    expect(() => multiply(device, { x: elsewhere, into: { out: rows(3) } })).toThrow(DeviceError)
    for (let i = 0; i < 3; i++) expect(() => multiply(device, { x, factor: Number.NaN })).toThrow(ValueError)
  })

  test('costs the driver one launch, its tensor maps being kept', async () => {
    const driver = new FakeDriver()
    await using card = await openCudaDevice(0, { driver })
    const x = card.alloc('f32', [3, 4])
    const out = card.alloc('f32', [3, 4])
    for (let i = 0; i < 3; i++) multiply(card, { x, into: { out } })
    const from = driver.calls.length
    multiply(card, { x, into: { out } })
    expect(driver.calls.slice(from)).toEqual(['cuLaunchKernel'])
  })
})
