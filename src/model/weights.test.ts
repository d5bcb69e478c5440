import { describe, expect, test } from 'vitest'
import { fp8Tensors, type LayerTensors, layerTensors, normalTensor, smallConfig } from '../../test/dsa-layer.ts'
import { decodeE4m3 } from '../dtypes/e4m3.ts'
import { DtypeError, OptionError, ShapeError, UnsupportedError } from '../errors.ts'
import { zeros } from '../tensor/tensor.ts'
import { dsaWeights, fromRecord, requiredTensors } from './weights.ts'

const { heads, nope, v } = smallConfig
const tensors = layerTensors(smallConfig, 1)
const load = (from: LayerTensors) => dsaWeights(fromRecord(from), smallConfig)

test('kv_b is split by head: its key half transposed, its value half as it is', () => {
  const { wUk, wUv } = load(tensors)
  expect([wUk.shape, wUv.shape]).toEqual([
    [heads, 512, nope],
    [heads, v, 512],
  ])
  expect([wUk.dtype, wUv.dtype]).toEqual(['bf16', 'bf16'])
  const kvB = tensors['kv_b_proj.weight']!.floats()
  const [k, values] = [wUk.floats(), wUv.floats()]
  for (const [h, r, d] of [
    [0, 0, 0],
    [1, 511, nope - 1],
    [heads - 1, 77, 5],
  ] as const)
    expect(k[(h * 512 + r) * nope + d]).toBe(kvB[(h * (nope + v) + d) * 512 + r])
  for (const [h, c, r] of [
    [0, 0, 0],
    [1, v - 1, 511],
    [heads - 1, 5, 77],
  ] as const)
    expect(values[(h * v + c) * 512 + r]).toBe(kvB[(h * (nope + v) + nope + c) * 512 + r])
})

test('an e4m3 kv_b is multiplied out to f32 first, block by block', () => {
  const fp8 = fp8Tensors(tensors)
  const { wUk, wUv, qA, indexWeights } = load(fp8)
  expect([wUk.dtype, wUv.dtype]).toEqual(['f32', 'f32'])
  const codes = fp8['kv_b_proj.weight']!.codes()
  const scales = fp8['kv_b_proj.weight_scale_inv']!.floats()
  const value = (row: number, column: number): number =>
    Math.fround(decodeE4m3(Number(codes[row * 512 + column])) * scales[Math.floor(row / 128) * 4 + (column >> 7)]!)
  // Rows of head 2 lie on both sides of row 128.
  for (const d of [0, nope - 1]) expect(wUk.data[(2 * 512 + 300) * nope + d]).toBe(value(2 * (nope + v) + d, 300))
  for (const c of [0, v - 1]) expect(wUv.data[(2 * v + c) * 512 + 128]).toBe(value(2 * (nope + v) + nope + c, 128))
  expect(2 * (nope + v)).toBeLessThan(128)
  expect(3 * (nope + v)).toBeGreaterThan(128)
  expect([qA.weight.dtype, qA.scale?.shape, indexWeights.scale]).toEqual(['e4m3', [1, 1], undefined])
})

test('f32 weights and norms are taken as they are', () => {
  const wide = Object.fromEntries(Object.entries(tensors).map(([name, t]) => [name, t.cast('f32')]))
  const { wUk, qANorm } = load(wide)
  expect(wUk.floats()).toEqual(load(tensors).wUk.floats())
  expect(qANorm).toBe(wide['q_a_layernorm.weight'])
})

test('names may have a prefix', () => {
  const prefixed = Object.fromEntries(Object.entries(tensors).map(([name, t]) => [`w.${name}`, t]))
  expect(dsaWeights(fromRecord(prefixed), smallConfig, 'w.')).toEqual(load(tensors))
})

describe('refusals', () => {
  test.each(requiredTensors(smallConfig))('%s missing', name => {
    const { [name]: _, ...rest } = tensors
    expect(() => load(rest)).toThrow(OptionError)
    expect(() => load(rest)).toThrow(`tensors is without ${name}; expected all 12 tensors of a layer`)
  })

  test('all that is missing is named at once', () => {
    expect(() => load({})).toThrow(`without ${requiredTensors(smallConfig).join(', ')}`)
  })

  test.each(requiredTensors(smallConfig))('%s of another shape or dtype', name => {
    const { shape } = tensors[name]!
    const wrong = shape.with(0, shape[0]! + 1)
    expect(() => load({ ...tensors, [name]: normalTensor(wrong, 1) })).toThrow(ShapeError)
    expect(() => load({ ...tensors, [name]: normalTensor(wrong, 1) })).toThrow(
      `${name} is [${wrong.join(', ')}]; expected [${shape.join(', ')}]`,
    )
    expect(() => load({ ...tensors, [name]: normalTensor([...shape, 1], 1) })).toThrow(ShapeError)
    expect(() => load({ ...tensors, [name]: zeros('i32', shape) })).toThrow(DtypeError)
  })

  test('norms in e4m3', () => {
    const [name] = ['kv_a_layernorm.weight']
    expect(() => load({ ...tensors, [name!]: zeros('e4m3', [512]) })).toThrow(DtypeError)
  })

  test('scales that are missing, superfluous, or of another form', () => {
    const fp8 = fp8Tensors(tensors)
    const name = 'o_proj.weight_scale_inv'
    const { [name]: scale, ...rest } = fp8
    expect(() => load(rest)).toThrow(`${name} is missing; expected the scales of an e4m3 weight`)
    expect(() => load({ ...tensors, [name]: scale! })).toThrow(
      `${name} is a tensor; expected none beside a weight of bf16`,
    )
    expect(() => load({ ...fp8, [name]: zeros('f32', [2, 1]) })).toThrow(ShapeError)
    expect(() => load({ ...fp8, [name]: zeros('bf16', [1, 1]) })).toThrow(DtypeError)
  })

  test('biases', () => {
    const biased = { ...tensors, 'o_proj.bias': zeros('f32', [smallConfig.hidden]) }
    expect(() => load(biased)).toThrow(UnsupportedError)
    expect(() => load(biased)).toThrow('o_proj.bias is a tensor; expected no biases')
  })

  test('a config that is incomplete', () => {
    expect(() => dsaWeights(fromRecord(tensors), { ...smallConfig, heads: 0 })).toThrow('heads is 0')
  })
})
