import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import {
  type DenseCase,
  denseOperands,
  denseVariants,
  expectReference,
  expectSame,
  runDense,
  u32,
} from '../../../test/dense-cases.ts'
import { seeded } from '../../../test/random.ts'
import { type CpuDevice, openCpuDevice } from '../../cpu/device.ts'
import type { DensePrefillArgs } from '../../ops/dense-prefill.ts'
import { fromFloats, type Tensor } from '../../tensor/tensor.ts'
import type { Mask } from './mask.ts'
import {
  and,
  causal,
  causalPadding,
  chunked,
  chunkedCausal,
  materialized,
  none,
  or,
  slidingWindow,
  slidingWindowBoth,
} from './masks.ts'
import { alibi, identity, type ScoreMod, softcap } from './score-mods.ts'

let device: CpuDevice
beforeAll(async () => {
  device = await openCpuDevice({ threads: 1 })
})
afterAll(() => device.dispose())

/** Three sequences: fresh, empty, and one with a prefix that crosses tiles. */
const shape: DenseCase = { queries: [9, 0, 40], keys: [9, 5, 150], heads: 4, kvHeads: 2 }

const bias = (dtype: 'f32' | 'bf16' | 'f16', dims: number[], seed = 3) => {
  const { normal, uniform } = seeded(seed)
  const count = dims.reduce((a, b) => a * b, 1)
  const values = Float32Array.from({ length: count }, () => (uniform() < 0.3 ? -Infinity : 2 * normal()))
  return fromFloats(dtype, dims, values)
}

const masks: readonly (readonly [string, () => Mask])[] = [
  ['none', none],
  ['causal', causal],
  ['slidingWindow(20)', () => slidingWindow(20)],
  ['slidingWindow(1)', () => slidingWindow(1)],
  ['slidingWindowBoth(13)', () => slidingWindowBoth(13)],
  ['chunked(48)', () => chunked(48)],
  ['chunkedCausal(48)', () => chunkedCausal(48)],
  ['causalPadding', () => causalPadding(u32(4, 0, 111))],
  ['and(causal, chunked)', () => and(causal(), chunked(31))],
  ['or(slidingWindow, causalPadding)', () => or(slidingWindow(7), causalPadding(u32(2, 3, 5)))],
  ['materialized f32', () => materialized(bias('f32', [3, 40, 150]))],
  ['materialized per head bf16, shorter than the keys', () => materialized(bias('bf16', [3, 4, 33, 131]))],
  ['and(causal, materialized f16)', () => and(causal(), materialized(bias('f16', [3, 40, 150])))],
  ['or(slidingWindow, materialized)', () => or(slidingWindow(5), materialized(bias('f32', [3, 40, 150])))],
]
const mods: readonly ScoreMod[] = [identity(), alibi(4), softcap(1.5)]

describe('against the reference', () => {
  const cells = denseVariants.flatMap(variant =>
    masks.flatMap(([name, mask], i) => mods.map((mod, j) => ({ variant, name, mask, mod, sunk: (i + j) % 2 === 0 }))),
  )

  test.each(cells)('$variant, $name, $mod.kind, sink $sunk', async ({ variant, mask, mod, sunk }) => {
    const args = { ...denseOperands({ ...shape, variant }), mask: mask(), scoreMod: mod } as DensePrefillArgs
    const sink = fromFloats('f32', [4], [0.5, -1e38, 3, -Infinity])
    await expectReference(device, variant, sunk ? { ...args, sink } : args)
  })
})

describe('shapes', () => {
  const shapes: readonly DenseCase[] = [
    { queries: [1], keys: [1], heads: 1, nope: 1, vDim: 1 },
    { queries: [5], keys: [5], heads: 3, kvHeads: 1, nope: 5, vDim: 3 },
    { queries: [130], keys: [130], heads: 2, nope: 7, vDim: 17 },
    { queries: [3], keys: [64], heads: 128, kvHeads: 1, nope: 16, vDim: 8 },
    { queries: [2], keys: [65], heads: 128, kvHeads: 128, nope: 8, vDim: 4 },
    { queries: [33], keys: [200], heads: 6, kvHeads: 2, nope: 128, vDim: 128 },
    { queries: [4], keys: [70], heads: 2, nope: 128, vDim: 512 },
    { queries: [9], keys: [66], heads: 2, nope: 192, vDim: 520 },
    { queries: [1, 2, 64, 63, 65], keys: [1, 2, 64, 63, 65], heads: 1 },
    { queries: [7, 3], keys: [2, 0], heads: 2 },
  ]

  test.each(shapes)('queries $queries keys $keys heads $heads/$kvHeads $nope/$vDim', async c => {
    for (const variant of denseVariants)
      await expectReference(device, variant, {
        ...denseOperands({ ...c, variant }),
        mask: causal(),
      } as DensePrefillArgs)
  })

  test.each([16, 48, 64, 96, 128, 576, 1000])('rope under one scale per %s columns', async scaleBlock => {
    const operands = denseOperands({ ...shape, variant: 'blockscale', scaleBlock })
    await expectReference(device, 'blockscale', { ...operands, mask: causal() } as DensePrefillArgs)
  })

  test('e4m3 rope without scales is a plain cast', async () => {
    const operands = denseOperands({ ...shape, variant: 'bf16' })
    const keys = { ...operands.keys, rope: (operands.keys.rope as Tensor<'bf16'>).cast('e4m3') }
    const args = { ...operands, keys, mask: causal() } as DensePrefillArgs
    await expectReference(device, 'blockscale', args)
    const decoded = { ...args, keys: { ...keys, rope: keys.rope.cast('bf16') } } as DensePrefillArgs
    expectSame(await runDense(device, args), await runDense(device, decoded))
  })

  test('scores that grow and fall along the keys, and a sink above them', async () => {
    const operands = denseOperands({ queries: [20], keys: [300], heads: 2 })
    const nope = (operands.keys.nope as Tensor<'f32'>).clone()
    nope.data.forEach((x, i) => {
      nope.data[i] = x * Math.abs(300 - Math.floor(i / 64)) * 0.2
    })
    const sink = fromFloats('f32', [2], [30, Infinity])
    const args = { ...operands, keys: { ...operands.keys, nope }, mask: causal(), sink } as DensePrefillArgs
    await expectReference(device, 'f32', args)
    const { out } = await runDense(device, args)
    expect(out.floats().every((x, i) => Math.floor(i / 24) % 2 === 0 || x === 0)).toBe(true)
  })

  test('random masks and lengths', async () => {
    const { int } = seeded(11)
    const leaves = [
      none,
      causal,
      () => slidingWindow(1 + int(90)),
      () => slidingWindowBoth(1 + int(90)),
      () => chunked(1 + int(90)),
      () => chunkedCausal(1 + int(90)),
      () => causalPadding(u32(int(200), int(200))),
      () => materialized(bias('f32', [2, 1 + int(90), 1 + int(200)], int(99))),
    ]
    const grow = (depth: number): Mask =>
      depth === 0 || int(3) === 0 ? leaves[int(8)]!() : (int(2) === 0 ? and : or)(grow(depth - 1), grow(depth - 1))
    for (let run = 0; run < 60; run++) {
      const c: DenseCase = {
        queries: [int(20), int(80)],
        keys: [int(90), int(190)],
        heads: 2,
        nope: 4,
        vDim: 4,
        seed: run,
      }
      const args = {
        ...denseOperands(c),
        mask: grow(4),
        scoreMod: mods[int(3)]!.kind === 'softcap' ? softcap(2) : identity(),
      }
      await expectReference(device, 'f32', args as DensePrefillArgs)
    }
  })
})

describe('on two threads', () => {
  test('the same bits', async () => {
    const two = await openCpuDevice({ threads: 2 })
    for (const variant of denseVariants) {
      const operands = denseOperands({ variant, queries: [30, 0, 100], keys: [30, 4, 170], heads: 4, kvHeads: 2 })
      const args = { ...operands, mask: causal(), partition: 2 } as DensePrefillArgs
      const one = await runDense(device, args)
      for (let run = 0; run < 5; run++) expectSame(await runDense(two, args), one)
    }
    await two.dispose()
  })
})

describe('the two builds', () => {
  test('without fused multiply-add the result is within the gate too', async () => {
    const plain = await openCpuDevice({ threads: 1, build: 'simd128' })
    const args = { ...denseOperands(shape), mask: causal(), scoreMod: softcap(3) } as DensePrefillArgs
    await expectReference(plain, 'f32', args)
    await plain.dispose()
  })
})
