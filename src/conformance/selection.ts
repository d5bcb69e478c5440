/** Conformance of `topK` and `remapIndices`: exact, so every case compares bits. */

import type { Device } from '../device.ts'
import { remapIndicesReference } from '../kernels/remap-indices/reference.ts'
import { topKReference } from '../kernels/top-k/reference.ts'
import { remapIndices } from '../ops/remap-indices.ts'
import { type TopKArgs, topK } from '../ops/top-k.ts'
import { logical } from '../tensor/spaces.ts'
import { fromFloats, type Tensor } from '../tensor/tensor.ts'
import { type ConformanceCase, judge, type Verdict } from './case.ts'
import { collect, ints, normals, poisonedOutputs } from './data.ts'
import { sameBits } from './gates.ts'
import { type Random, seeded } from './random.ts'

type Call = Omit<TopKArgs, 'into'>

async function selected(device: Device, args: Call): Promise<{ indices: Tensor<'i32'>; counts: Tensor<'i32'> }> {
  const tokens = args.scores.shape[0]!
  const into = poisonedOutputs(device, { indices: ['i32', [tokens, args.k]], counts: ['i32', [tokens]] })
  topK(device, { ...args, into } as never)
  return collect(into)
}

async function againstSort(device: Device, args: Call): Promise<Verdict> {
  const expected = topKReference(args)
  const actual = await selected(device, args)
  return judge(
    sameBits(actual.indices, expected.indices, 'indices'),
    sameBits(actual.counts, expected.counts, 'counts'),
  )
}

const width = 200
const shape = [4, width]

/** Distributions that break selections: ties, plateaus, crowded buckets, every special value. */
const distributions: Readonly<Record<string, (random: Random, j: number) => number>> = {
  'normal scores': random => random.normal(),
  'all equal': () => 0.25,
  'a plateau of zeros of both signs': (random, j) => (j % 5 < 3 ? (j % 2 === 0 ? 0 : -0) : random.normal()),
  'few values': random => random.int(4) - 2,
  'neighbouring floats': random => 1 + random.int(50) * 2 ** -23,
  'NaN, infinities, subnormals': (random, j) =>
    [NaN, Infinity, -Infinity, 1e-42, -1e-42, 3e38, -3e38, random.normal()][(j * 7) % 8]!,
  ascending: (_, j) => j / 7,
  descending: (_, j) => -j / 7,
}

const distributionCases: readonly ConformanceCase[] = Object.entries(distributions).flatMap(([name, value]) =>
  (['f32', 'bf16'] as const).map(dtype => ({
    op: 'topK',
    name: `${name}, ${dtype}, k 48 of ${width}`,
    run(device: Device) {
      const random = seeded(name.length)
      const scores = fromFloats(
        dtype,
        shape,
        Array.from({ length: 4 * width }, (_, i) => value(random, i % width)),
      )
      return againstSort(device, { scores, k: 48 })
    },
  })),
)

const slotArgs = {
  blockTable: ints('u32', [2, 12], [5, 0, 3, 9, 1, 99, 2, 4, 7, 8, 6, 11, 11, 10, 3, 2, 0, 0, 0, 0, 0, 0, 0, 0]),
  pageSize: 19,
  blocks: 12,
}

const optionCases: readonly ConformanceCase[] = [
  ...[1, 199, 200, 513].map(k => ({
    op: 'topK',
    name: `k ${k} of ${width}`,
    run: (device: Device) => againstSort(device, { scores: normals(seeded(k), 'f32', shape), k }),
  })),
  {
    op: 'topK',
    name: "order 'index'",
    run: device => againstSort(device, { scores: normals(seeded(51), 'f32', shape), k: 30, order: 'index' }),
  },
  {
    op: 'topK',
    name: 'windows: negative, empty, backwards, past the end; NaN outside',
    run(device) {
      const scores = normals(seeded(52), 'f32', shape)
      const window = { lo: ints('i32', [4], [-9, 50, 120, 150]), hi: ints('i32', [4], [20, 50, 10, 4000]) }
      scores.data.fill(NaN, 20, 60)
      return againstSort(device, { scores, k: 40, window })
    },
  },
  {
    op: 'topK',
    name: 'rows no sequence holds select nothing',
    run: device =>
      againstSort(device, { scores: normals(seeded(53), 'f32', shape), k: 8, validLength: ints('u32', [2], [1, 2]) }),
  },
  {
    op: 'topK',
    name: 'mapped to slots: missing pages become -1 in place and still count',
    run(device) {
      const scores = normals(seeded(54), 'f32', shape)
      return againstSort(device, { scores, k: 120, slots: slotArgs, rowOffsets: ints('u32', [3], [0, 3, 4]) })
    },
  },
  {
    op: 'topK',
    name: 'a row alone has the bits of the row in a batch',
    async run(device) {
      const scores = normals(seeded(55), 'f32', shape)
      const batch = await selected(device, { scores, k: 64 })
      const alone = await selected(device, { scores: scores.narrow(0, 2, 1), k: 64 })
      return judge(sameBits(alone.indices, batch.indices.narrow(0, 2, 1), 'indices'))
    },
  },
]

/** Rows long enough for samples, lists that overflow, and rows that are read in parts. */
const longCases: readonly ConformanceCase[] = Object.entries(distributions).map(([name, value], i) => ({
  op: 'topK',
  name: `${name}, k 600 of 7001`,
  run(device: Device) {
    const random = seeded(60 + i)
    const scores = fromFloats(
      i % 3 === 2 ? 'bf16' : 'f32',
      [1, 7001],
      Array.from({ length: 7001 }, (_, j) => value(random, j)),
    )
    const window = { lo: ints('i32', [1], [i % 5]), hi: ints('i32', [1], [7001 - (i % 7)]) }
    return againstSort(device, { scores, k: 600, window, order: i % 4 === 3 ? 'index' : 'score' })
  },
}))

const remapCases: readonly ConformanceCase[] = (['i32', 'u32'] as const).map(dtype => ({
  op: 'remapIndices',
  name: `${dtype}: padding, pages past the table, blocks past the pool`,
  async run(device: Device) {
    const random = seeded(61)
    const values = Array.from({ length: 4 * 30 }, (_, i) =>
      i % 6 === 0 ? (dtype === 'u32' ? 0xffff_ffff : -1 - i) : random.int(i % 9 === 0 ? 4000 : 228),
    )
    const args = {
      indices: logical(ints(dtype, [4, 30], values)),
      slots: slotArgs,
      rowOffsets: ints('u32', [3], [0, 1, 4]),
    }
    const into = poisonedOutputs(device, { indices: ['i32', [4, 30]] })
    remapIndices(device, { ...args, into })
    const { indices } = await collect(into)
    return judge(sameBits(indices, remapIndicesReference(args), 'slots'))
  },
}))

export const selectionCases: readonly ConformanceCase[] = [
  ...distributionCases,
  ...longCases,
  ...optionCases,
  ...remapCases,
]
