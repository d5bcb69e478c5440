/** Kinds of faults that users of other attention kernels reported; each tag is one kind. */

import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import {
  denseOperands,
  denseVariants,
  expectReference,
  expectSame,
  nanTensor,
  offsetsOf,
  pagedOperands,
  runDense,
} from '../../../test/dense-cases.ts'
import { attentionF32, attentionLse, expectGate } from '../../../test/gates.ts'
import { seeded } from '../../../test/random.ts'
import { type CpuDevice, openCpuDevice } from '../../cpu/device.ts'
import { type DensePrefillArgs, densePrefill } from '../../ops/dense-prefill.ts'
import { mergeStates } from '../../ops/merge-states.ts'
import { fromFloats, type Tensor } from '../../tensor/tensor.ts'
import { and, causal, causalPadding, materialized, slidingWindow } from './masks.ts'
import { densePrefillReference } from './reference.ts'
import { alibi } from './score-mods.ts'

let device: CpuDevice
beforeAll(async () => {
  device = await openCpuDevice({ threads: 1 })
})
afterAll(() => device.dispose())

const call = (args: object): DensePrefillArgs => args as DensePrefillArgs
const f32 = (shape: number[], values: number[]): Tensor<'f32'> => fromFloats('f32', shape, values)

describe('DP-01 DP-03: parts without keys in a merge', () => {
  test('a row whose first parts are empty is its last part; one that is empty in all is 0 and -inf', async () => {
    const operands = denseOperands({ queries: [40], keys: [300], heads: 2 })
    // Rows 0..9 see only the last part of three, 10..19 nothing, the others everything.
    const values = Array.from({ length: 40 * 300 }, (_, i) => {
      const [row, k] = [Math.floor(i / 300), i % 300]
      return row < 10 ? (k >= 290 ? 0 : -Infinity) : row < 20 ? -Infinity : 0
    })
    const mask = materialized(f32([1, 40, 300], values))
    const args = call({ ...operands, mask, partition: 3 })
    await expectReference(device, 'f32', args)
    const { out, lse } = await runDense(device, args)
    const rows = lse.floats()
    expect([...rows].map((x, i) => (x === -Infinity ? Math.floor(i / 2) : -1)).filter(row => row >= 0)).toEqual(
      Array.from({ length: 20 }, (_, i) => 10 + Math.floor(i / 2)),
    )
    expect(out.floats().subarray(10 * 48, 20 * 48)).toEqual(new Float32Array(480))
  })

  test('context chunks as calls of their own, merged: an empty chunk is marked -inf and takes no part', async () => {
    const operands = denseOperands({ queries: [3, 4], keys: [10, 90], heads: 2 })
    const shown = (from: number, to: number) =>
      materialized(
        f32(
          [2, 4, 90],
          Array.from({ length: 720 }, (_, i) => (i % 90 >= from && i % 90 < to && i % 360 >= 90 ? 0 : -Infinity)),
        ),
      )
    // Row 0 of each sequence sees nothing; the first sequence has no key in the later chunks.
    const bounds = [0, 8, 40, 90]
    const parts = bounds
      .slice(1)
      .map((to, i) => densePrefill(device, call({ ...operands, mask: shown(bounds[i]!, to) })))
    const sink = f32([2], [0.5, -1])
    const merged = mergeStates(device, { out: parts.map(({ out }) => out), lse: parts.map(({ lse }) => lse), sink })
    const ref = densePrefillReference(call({ ...operands, mask: shown(0, 90), sink }))
    expectGate(attentionF32(await merged.out.read(), ref))
    expectGate(attentionLse(await merged.lse.read(), ref))
    const lse = (await parts[2]!.lse.read()).floats()
    expect([...lse].map(x => Number(x === -Infinity))).toEqual([1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0])
  })

  test('sequences without keys among others, split', async () => {
    const operands = denseOperands({ queries: [3, 5, 2], keys: [3, 0, 70], heads: 2 })
    for (const partition of [1, 2, 5])
      await expectReference(device, 'f32', call({ ...operands, mask: causal(), partition }))
  })
})

describe('DP-05: more keys than queries, or fewer', () => {
  test.each([
    [1, 5, [5]],
    [2, 5, [4, 5]],
    [3, 128, [126, 127, 128]],
    [5, 2, [0, 0, 0, 1, 2]],
    [5, 5, [1, 2, 3, 4, 5]],
    [1, 0, [0]],
    [70, 3, [...Array.from({ length: 68 }, () => 0), 1, 2, 3].slice(-70)],
  ])('%s queries over %s keys see %s', async (queries, keys, counts) => {
    // Equal scores: lse is the logarithm of the number of keys seen, out the mean of their values.
    const values = Array.from({ length: keys }, (_, j) => j)
    const operands = {
      q: f32(
        [queries, 1, 65],
        Array.from({ length: queries * 65 }, () => 0),
      ),
      keys: { nope: f32([keys, 1, 1], values), v: f32([keys, 1, 1], values), rope: nanTensor('f32', [keys, 64]) },
    }
    operands.keys.rope.data.fill(1)
    const { out, lse } = await runDense(device, call({ ...operands, mask: causal(), scale: 1 }))
    const [means, logs] = [out.floats(), lse.floats()]
    for (const [row, n] of counts.entries()) {
      expect(logs[row]).toBeCloseTo(Math.log(n), 5)
      expect(means[row]).toBeCloseTo(n === 0 ? 0 : (n - 1) / 2, 4)
    }
  })
})

describe('DP-09: 16384 tokens in all', () => {
  const many = (lengths: number[]) =>
    denseOperands({ queries: lengths, keys: lengths, heads: 1, nope: 4, vDim: 4, seed: 9 })

  test.each([[[16_383]], [[16_384]], [[8192, 8192]]])('%s: single calls', async lengths => {
    const operands = many(lengths)
    const mask = slidingWindow(24)
    const whole = await runDense(device, call({ ...operands, mask }))
    const [q, nope, v, rope] = [operands.q, operands.keys.nope, operands.keys.v, operands.keys.rope] as Tensor<'f32'>[]
    let start = 0
    for (const length of lengths) {
      // The last 100 tokens alone, over the keys that they see.
      const [row, key] = [start + length - 100, start + length - 123]
      const keys = { nope: nope!.narrow(0, key, 123), v: v!.narrow(0, key, 123), rope: rope!.narrow(0, key, 123) }
      const args = call({ scale: operands.scale, q: q!.narrow(0, row, 100), keys, mask })
      const ref = densePrefillReference(args)
      expectGate(attentionF32(whole.out.narrow(0, row, 100).clone(), ref))
      expectGate(attentionLse(whole.lse.narrow(0, row, 100).clone(), ref))
      start += length
    }
  })

  test('16384 sequences of one token: each gives its own value', async () => {
    const operands = many(Array.from({ length: 16_384 }, () => 1))
    const { out } = await runDense(device, call({ ...operands, mask: causal() }))
    expect(out.floats()).toEqual((operands.keys.v as Tensor<'f32'>).floats())
  })
})

describe('DP-10: members without tokens or keys', () => {
  test.each([
    [
      [5, 0, 7],
      [5, 0, 7],
    ],
    [
      [5, 0, 7],
      [0, 3, 7],
    ],
    [
      [0, 0, 0],
      [0, 0, 0],
    ],
    [
      [0, 4],
      [9, 4],
    ],
  ])('queries %s over keys %s', async (queries, keys) => {
    for (const variant of denseVariants) {
      const operands = denseOperands({ variant, queries, keys, heads: 2 })
      await expectReference(device, variant, call({ ...operands, mask: causal() }))
    }
  })

  test('an empty batch', async () => {
    const operands = denseOperands({ queries: [], keys: [], heads: 2 })
    expect([...offsetsOf([]).data]).toEqual([0])
    expect((await runDense(device, call({ ...operands, mask: causal() }))).out.size).toBe(0)
  })
})

describe('DP-12: hidden pairs are not evaluated', () => {
  test('a bias of 127 columns beside a mask that hides key 127; what follows the bias is not read', async () => {
    const operands = denseOperands({ queries: [128], keys: [128], heads: 2 })
    const wide = nanTensor('f32', [1, 128, 128])
    const { normal } = seeded(2)
    for (let i = 0; i < wide.data.length; i++) if (i % 128 < 127) wide.data[i] = normal()
    const bias = device.upload(wide)
    const args = call({ ...operands, scoreMod: alibi(2) })
    const mask = and(causal(), materialized(bias.narrow(2, 0, 127)))
    const run = await runDense(device, { ...args, mask })
    const onHost = and(causal(), materialized(wide.narrow(2, 0, 127)))
    expectGate(attentionF32(run.out, densePrefillReference({ ...args, mask: onHost })))
    bias.dispose()
  })

  test('a key that no query sees may hold anything', async () => {
    const operands = denseOperands({ queries: [128], keys: [128], heads: 2 })
    const valid = device.upload(fromU32(127))
    const nope = (operands.keys.nope as Tensor<'f32'>).clone()
    nope.data.fill(Number.NaN, 127 * 64)
    const args = call({ ...operands, mask: causalPadding(valid) })
    const clean = await runDense(device, args)
    expectSame(await runDense(device, call({ ...args, keys: { ...args.keys, nope } })), clean)
    expect(clean.out.floats().every(Number.isFinite)).toBe(true)
    valid.dispose()
  })
})

describe('DP-14: extreme biases', () => {
  const lowest = -3.4028234663852886e38
  const operands = denseOperands({ queries: [4], keys: [70], heads: 2 })
  const rows = (f: (row: number, k: number) => number): Tensor<'f32'> =>
    f32(
      [1, 4, 70],
      Array.from({ length: 280 }, (_, i) => f(Math.floor(i / 70), i % 70)),
    )

  test.each(['f32', 'bf16', 'f16'] as const)('-inf in a whole row, and all but one: %s', async dtype => {
    const bias = rows((row, k) => (row === 1 || (row === 2 && k !== 66) ? -Infinity : 0)).cast(dtype)
    const args = call({ ...operands, mask: materialized(bias) })
    await expectReference(device, 'f32', args)
    const { out, lse } = await runDense(device, args)
    expect([...lse.floats().subarray(2, 4)]).toEqual([-Infinity, -Infinity])
    expect(out.floats().subarray(48, 96)).toEqual(new Float32Array(48))
    const [value, own] = [operands.keys.v as Tensor<'f32'>, out.floats().subarray(96, 144)]
    for (let c = 0; c < 48; c++) expect(own[c]).toBeCloseTo(value.data[66 * 48 + c]!, 6)
  })

  test('twice the lowest finite number is still a number: equal for all keys, it changes no weight', async () => {
    const low = materialized(rows(() => lowest))
    const args = call({ ...operands, mask: and(low, low) })
    const { out, lse } = await runDense(device, args)
    // At that magnitude f32 sees no difference between the scores, so every key weighs the same.
    const v = (operands.keys.v as Tensor<'f32'>).data
    for (let i = 0; i < 4 * 48; i++) {
      let mean = 0
      for (let j = 0; j < 70; j++) mean += v[j * 48 + (i % 48)]! / 70
      expect(out.floats()[i]).toBeCloseTo(mean, 5)
    }
    expect(lse.floats().every(Number.isFinite)).toBe(true)
  })

  test('keys under one lowest number outweigh those under two, and any key outweighs both', async () => {
    const some = materialized(rows((row, k) => (k < 30 || (row > 1 && k < 40) ? lowest : 0)))
    const other = materialized(rows((row, k) => (k < 40 || row < 2 ? lowest : 0)))
    const { out } = await runDense(device, call({ ...operands, mask: and(some, other) }))
    const wanted = (row: number, k: number): boolean => (row < 2 ? k >= 30 : k >= 40)
    const v = (operands.keys.v as Tensor<'f32'>).data
    for (let i = 0; i < 2 * 48; i++) {
      let [mean, count] = [0, 0]
      for (let j = 0; j < 70; j++)
        if (wanted(0, j)) {
          mean += v[j * 48 + (i % 48)]!
          count++
        }
      expect(out.floats()[i]).toBeCloseTo(mean / count, 5)
    }
    const plain = materialized(rows((_, k) => (k < 40 ? -Infinity : 0)))
    const ref = densePrefillReference(call({ ...operands, mask: plain }))
    expectGate(attentionF32(out.narrow(0, 2, 2).clone(), sliceRows(ref, 2, 2)))
  })
})

test('DP-16: rows of a bias more than 2^31 bytes apart', async () => {
  const big = await openCpuDevice({ threads: 1 })
  const bias = big.alloc('f16', [1, 3, 560_000_000]).narrow(2, 0, 70)
  const { normal } = seeded(4)
  const host = fromFloats('f16', [1, 3, 70], Float32Array.from({ length: 210 }, normal))
  big.write(bias, host)
  const args = call(denseOperands({ queries: [3], keys: [70], heads: 2 }))
  const run = await runDense(big, { ...args, mask: materialized(bias) })
  expectGate(attentionF32(run.out, densePrefillReference({ ...args, mask: materialized(host) })))
  await big.dispose()
})

describe('DP-18: a prompt in chunks', () => {
  test.each([500, 128, 64, 37, 1])('of %s tokens has the bits of one call', async chunk => {
    const c = { queries: [500], keys: [500], heads: 2, nope: 8, vDim: 8 }
    const operands = denseOperands(c)
    const whole = await runDense(device, call({ ...operands, mask: causal() }))
    const q = operands.q as Tensor<'f32'>
    const starts =
      chunk === 1 ? [0, 63, 64, 255, 499] : Array.from({ length: Math.ceil(500 / chunk) }, (_, i) => i * chunk)
    for (const start of starts) {
      const tokens = Math.min(chunk, 500 - start)
      const part = { ...c, queries: [tokens], keys: [start + tokens] }
      const [nope, v, rope] = [operands.keys.nope, operands.keys.v, operands.keys.rope] as Tensor<'f32'>[]
      const keys = {
        nope: nope!.narrow(0, 0, start + tokens).clone(),
        v: v!.narrow(0, 0, start + tokens).clone(),
        rope: rope!.narrow(0, 0, start + tokens).clone(),
        kvRowOffsets: offsetsOf(part.keys),
      }
      const args = { ...operands, q: q.narrow(0, start, tokens), rowOffsets: offsetsOf([tokens]), keys }
      const paged = pagedOperands(args as never, part, { pageSize: 16 })
      const run = await runDense(device, call({ ...paged, mask: causal() }))
      const cut = <D extends 'f32' | 'bf16'>(t: Tensor<D>): Tensor<D> => t.narrow(0, start, tokens).clone()
      expectSame(run, { out: cut(whole.out), lse: cut(whole.lse) })
    }
  })
})

const fromU32 = (value: number) => offsetsOf([value]).narrow(0, 1, 1).clone()

/** Rows of a reference. */
function sliceRows(ref: ReturnType<typeof densePrefillReference>, first: number, count: number): typeof ref {
  const [, heads, dim] = ref.shape as [number, number, number]
  const rows = (a: Float64Array) => a.slice(first * heads, (first + count) * heads)
  const elements = (a: Float64Array) => a.slice(first * heads * dim, (first + count) * heads * dim)
  return {
    shape: [count, heads, dim],
    out: elements(ref.out),
    weighted: elements(ref.weighted),
    absValues: elements(ref.absValues),
    lse: rows(ref.lse),
    maxLogits: rows(ref.maxLogits),
    sums: rows(ref.sums),
    absScores: rows(ref.absScores),
  }
}
