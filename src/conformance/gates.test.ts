import { describe, expect, test } from 'vitest'
import { decodeValue, encodeValue } from '../dtypes/convert.ts'
import { type AttentionReference, attendRow, emptyReference } from '../kernels/attention-reference.ts'
import { fromFloats, type Tensor, tensor } from '../tensor/tensor.ts'
import { describeReport, type GateReport } from './gate.ts'
import {
  attentionBf16,
  attentionBlockScales,
  attentionF32,
  attentionLse,
  attentionMaxFp8,
  attentionMaxLogits,
  attentionNativeFp8,
  hopperFp8ScoreRounding,
  indexScoresBf16,
  indexScoresF32,
  sameBits,
} from './gates.ts'
import { calcDiff, cosine } from './measures.ts'
import { deepGemmLogits, flashMlaDecode, flashMlaLse, flashMlaPrefill } from './peer-gates.ts'
import { poisoned } from './poison.ts'
import { seeded } from './random.ts'

const rows = 6
const width = 64
const dim = 32
const keys = 40
const scale = 0.2

type Round = (x: number) => number
const exact: Round = x => x
const f32 = Math.fround
const bf16: Round = x => decodeValue('bf16', encodeValue('bf16', x))
const e4m3: Round = x => decodeValue('e4m3', encodeValue('e4m3', x * 64)) / 64

interface Data {
  readonly q: Float64Array[]
  readonly k: Float64Array[]
  readonly v: Float64Array[]
}

const round = (vectors: Float64Array[], to: Round): Float64Array[] => vectors.map(v => v.map(to))

function data(seed: number, sd = 1): Data {
  const { normal } = seeded(seed)
  const vectors = (count: number, n: number) =>
    Array.from({ length: count }, () => Float64Array.from({ length: n }, () => bf16(sd * normal())))
  return { q: vectors(rows, width), k: vectors(keys, width), v: vectors(keys, dim) }
}

function reference({ q, k, v }: Data, sink?: number): AttentionReference {
  const into = emptyReference([rows, dim])
  for (const [row, vector] of q.entries()) attendRow(into, row, { q: vector, keys: k, values: v, scale, sink })
  return into
}

/** An ideal kernel: exact but for the roundings that the variant allows. */
function kernel({ q, k, v }: Data, roundings: { p?: Round; out?: Round; sink?: number }): Tensor<'f32'> {
  const { p: roundP = exact, out: roundOut = f32, sink = -Infinity } = roundings
  const out = q.flatMap(vector => {
    const s = k.map(key => scale * key.reduce((sum, x, c) => sum + x * vector[c]!, 0))
    const m = Math.max(...s)
    const p = s.map(x => Math.exp(x - m))
    const denominator = p.reduce((sum, x) => sum + x, Math.exp(sink - m))
    const column = (c: number) => p.reduce((sum, x, j) => sum + roundP(x) * v[j]![c]!, 0) / denominator
    return Array.from({ length: dim }, (_, c) => roundOut(column(c)))
  })
  return fromFloats('f32', [rows, dim], out)
}

const seeds = [1, 2, 3, 4, 5]
const passes = (report: GateReport): void => expect(describeReport(report)).toMatch(/: pass:/)
const fails = (report: GateReport): void => expect(describeReport(report)).toMatch(/: fail:/)

describe('an ideal kernel passes', () => {
  test.each(seeds)('f32, data %i', seed => {
    const d = data(seed)
    passes(attentionF32(kernel(d, {}), reference(d)))
    passes(attentionF32(kernel(d, { sink: 2 }), reference(d, 2)))
  })

  test.each(seeds)('bf16 weights and output, data %i', seed => {
    const d = data(seed)
    passes(attentionBf16(kernel(d, { p: bf16, out: bf16 }), reference(d)))
  })

  test.each(seeds)('value·scale rounded to bf16, data %i', seed => {
    const scales = seeded(seed + 100)
    const d = data(seed)
    const scaled = {
      ...d,
      k: d.k.map(k => k.map(x => x * (1 + scales.uniform()))),
      v: d.v.map(v => v.map(x => x * 1.37)),
    }
    const rounded = { ...scaled, k: round(scaled.k, bf16), v: round(scaled.v, bf16) }
    passes(attentionBlockScales(kernel(rounded, { p: bf16, out: bf16 }), reference(scaled)))
  })

  test.each(seeds)('e4m3 weights under a bias of 2^6, data %i', seed => {
    const d = data(seed, 0.5)
    passes(attentionNativeFp8(kernel(d, { p: e4m3, out: bf16 }), reference(d)))
    passes(attentionMaxFp8(kernel(d, { p: e4m3, out: bf16 }), reference(d)))
  })
})

test('scores that a coarse accumulator moves by 2^-11·E pass under its g alone', () => {
  const d = data(11)
  const ref = reference(d)
  const moved = kernel({ ...d, k: d.k.map((k, j) => k.map(x => x * (1 + (j % 2 === 0 ? 1 : -1) * 2 ** -11))) }, {})
  passes(attentionF32(moved, ref, { g: hopperFp8ScoreRounding }))
  fails(attentionF32(moved, ref))
})

describe('a wrong kernel fails', () => {
  const d = data(7)
  const sink = 4
  const ref = reference(d, sink)
  const bounded = [attentionF32, attentionBf16, attentionBlockScales, attentionNativeFp8]

  test.each(bounded)('%o: sink ignored', gate => fails(gate(kernel(d, { p: bf16, out: bf16 }), ref)))

  test.each(bounded)('%o: one key in forty lost', gate => {
    const lost = { ...d, k: d.k.slice(1), v: d.v.slice(1) }
    fails(gate(kernel(lost, { out: bf16, sink }), ref))
  })

  test.each(bounded)('%o: columns of V moved by one', gate => {
    const moved = { ...d, v: d.v.map(v => Float64Array.from([...v.slice(1), v[0]!])) }
    fails(gate(kernel(moved, { out: bf16, sink }), ref))
  })

  test('weights rounded to bf16 under the f32 gate', () => fails(attentionF32(kernel(d, { p: bf16, sink }), ref)))

  test('weights rounded to e4m3 under the bf16 gate', () =>
    fails(attentionBf16(kernel(d, { p: e4m3, out: bf16, sink }), ref)))

  test("errors of 1 % on every element under MAX's gate", () => {
    const off = kernel(d, { sink })
    for (const i of off.data.keys()) off.data[i]! += 0.011
    fails(attentionMaxFp8(off, ref))
  })
})

describe('lse and maxLogits', () => {
  const d = data(3)
  const ref = reference(d)
  const lse = fromFloats('f32', [rows], ref.lse)

  test('the rounded reference passes, one that is off by 1e-3 or in base 2 does not', () => {
    passes(attentionLse(lse, ref))
    passes(attentionMaxLogits(fromFloats('f32', [rows], ref.maxLogits), ref))
    fails(
      attentionLse(
        fromFloats(
          'f32',
          [rows],
          ref.lse.map(x => x + 1e-3),
        ),
        ref,
      ),
    )
    fails(
      attentionLse(
        fromFloats(
          'f32',
          [rows],
          ref.lse.map(x => x / Math.LN2),
        ),
        ref,
      ),
    )
    fails(attentionMaxLogits(lse, ref))
  })

  test('block scales allow 2^-8·E, no more', () => {
    const near = ref.lse.map((x, i) => x + 0.9 * 2 ** -8 * ref.absScores[i]!)
    fails(attentionLse(fromFloats('f32', [rows], near), ref))
    passes(attentionLse(fromFloats('f32', [rows], near), ref, { blockScales: true }))
    const far = ref.lse.map((x, i) => x + 1.2 * 2 ** -8 * ref.absScores[i]! + 3.1e-5 * Math.abs(x))
    fails(attentionLse(fromFloats('f32', [rows], far), ref, { blockScales: true }))
  })

  test('the mark of an empty row is exact', () => {
    const empty = emptyReference([2, 1])
    passes(attentionLse(fromFloats('f32', [2], [-Infinity, -Infinity]), empty))
    fails(attentionLse(fromFloats('f32', [2], [-Infinity, Infinity]), empty))
    fails(attentionLse(fromFloats('f32', [2], [-Infinity, -1e30]), empty))
  })
})

describe('index scores', () => {
  const expected = Float64Array.of(1, -2, 0.5, -Infinity, 4, 0, -Infinity, -Infinity)
  const scores = (...values: number[]) => fromFloats('f32', [2, 4], values)

  test('f32', () => {
    passes(indexScoresF32(scores(1, -2, 0.5, -Infinity, 4, 0, -Infinity, -Infinity), expected))
    passes(indexScoresF32(scores(1.001, -2, 0.5, -Infinity, 4, 1e-3, -Infinity, -Infinity), expected))
    fails(indexScoresF32(scores(1.005, -2, 0.5, -Infinity, 4, 0, -Infinity, -Infinity), expected))
    fails(indexScoresF32(scores(1, -2, 0.5, -3e38, 4, 0, -Infinity, -Infinity), expected))
    fails(indexScoresF32(scores(1, -2, 0.5, -Infinity, 4, NaN, -Infinity, -Infinity), expected))
  })

  test('many small errors of one sign exceed calc_diff', () => {
    const random = seeded(1)
    const row = Float64Array.from({ length: 100 }, () => random.normal() + 3)
    passes(indexScoresF32(fromFloats('f32', [1, 100], row), row))
    const shifted = row.map(x => x * (1 + 1.9e-3 * (x > 3 ? 1 : -3)))
    fails(indexScoresF32(fromFloats('f32', [1, 100], shifted), row))
  })

  test('bf16 is the f32 result rounded once', () => {
    const exactScores = scores(1.00390625, -2.7, 0.1, -Infinity, 4, 0, NaN, Infinity)
    passes(indexScoresBf16(exactScores.cast('bf16'), exactScores))
    const off = exactScores.cast('bf16')
    off.data[2]!++
    fails(indexScoresBf16(off, exactScores))
  })
})

describe('peers', () => {
  const expected = [1, -1e-4, 0, 100]
  const values = (...x: number[]) => fromFloats('f32', [4], x)

  test('absolute or relative error', () => {
    passes(flashMlaPrefill(values(1, -8e-4, 7e-4, 100.2), expected))
    fails(flashMlaPrefill(values(1.03, -1e-4, 0, 100), expected))
    fails(flashMlaDecode(values(1.02, -1e-4, 0, 100), expected))
    fails(flashMlaPrefill(values(1, -1e-4, 0, 102), expected)) // cosine distance
    passes(flashMlaLse(values(1, -1e-4, 0, 100.01), expected))
    fails(flashMlaLse(values(1, -1e-4, 0, 100.02), expected))
  })

  test('DeepGEMM', () => {
    const logits = [1, -Infinity, 3, 2]
    passes(deepGemmLogits(values(1.001, -Infinity, 3, 2), logits))
    fails(deepGemmLogits(values(1, -1e9, 3, 2), logits))
    fails(deepGemmLogits(values(1.02, -Infinity, 3, 2), logits))
  })
})

describe('reports', () => {
  test('name the worst element with coordinates, and count what is unwritten, NaN and Inf', () => {
    const actual = poisoned('f32', [2, 3])
    actual.data.set([1, 2, NaN, Infinity, 5.5])
    const report = indexScoresF32(actual, Float64Array.of(1, 2, 3, Infinity, 5, 6))
    expect(report).toMatchObject({ ok: false, elements: 6, wrong: 3, unwritten: 1, nan: 2, inf: 1 })
    expect(report.worst).toMatchObject({ at: [0, 2], value: NaN, expected: 3, error: Infinity, bound: 0.006 })
    expect(describeReport(report)).toBe(
      'index scores f32: fail: 3 of 6 elements out of bound; worst at [0, 2]: NaN, expected 3, error Infinity, ' +
        'bound 0.00600000; calc_diff 0.00383142, limit 0.00000500000; 1 unwritten, 2 NaN, 1 Inf',
    )
  })

  test('poison counts even where NaN is expected', () =>
    expect(indexScoresF32(poisoned('f32', [1, 2]), Float64Array.of(NaN, NaN))).toMatchObject({
      ok: false,
      unwritten: 2,
    }))

  test('same bits: dtypes, signs of zero and NaN', () => {
    const i32 = tensor('i32', [3], Int32Array.of(-1, 2 ** 31 - 1, 5))
    passes(sameBits(i32, i32.clone()))
    fails(sameBits(i32, tensor('i32', [3], Int32Array.of(-1, 2 ** 31 - 2, 5))))
    fails(sameBits(fromFloats('f32', [1], [0]), fromFloats('f32', [1], [-0])))
    passes(sameBits(fromFloats('f32', [1], [NaN]), fromFloats('f32', [1], [NaN])))
    expect(() => sameBits(i32, tensor('i32', [2], Int32Array.of(1, 2)))).toThrow('3 elements [3]')
  })

  test('figures of whole vectors', () => {
    const x = Float64Array.of(1, 2, -3)
    expect(calcDiff(x, x)).toBe(0)
    expect(
      calcDiff(
        x,
        x.map(a => -a),
      ),
    ).toBe(2)
    expect(
      calcDiff(
        x,
        x.map(a => 2 * a),
      ),
    ).toBeCloseTo(1 - 4 / 5)
    expect(calcDiff(new Float64Array(2), new Float64Array(2))).toBe(0)
    expect(
      cosine(
        x,
        x.map(a => 2 * a),
      ),
    ).toBeCloseTo(1)
    expect(cosine(new Float64Array(2), new Float64Array(2))).toBe(1)
  })
})
