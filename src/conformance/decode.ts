/** Conformance of `sparseDecode` and `denseDecode`: variants, shared lists, a second cache, positions, splits, batch bits. */

import type { Device } from '../device.ts'
import { denseDecodeReference, sparseDecodeReference } from '../kernels/latent-attention/reference.ts'
import { type DenseDecodeArgs, denseDecode } from '../ops/dense-decode.ts'
import { type SparseDecodeArgs, sparseDecode } from '../ops/sparse-decode.ts'
import { logical, slots } from '../tensor/spaces.ts'
import type { Tensor } from '../tensor/tensor.ts'
import { type ConformanceCase, judge, type Verdict } from './case.ts'
import { ints } from './data.ts'
import type { GateReport } from './gate.ts'
import { sameBits } from './gates.ts'
import {
  bf16Variant,
  callLatent,
  f32Variant,
  judgeLatent,
  type LatentOutputs,
  type LatentVariant,
  latentQueries,
  latentVariants,
  packedVariant,
  sinks,
  softmaxScale,
} from './latent.ts'
import { filledLatentPool } from './pools.ts'
import { type Random, seeded } from './random.ts'

const batch = 2
const queries = 2
/** Keys of the two sequences. */
const lengths = [90, 37]
const topk = 66

const sparse = (device: Device, args: SparseDecodeArgs): Promise<LatentOutputs> =>
  callLatent(device, sparseDecode, args)
const dense = (device: Device, args: DenseDecodeArgs): Promise<LatentOutputs> => callLatent(device, denseDecode, args)

async function sparseCase(device: Device, variant: LatentVariant, args: SparseDecodeArgs): Promise<Verdict> {
  return judgeLatent(variant, await sparse(device, args), sparseDecodeReference(args))
}

async function denseCase(device: Device, variant: LatentVariant, args: DenseDecodeArgs): Promise<Verdict> {
  return judgeLatent(variant, await dense(device, args), denseDecodeReference(args))
}

/** A list a query over the pages of two sequences; every sixth entry is invalid, some come twice. */
function sparseArgs(
  variant: LatentVariant,
  heads = 5,
  shared = false,
): { readonly args: SparseDecodeArgs; readonly positions: Tensor<'i32'> } {
  const random = seeded(heads + variant.name.length)
  const { pool, blocks, pageSize, slotOf } = filledLatentPool(random, variant.layout, { lengths, pageSize: 16 })
  const rows = shared ? [batch] : [batch, queries]
  const count = shared ? batch : batch * queries
  const sequence = (list: number): number => (shared ? list : Math.floor(list / queries))
  const positions = Array.from({ length: count * topk }, (_, i) => random.int(lengths[sequence(Math.floor(i / topk))]!))
  const invalid = [-1, blocks * pageSize, 0x7fff_ffff, -0x8000_0000]
  const entries = positions.map((position, i) =>
    i % 6 === 1 ? invalid[i % invalid.length]! : slotOf(sequence(Math.floor(i / topk)), position),
  )
  return {
    args: {
      ...latentQueries(random, variant, [batch, queries], heads),
      cache: pool,
      indices: slots(ints('i32', [...rows, topk], entries)),
      scale: softmaxScale,
    },
    positions: ints('i32', [...rows, topk], positions),
  }
}

const sparseVariantCases: readonly ConformanceCase[] = latentVariants.map(variant => ({
  op: 'sparseDecode',
  name: `${variant.name}, a list a query, invalid entries, cut and empty lists, sinks`,
  run(device: Device) {
    const topkLength = ints('i32', [batch, queries], [9999, 21, 0, -3])
    return sparseCase(device, variant, { ...sparseArgs(variant).args, topkLength, sink: sinks(5) })
  },
}))

/** A second cache in another layout and page size. */
function extraOf(random: Random, variant: LatentVariant): NonNullable<SparseDecodeArgs['extra']> {
  const { pool, slotOf, blocks, pageSize } = filledLatentPool(random, variant.layout, { lengths: [23], pageSize: 5 })
  const entries = Array.from({ length: batch * 9 }, (_, i) =>
    i % 4 === 3 ? blocks * pageSize : slotOf(0, random.int(23)),
  )
  return {
    cache: pool,
    indices: slots(ints('i32', [batch, 9], entries)),
    topkLength: ints('i32', [batch], [9, 5]),
  }
}

/** Lists of 600 entries over 90 keys: long enough to be split. */
function longArgs(heads: number): SparseDecodeArgs {
  const random = seeded(600)
  const { pool, slotOf } = filledLatentPool(random, bf16Variant.layout, { lengths: [90, 90, 90], pageSize: 16 })
  const entries = Array.from({ length: 3 * 600 }, (_, i) => slotOf(Math.floor(i / 600), random.int(90)))
  return {
    ...latentQueries(random, bf16Variant, [3, 1], heads),
    cache: pool,
    indices: slots(ints('i32', [3, 600], entries)),
    topkLength: ints('i32', [3], [600, 513, 40]),
    scale: softmaxScale,
    sink: sinks(heads),
  }
}

/** The outputs of sequence `b`. */
const ofSequence = ({ out, lse, maxLogits }: LatentOutputs, b: number): LatentOutputs => ({
  out: out.narrow(0, b, 1),
  lse: lse.narrow(0, b, 1),
  maxLogits: maxLogits.narrow(0, b, 1),
})

const allBits = (actual: LatentOutputs, expected: LatentOutputs, gate: string): GateReport[] =>
  (['out', 'lse', 'maxLogits'] as const).map(name => sameBits(actual[name], expected[name], `${gate}, ${name}`))

const narrowed = <T extends Tensor>(t: unknown, b: number): T => (t as Tensor).narrow(0, b, 1) as T

const sparseCases: readonly ConformanceCase[] = [
  {
    op: 'sparseDecode',
    name: 'bf16, one list for all queries of a sequence',
    run: device => sparseCase(device, bf16Variant, sparseArgs(bf16Variant, 16, true).args),
  },
  {
    op: 'sparseDecode',
    name: 'f32, positions: an entry counts up to the position of its query',
    run(device) {
      const { args, positions } = sparseArgs(f32Variant, 3)
      const logicalIndices = logical(positions)
      return sparseCase(device, f32Variant, { ...args, logicalIndices, cacheLength: ints('u32', [2], [44, 20]) })
    },
  },
  {
    op: 'sparseDecode',
    name: 'bf16 cache and a packed one that always counts',
    run: device =>
      sparseCase(
        device,
        { ...packedVariant, name: 'two caches' },
        { ...sparseArgs(bf16Variant).args, extra: extraOf(seeded(91), packedVariant), sink: sinks(5) },
      ),
  },
  {
    op: 'sparseDecode',
    name: 'f32, queries past validLength give 0 and -inf',
    run: device =>
      sparseCase(device, f32Variant, { ...sparseArgs(f32Variant).args, validLength: ints('u32', [2], [1, 0]) }),
  },
  ...[false, true].map(batchInvariant => ({
    op: 'sparseDecode',
    name: `bf16, lists of 600 that are split${batchInvariant ? ', batch-invariant' : ''}`,
    run: (device: Device) => sparseCase(device, bf16Variant, { ...longArgs(4), batchInvariant }),
  })),
  {
    op: 'sparseDecode',
    name: 'batch-invariant: a sequence alone has the bits of the sequence in a batch',
    async run(device) {
      const args = { ...longArgs(4), batchInvariant: true }
      const all = await sparse(device, args)
      const reports: GateReport[] = []
      for (const b of [0, 1, 2]) {
        const alone = await sparse(device, {
          ...args,
          q: narrowed(args.q, b),
          indices: slots(narrowed<Tensor<'i32'>>(args.indices, b)),
          topkLength: narrowed<Tensor<'i32'>>(args.topkLength, b),
        })
        reports.push(...allBits(alone, ofSequence(all, b), `sequence ${b}`))
      }
      return judge(...reports)
    },
  },
]

/** All keys of two sequences, two queries each; the tokens of the queries are cached already. */
function denseArgs(variant: LatentVariant, heads = 5, pageSize = 16): DenseDecodeArgs {
  const random = seeded(heads + pageSize)
  const { pool, blockTable } = filledLatentPool(random, variant.layout, { lengths, pageSize })
  return {
    ...latentQueries(random, variant, [batch, queries], heads),
    cache: pool,
    blockTable,
    cacheLength: ints('u32', [2], [88, 35]),
    scale: softmaxScale,
    sink: sinks(heads),
  }
}

const denseCases: readonly ConformanceCase[] = [
  ...latentVariants.map(variant => ({
    op: 'denseDecode',
    name: `${variant.name}, causal, two sequences, sinks`,
    run: (device: Device) => denseCase(device, variant, denseArgs(variant)),
  })),
  {
    op: 'denseDecode',
    name: 'bf16, not causal, pages of 7, 64 heads',
    run: device => denseCase(device, bf16Variant, { ...denseArgs(bf16Variant, 64, 7), causal: false }),
  },
  {
    op: 'denseDecode',
    name: 'f32, lengths that include the queries',
    run: device =>
      denseCase(device, f32Variant, {
        ...denseArgs(f32Variant),
        cacheLength: ints('u32', [2], [90, 37]),
        lengthsIncludeNew: true,
      }),
  },
  {
    op: 'denseDecode',
    name: 'f32, fewer keys than queries: a query before the first key gives 0 and -inf',
    run: device =>
      denseCase(device, f32Variant, {
        ...denseArgs(f32Variant),
        cacheLength: ints('u32', [2], [1, 0]),
        lengthsIncludeNew: true,
      }),
  },
  {
    op: 'denseDecode',
    name: 'f32, queries past validLength give 0 and -inf',
    run: device =>
      denseCase(device, f32Variant, {
        ...denseArgs(f32Variant),
        validLength: ints('u32', [2], [1, 2]),
        cacheLength: ints('u32', [2], [89, 35]),
      }),
  },
  {
    op: 'denseDecode',
    name: 'maxKeys far above the real lengths changes no bit',
    async run(device) {
      const args = denseArgs(bf16Variant)
      return judge(...allBits(await dense(device, { ...args, maxKeys: 1 << 20 }), await dense(device, args), 'maxKeys'))
    },
  },
  {
    op: 'denseDecode',
    name: 'batch-invariant: a sequence alone has the bits of the sequence in a batch',
    async run(device) {
      const args = { ...denseArgs(packedVariant), batchInvariant: true }
      const all = await dense(device, args)
      const alone = await dense(device, {
        ...args,
        q: narrowed(args.q, 1),
        blockTable: narrowed<Tensor<'u32'>>(args.blockTable, 1),
        cacheLength: narrowed<Tensor<'u32'>>(args.cacheLength, 1),
      })
      return judge(...allBits(alone, ofSequence(all, 1), 'sequence 1'))
    },
  },
]

export const decodeCases: readonly ConformanceCase[] = [...sparseVariantCases, ...sparseCases, ...denseCases]
