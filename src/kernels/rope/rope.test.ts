import { afterAll, describe, expect, test } from 'vitest'
import { embedded, expectRounded, expectSameBits, normals, poisonedOut } from '../../../test/row-cases.ts'
import { openCpuDevice } from '../../cpu/device.ts'
import { ropeTable } from '../../model/rope-table.ts'
import { rope } from '../../ops/rope.ts'
import { fromFloats, type Tensor, tensor } from '../../tensor/tensor.ts'
import type { RopeProblem, RopeStyle } from './problem.ts'
import { type RopeInputs, ropeReference } from './reference.ts'

const device = await openCpuDevice({ threads: 1 })
const pair = await openCpuDevice({ threads: 2 })
const plain = await openCpuDevice({ threads: 1, build: 'simd128' })
afterAll(() => Promise.all([device, pair, plain].map(d => d.dispose())))

const styles: readonly RopeStyle[] = ['interleaved', 'half-split']
const i32 = (...values: number[]): Tensor<'i32'> => tensor('i32', [values.length], Int32Array.from(values))
const row = (...values: number[]): Tensor<'f32'> => fromFloats('f32', [1, values.length], values)
const unit = (dim: number, at: number): Tensor<'f32'> => row(...Array.from({ length: dim }, (_, i) => Number(i === at)))

/** |a cos| + |b sin| of every element: what the two products and their sum round. */
function magnitudes(inputs: RopeInputs, problem: RopeProblem): Float64Array {
  const abs = (t: Tensor): Tensor<'f32'> => fromFloats('f32', t.shape, t.floats().map(Math.abs))
  const [x, cos, sin] = [inputs.x, inputs.cos, inputs.sin].map(abs) as [Tensor<'f32'>, Tensor<'f32'>, Tensor<'f32'>]
  const flipped = fromFloats(
    'f32',
    sin.shape,
    sin.floats().map(value => -value),
  )
  const plus = ropeReference({ x, cos, sin, positions: inputs.positions }, problem)
  const minus = ropeReference({ x, cos, sin: flipped, positions: inputs.positions }, problem)
  return plus.map((value, i) => Math.max(value, minus[i]!))
}

const expectRope = (out: Tensor, inputs: RopeInputs, problem: RopeProblem): void =>
  expectRounded(out, ropeReference(inputs, problem), 2, magnitudes(inputs, problem))

const dot = (a: Tensor, b: Tensor): number => a.floats().reduce((sum, value, i) => sum + value * b.floats()[i]!, 0)

describe.each(styles)('rope, %s', style => {
  test.each([
    [64, 0, 64],
    [128, 0, 64],
    [192, 128, 64],
    [20, 3, 14],
    [9, 2, 2],
    [16, 4, 6],
    [8, 8, 0],
  ])('dim %i, columns from %i, %i of them, against float64', async (dim, start, length) => {
    const { cos, sin } = ropeTable({ positions: 50, dim: Math.max(2, length), theta: 10_000 })
    const positions = i32(0, 49, 7, 7, 1)
    const table = { cos: cos.narrow(1, 0, length / 2).clone(), sin: sin.narrow(1, 0, length / 2).clone() }
    for (const dtype of ['f32', 'bf16'] as const) {
      const inputs = { x: normals(dtype, [5, 3, dim], dim), ...table, positions }
      const into = { out: poisonedOut(device, dtype, [5, 3, dim]) }
      const out = await rope(device, { ...inputs, style, start, length, into }).out.read()
      expectRope(out, inputs, { style, start, length })
      const left = start === 0 ? [] : [out.narrow(2, 0, start), inputs.x.narrow(2, 0, start)]
      if (left.length > 0) expectSameBits(left[0]!, left[1]!)
      const right = [out, inputs.x].map(t => t.narrow(2, start + length, dim - start - length))
      expectSameBits(right[0]!, right[1]!)
    }
  })

  test('IA-03: q·k depends on the distance of the positions alone', async () => {
    const { cos, sin } = ropeTable({ positions: 400, dim: 64, theta: 10_000 })
    const [q, k] = [normals('f32', [1, 64], 1), normals('f32', [1, 64], 2)]
    const turned = (x: Tensor<'f32'>, position: number): Promise<Tensor> =>
      rope(device, { x, cos, sin, positions: i32(position), style, start: 0, length: 64 }).out.read()
    const scores: number[] = []
    for (const [p, o] of [
      [17, 0],
      [217, 200],
      [399, 382],
    ])
      scores.push(dot(await turned(q, p!), await turned(k, o!)))
    for (const score of scores) expect(score).toBeCloseTo(scores[0]!, 4)
    expect(dot(await turned(q, 0), await turned(k, 17))).not.toBeCloseTo(scores[0]!, 1)
    expect(dot(await turned(q, 5), await turned(k, 5))).toBeCloseTo(dot(q, k), 4)
  })

  test('NaN around a view is not read, and neither around the tables', async () => {
    const { cos, sin } = ropeTable({ positions: 9, dim: 16, theta: 100 })
    const x = normals('f32', [4, 2, 24], 3)
    const positions = i32(8, 0, 3, 5)
    const args = { positions, style, start: 5, length: 16 }
    const expected = await rope(device, { ...args, x, cos, sin }).out.read()
    const views = [x, cos, sin].map(t => embedded(device, t, Number.NaN))
    const out = await rope(device, { ...args, x: views[0]!, cos: views[1]!, sin: views[2]! }).out.read()
    expectSameBits(out, expected)
  })

  test('the same bits on two workers and in either build', async () => {
    const { cos, sin } = ropeTable({ positions: 300, dim: 10, theta: 10_000 })
    const positions = tensor(
      'u32',
      [300],
      Uint32Array.from({ length: 300 }, (_, i) => 299 - i),
    )
    const args = { x: normals('bf16', [300, 4, 12], 4), cos, sin, positions, style, start: 1, length: 10 }
    const one = await rope(device, args).out.read()
    for (const other of [pair, plain]) expectSameBits(await rope(other, args).out.read(), one)
  })

  test('a position on the device outside the table gives NaN in the rotated columns, the rest is copied', async () => {
    const { cos, sin } = ropeTable({ positions: 4, dim: 4, theta: 100 })
    const x = normals('f32', [4, 8], 5)
    const positions = device.upload(i32(3, 4, -1, 0))
    const { out } = rope(device, { x, cos, sin, positions, style, start: 2, length: 4 })
    const host = await out.read()
    for (const t of [1, 2]) {
      const [values, source] = [host, x].map(r => [...r.narrow(0, t, 1).floats()])
      expect(values!.slice(2, 6).every(Number.isNaN)).toBe(true)
      expect([...values!.slice(0, 2), ...values!.slice(6)]).toEqual([...source!.slice(0, 2), ...source!.slice(6)])
    }
    expect(host.narrow(0, 3, 1).floats()).toEqual(x.narrow(0, 3, 1).floats())
    expect(host.narrow(0, 0, 1).floats().some(Number.isNaN)).toBe(false)
  })
})

describe('rope, the styles apart', () => {
  test('IA-01: the half-split indexer pairs columns 0 and 32, not 0 and 1', async () => {
    const { cos, sin } = ropeTable({ positions: 2, dim: 64, theta: 10_000 })
    const turned = (at: number, position: number, style: RopeStyle): Promise<Tensor> =>
      rope(device, { x: unit(128, at), cos, sin, positions: i32(position), style, start: 0, length: 64 }).out.read()
    const q = await turned(0, 1, 'half-split')
    expect(dot(q, await turned(32, 0, 'half-split'))).toBeCloseTo(Math.sin(1), 6)
    expect(dot(q, await turned(1, 0, 'half-split'))).toBe(0)
    expect(dot(await turned(0, 1, 'interleaved'), await turned(32, 0, 'interleaved'))).toBe(0)
  })

  test('IA-03: mixed styles and an unrotated side are caught by equal positions', async () => {
    const { cos, sin } = ropeTable({ positions: 6, dim: 64, theta: 10_000 })
    const x = unit(64, 0)
    const turned = (style: RopeStyle): Promise<Tensor> =>
      rope(device, { x, cos, sin, positions: i32(5), style, start: 0, length: 64 }).out.read()
    for (const style of styles) expect(dot(await turned(style), await turned(style))).toBeCloseTo(1, 6)
    expect(dot(await turned('interleaved'), await turned('half-split'))).toBeCloseTo(Math.cos(5) ** 2, 6)
    expect(dot(await turned('half-split'), x)).toBeCloseTo(Math.cos(5), 6)
  })
})
