import { describe, expect, test } from 'vitest'
import { assemble, hasPtxas } from '../../test/ptxas.ts'
import type { KernelBuilder } from '../lang/builder.ts'
import type { TensorCopyShape } from '../lang/isa/tensor-memory.ts'
import { type TensorShape, tensorShapes } from '../lang/isa/tensor-shape.ts'
import { type Bound, type Kernel, kernel } from '../lang/kernel.ts'
import { addPairs, bothOf, fmaPairs, mulPairs, packPair, unpackPair } from '../lang/pairs.ts'
import { input, output, tensorMap } from '../lang/params.ts'
import type { TensorMemory } from '../lang/tensor-memory.ts'
import type { Val } from '../lang/value.ts'
import { loadWords, storeWords } from '../lang/wide.ts'
import { printPtx } from './print.ts'

const params = {
  x: input('f32', 'x'),
  out: output('u32', 'out'),
  rows: tensorMap({ dtype: 'e4m3', box: [64, 1], swizzle: 64 }, 'rows of a cache'),
}
type P = { readonly [K in keyof typeof params]: Bound<(typeof params)[K]> }

const family = (define: (k: KernelBuilder, p: P) => void, threads = 128, cluster = 1): Kernel =>
  kernel({ name: 'family', target: 'sm_100a', threads, cluster, params, residentBlocks: 1 }, (k, p) => define(k, p))

/** A kernel that allocates, opens and frees columns around `use`. */
const inTensorMemory = (
  columns: number,
  use: (k: KernelBuilder, p: P, memory: TensorMemory) => void,
  pair = false,
): Kernel =>
  family(
    (k, p) => {
      const memory = k.tensorMemory({ columns, pair })
      const barrier = (): void => (pair ? k.cluster.barrier() : k.barrier())
      const first = k.threadIdx.lt(32)
      k.whenUniform(first, () => {
        memory.allocate()
        memory.relinquish()
      })
      memory.beforeSync()
      barrier()
      memory.afterSync()
      memory.open()
      use(k, p, memory)
      memory.beforeSync()
      barrier()
      k.whenUniform(first, () => {
        memory.afterSync()
        memory.free()
      })
    },
    128,
    pair ? 2 : 1,
  )

const sum = (values: readonly Val<'u32'>[]): Val<'u32'> => values.reduce((a, b) => a.add(b))

const moves = (shape: TensorShape, times: number): Kernel =>
  inTensorMemory(512, (k, { out }, memory) => {
    const second = shape === '16x32bx2' ? { second: 128 } : {}
    const half = shape === '32x32b' ? {} : ({ lane: 16 } as const)
    const words = memory.load('u32', shape, times, { column: 3, ...half, ...second })
    const floats = memory.load('f32', shape, times, { column: k.lane.mul(0).add(4), ...second })
    memory.waitLoads()
    memory.store(shape, words, second)
    memory.store(shape, floats, { column: 1, ...second })
    memory.waitStores()
    out.store(k.threadIdx, sum(words).add(sum(floats.map(x => x.bits()))))
  })

const copies: readonly TensorCopyShape[] = [
  '128x256b',
  '128x128b',
  '4x256b',
  '64x128b.warpx2::02_13',
  '64x128b.warpx2::01_23',
  '32x128b.warpx4',
]

interface Case {
  readonly dtype: 'bf16' | 'e4m3'
  readonly m: number
  readonly n: number
  readonly stationary?: boolean
  readonly pair?: boolean
}

const multiplies = ({ dtype, m, n, stationary = false, pair = false }: Case): Kernel =>
  inTensorMemory(
    512,
    (k, { out }, memory) => {
      const own = pair ? 2 : 1
      const a = k.tile({ dtype, rows: m / own, columns: 128, stages: 2 })
      const b = k.tile({ dtype, rows: n / own, columns: 128 })
      const v = k.tile({ dtype, rows: 128, columns: n / own, swizzle: 64 })
      const done = k.barriers(2)
      const d = memory.accumulator({ m, n, stationary })
      const p = memory.operand({ dtype, depth: 64, column: 256 })
      k.when(k.elect(), () => {
        for (const i of k.range(4)) {
          d.multiply({ tile: a, stage: i.bitAnd(1) }, { tile: b }, { accumulate: i })
          d.multiply(p, { tile: v, transposed: true }, { accumulate: true })
          memory.commit(done.address(0), pair ? { multicast: 3 } : {})
        }
      })
      k.warpBarrier()
      done.wait(0, 0)
      memory.afterSync()
      const values = d.load('32x32b', 16)
      memory.waitLoads()
      out.store(k.threadIdx, sum(values.map(x => x.bits())))
    },
    pair,
  )

const families: Readonly<Record<string, Kernel>> = {
  ...Object.fromEntries(
    (Object.keys(tensorShapes) as TensorShape[]).flatMap(shape =>
      [1, 16].map(times => [`loads and stores ${shape}.x${times}`, moves(shape, times)]),
    ),
  ),
  copies: inTensorMemory(256, (k, _, memory) => {
    const tile = k.tile({ dtype: 'bf16', rows: 128, columns: 64 })
    const done = k.barriers(1)
    k.when(k.elect(), () => {
      const at = tile.descriptors(0)
      for (const shape of copies) memory.copy(shape, 16, at(0, 0))
      memory.commit(done.address(0))
    })
  }),
  ...Object.fromEntries(
    (['bf16', 'e4m3'] as const).flatMap(dtype =>
      (
        [
          { m: 64, n: 128 },
          { m: 128, n: 256 },
          { m: 64, n: 256, stationary: true },
          { m: 128, n: 64, stationary: true },
          { m: 32, n: 128, stationary: true },
          { m: 128, n: 256, pair: true },
          { m: 256, n: 128, pair: true },
        ] as const
      ).map(form => [`multiplies ${JSON.stringify({ dtype, ...form })}`, multiplies({ dtype, ...form })]),
    ),
  ),
  'gathers, and copies counted for a pair': family(
    (k, { rows }) => {
      const tile = k.tile({ dtype: 'e4m3', rows: 64, columns: 576, swizzle: 64 })
      const full = k.barriers(1)
      k.when(k.threadIdx.eq(0), () => {
        const four = [k.lane.to('i32'), -1, 7, 7] as const
        const policy = k.cachePolicy('evict_last')
        rows.gather(tile.address(0, 1), 64, four, full.address(0))
        rows.gather(tile.address(0, 1), 64, four, full.address(0), { policy })
        rows.gather(tile.address(0, 1), 64, four, full.address(0), { multicast: 3, policy })
        rows.gather(tile.address(0, 1), 64, four, full.address(0), { pair: true })
        rows.load(tile.address(0, 1), [64, 0], full.address(0), { pair: true, policy })
        rows.load(tile.address(0, 1), [64, 0], full.address(0), { pair: true, multicast: 3 })
      })
    },
    32,
    2,
  ),
  'pairs and wide accesses': family((k, { x, out }) => {
    const values = loadWords('f32', 8, x.address(k.threadIdx.mul(8)))
    const total = k.var('f32x2', bothOf(values[0]!))
    for (let i = 0; i < 8; i += 2) {
      const pair = packPair(values[i]!, values[i + 1]!)
      total.set(fmaPairs(total, pair, addPairs(mulPairs(total, pair), pair)))
    }
    const [low, high] = unpackPair(total)
    storeWords(out.address(k.threadIdx.mul(8)), [low, high, ...values.slice(2)])
    storeWords(out.address(k.threadIdx.mul(8)), [low.bits(), high.bits()])
  }),
}

describe.runIf(hasPtxas)('ptxas accepts every family for sm_100a, without spills or warnings', () => {
  test.each(Object.entries(families))('%s', async (_, traced) => {
    const { spilledBytes, complaints } = await assemble(printPtx(traced), 'sm_100a')
    expect({ spilledBytes, complaints }).toEqual({ spilledBytes: 0, complaints: [] })
  })
})
