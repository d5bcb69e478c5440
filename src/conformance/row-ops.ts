/** Conformance of the operations on rows: rmsNorm, layerNorm, rope, hadamard, multiply, linear, cast, quantize. */

import type { Device } from '../device.ts'
import { encodeArray } from '../dtypes/convert.ts'
import type { FloatDtype } from '../dtypes/dtype.ts'
import { hadamardReference } from '../kernels/hadamard/reference.ts'
import { layerNormReference } from '../kernels/layer-norm/reference.ts'
import { linearReference } from '../kernels/linear/reference.ts'
import { quantizeReference } from '../kernels/quantize/reference.ts'
import { rmsNormReference } from '../kernels/rms-norm/reference.ts'
import { ropeReference } from '../kernels/rope/reference.ts'
import { cast } from '../ops/cast.ts'
import { hadamard } from '../ops/hadamard.ts'
import { layerNorm } from '../ops/layer-norm.ts'
import { linear } from '../ops/linear.ts'
import { multiply } from '../ops/multiply.ts'
import { quantize } from '../ops/quantize.ts'
import { rmsNorm } from '../ops/rms-norm.ts'
import { rope } from '../ops/rope.ts'
import type { DeviceTensor } from '../tensor/device-tensor.ts'
import { fromFloats, type Tensor, tensor, zeros } from '../tensor/tensor.ts'
import { type ConformanceCase, judge, type Verdict } from './case.ts'
import { collect, ints, normals, poisonedOutputs, scalesAbove } from './data.ts'
import { compare, compareBits, type GateReport } from './gate.ts'
import { type Random, seeded } from './random.ts'

type RowDtype = 'f32' | 'bf16'

const tokens = 3
const heads = 2
const eps = 1e-6

/** Half a unit in the last place of a value, relative. */
const halfUlp: Readonly<Record<RowDtype, number>> = { f32: 2 ** -24, bf16: 2 ** -8 }

/** |err| <= the rounding of the output and `terms` roundings in f32 of sums of absolute products `absolute`. */
function rounded(
  gate: string,
  actual: Tensor,
  expected: Float64Array,
  terms: number,
  absolute: ArrayLike<number> = expected.map(Math.abs),
): GateReport {
  const last = halfUlp[actual.dtype as RowDtype]
  const bound = (i: number): number =>
    1.01 * (last * Math.abs(expected[i]!) + terms * 2 ** -24 * absolute[i]!) + 2 ** -133
  return compare({ gate, actual, expected, bound })
}

interface Expected {
  readonly values: Float64Array
  /** Roundings in f32 on the way to a value, of magnitudes up to `absolute`. */
  readonly terms: number
  /** Default: the magnitudes of the values. */
  readonly absolute?: Float64Array
}

/** Runs an operation whose output is like x, into poison. */
async function onRows(
  device: Device,
  op: string,
  x: Tensor<RowDtype>,
  { values, terms, absolute }: Expected,
  call: (into: { readonly out: DeviceTensor<RowDtype> }) => unknown,
): Promise<Verdict> {
  const into = poisonedOutputs(device, { out: [x.dtype, x.shape] })
  call(into)
  const { out } = await collect(into)
  return judge(rounded(op, out, values, terms, absolute))
}

/** Normal rows `[tokens, heads, width]`; column 5 of the second token's first row is NaN. */
function rowsWithNan(random: Random, dtype: RowDtype, width: number): Tensor<RowDtype> {
  const values = normals(random, 'f32', [tokens, heads, width], 3).data
  values[heads * width + Math.min(5, width - 1)] = NaN
  return fromFloats(dtype, [tokens, heads, width], values)
}

const dtypes: readonly RowDtype[] = ['f32', 'bf16']

const normCases: readonly ConformanceCase[] = dtypes.flatMap(dtype => [
  {
    op: 'rmsNorm',
    name: `${dtype}, a NaN stays in its row`,
    run(device) {
      const random = seeded(1)
      const x = rowsWithNan(random, dtype, 72)
      const weight = normals(random, 'bf16', [72])
      const values = rmsNormReference(x, weight, eps)
      return onRows(device, 'rmsNorm', x, { values, terms: 0 }, into => rmsNorm(device, { x, weight, eps, into }))
    },
  },
  {
    op: 'layerNorm',
    name: `${dtype}, bias, a NaN stays in its row`,
    run(device) {
      const random = seeded(2)
      const x = rowsWithNan(random, dtype, 128)
      const [weight, bias] = [normals(random, 'bf16', [128]), normals(random, 'f32', [128])]
      const values = layerNormReference(x, weight, bias, eps)
      return onRows(device, 'layerNorm', x, { values, terms: 0 }, into =>
        layerNorm(device, { x, weight, bias, eps, into }),
      )
    },
  },
  {
    op: 'hadamard',
    name: `${dtype}, dim 128`,
    run(device) {
      const x = rowsWithNan(seeded(3), dtype, 128)
      const values = hadamardReference(x)
      const sums = hadamardReference(fromFloats('f32', x.shape, x.floats().map(Math.abs)))
      const absolute = sums.map((_, i) => sums[i - (i % 128)]!)
      return onRows(device, 'hadamard', x, { values, terms: 8, absolute }, into => hadamard(device, { x, into }))
    },
  },
  {
    op: 'multiply',
    name: `${dtype}, two factors`,
    run(device) {
      const random = seeded(4)
      const x = rowsWithNan(random, dtype, 33)
      const y = normals(random, 'f32', x.shape)
      const [xs, ys] = [x.floats(), y.floats()]
      const values = Float64Array.from(xs, (value, i) => value * ys[i]! * Math.fround(0.3))
      return onRows(device, 'multiply', x, { values, terms: 2 }, into => multiply(device, { x, y, factor: 0.3, into }))
    },
  },
])

const ropeCases: readonly ConformanceCase[] = (['interleaved', 'half-split'] as const).flatMap(style =>
  dtypes.map(dtype => ({
    op: 'rope',
    name: `${style}, ${dtype}, columns 16 to 80 of 96`,
    run(device: Device) {
      const random = seeded(5)
      const x = rowsWithNan(random, dtype, 96)
      const angles = Array.from({ length: 7 * 32 }, () => 6 * random.uniform())
      const cos = fromFloats('f32', [7, 32], angles.map(Math.cos))
      const sin = fromFloats('f32', [7, 32], angles.map(Math.sin))
      const positions = ints('i32', [tokens], [6, 0, 3])
      const shape = { style, start: 16, length: 64 }
      const values = ropeReference({ x, cos, sin, positions }, shape)
      const ones = fromFloats('f32', x.shape, x.floats().map(Math.abs))
      const [c, s] = [cos, sin].map(t => fromFloats('f32', t.shape, t.floats().map(Math.abs)))
      const plus = ropeReference({ x: ones, cos: c!, sin: s!, positions }, shape)
      const minus = ropeReference(
        {
          x: ones,
          cos: c!,
          sin: fromFloats(
            'f32',
            s!.shape,
            s!.data.map(v => -v),
          ),
          positions,
        },
        shape,
      )
      const absolute = plus.map((value, i) => Math.max(value, minus[i]!))
      return onRows(device, 'rope', x, { values, terms: 2, absolute }, into =>
        rope(device, { x, cos, sin, positions, ...shape, into }),
      )
    },
  })),
)

/** f32 sums of `inputs` products, roundings at random. */
const sumTerms = 16

const linearCases: readonly ConformanceCase[] = (['f32', 'bf16', 'f16', 'e4m3'] as const).map(dtype => ({
  op: 'linear',
  name: `${dtype} weight${dtype === 'e4m3' ? ', scales of 128 x 128' : ''}, a matrix a head, odd widths`,
  async run(device) {
    const random = seeded(6)
    const x = rowsWithNan(random, 'f32', 150)
    const weight = normals(random, dtype, [heads, 139, 150])
    const weightScale = dtype === 'e4m3' ? scalesAbove(random, [heads, 2, 2], 0.01) : undefined
    const into = poisonedOutputs(device, { out: ['f32', [tokens, heads, 139]] })
    linear(device, { x, weight, weightScale, into })
    const { out } = await collect(into)
    const expected = linearReference({ x, weight, weightScale })
    return judge(rounded('linear', out, expected.out, sumTerms, expected.absolute))
  },
}))

/** Tensor cores take bf16 operands; they cut sums off, a unit for each 16 of the 152 columns, and the few are shared out. */
const tensorCases: readonly ConformanceCase[] = [
  { count: 3, batchInvariant: false },
  { count: 131, batchInvariant: false },
  { count: 3, batchInvariant: true },
].flatMap(({ count, batchInvariant }) =>
  dtypes.map(outDtype => ({
    op: 'linear',
    name: `bf16 x and weight, ${count} tokens to ${outDtype}${batchInvariant ? ', batch-invariant' : ''}`,
    async run(device) {
      const random = seeded(7)
      const [x, weight] = [normals(random, 'bf16', [count, 152]), normals(random, 'bf16', [136, 152])]
      x.data[152 + 5] = 0x7fc0
      const into = poisonedOutputs(device, { out: [outDtype, [count, 136]] })
      linear(device, { x, weight, outDtype, batchInvariant, into })
      const { out } = await collect(into)
      const expected = linearReference({ x, weight })
      return judge(rounded('linear', out, expected.out, sumTerms, expected.absolute))
    },
  })),
)

/** Values at every exponent, halves between codes, subnormals, infinities, NaN, both zeros. */
function awkward(): Float32Array {
  const values = [0, -0, Infinity, -Infinity, NaN, 448, 449, 464, 480, 57344, 61440, 65504, 65520, 3.4e38]
  for (let exponent = -30; exponent < 18; exponent++)
    for (const m of [1, 1.0625, 1.125, 1.1875, 1.5, 1.9375, 1.99999]) values.push(m * 2 ** exponent, -m * 2 ** exponent)
  return Float32Array.from(values)
}

const castCases: readonly ConformanceCase[] = (['bf16', 'f16', 'e4m3', 'e5m2'] as const).flatMap(dtype => {
  const values = awkward()
  const shape = [values.length]
  const check = async (
    device: Device,
    x: Tensor<'f32' | 'bf16' | 'f16' | 'e4m3' | 'e5m2'>,
    to: 'f32' | typeof dtype,
  ) => {
    const { out } = await collect(cast(device, { x, dtype: to }))
    const expected = tensor(to, x.shape, encodeArray(to as FloatDtype, x.floats()) as never)
    return judge(compareBits(`cast to ${to}`, plainNans(out as Tensor), plainNans(expected as Tensor)))
  }
  return [
    { op: 'cast', name: `f32 to ${dtype}`, run: device => check(device, fromFloats('f32', shape, values), dtype) },
    { op: 'cast', name: `${dtype} to f32`, run: device => check(device, fromFloats(dtype, shape, values), 'f32') },
  ]
})

/** One code for all NaN: their payloads are free. */
function plainNans(t: Tensor): Tensor {
  const floats = t.floats()
  const copy = t.clone()
  for (const [i, value] of floats.entries()) if (Number.isNaN(value)) copy.data[i] = 0
  return copy
}

const quantizeCases: readonly ConformanceCase[] = [0, 32, 128, 300].flatMap(scaleBlock =>
  [false, true].map(powerOfTwoScales => ({
    op: 'quantize',
    name: `blocks of ${scaleBlock}${powerOfTwoScales ? ', powers of two' : ''}, a NaN, an infinity, a zero block`,
    async run(device: Device) {
      const values = normals(seeded(7), 'f32', [tokens, 300], 20).data
      values.set([NaN, Infinity], 10)
      values.fill(0, 300, 428)
      const x = fromFloats('f32', [tokens, 300], values)
      const expected = quantizeReference(x, { scaleBlock: Math.min(scaleBlock, 300), powerOfTwoScales })
      const perRow = expected.scales.length / tokens
      const scalesInto = scaleBlock === 0 ? {} : poisonedOutputs(device, { scales: ['f32', [tokens, perRow]] })
      const into = { codes: device.upload(unlikelyCodes([tokens, 300])), ...scalesInto }
      quantize(device, { x, scaleBlock, powerOfTwoScales, into })
      const { codes, scales } = await collect({ scales: undefined, ...into })
      const wanted = tensor('e4m3', [tokens, 300], expected.codes)
      const reports = [compareBits('codes', plainNans(codes), plainNans(wanted))]
      if (scales !== undefined)
        reports.push(compareBits('scales', scales, tensor('f32', [tokens, perRow], expected.scales)))
      return judge(...reports)
    },
  })),
)

/** Instead of poison, which is a NaN code and may be written: a code that 900 random values do not repeat. */
function unlikelyCodes(shape: readonly number[]): Tensor<'e4m3'> {
  const t = zeros('e4m3', shape)
  t.data.fill(0x55)
  return t
}

export const rowOpCases: readonly ConformanceCase[] = [
  ...normCases,
  ...ropeCases,
  ...linearCases,
  ...tensorCases,
  ...castCases,
  ...quantizeCases,
]
