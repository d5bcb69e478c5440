/** One multiply of the tensor cores of sm_100 from shared or tensor memory to registers, step by step, for tests. */

import { encodeArray } from '../src/dtypes/convert.ts'
import type { KernelBuilder } from '../src/lang/builder.ts'
import { type ResultForm, resultPlace, type TensorShape, tensorShapes } from '../src/lang/isa/tensor-shape.ts'
import { kStep, type MatrixDtype } from '../src/lang/isa/wgmma.ts'
import { type Kernel, kernel } from '../src/lang/kernel.ts'
import type { Barriers } from '../src/lang/mbarrier.ts'
import { input, output } from '../src/lang/params.ts'
import type { SmemTile } from '../src/lang/smem-tile.ts'
import type { TensorAccumulator, TensorOperand, TensorTile } from '../src/lang/tensor-accumulator.ts'
import type { TensorMemory } from '../src/lang/tensor-memory.ts'
import type { Val } from '../src/lang/value.ts'
import { type RunResult, runKernel } from './sim-kernel.ts'

export interface TensorCase {
  readonly dtype: MatrixDtype
  readonly m: number
  readonly n: number
  /** K; a multiple of what a swizzle's row holds. */
  readonly depth: number
  readonly stationary?: boolean
  readonly pair?: boolean
  /** Rows of a tile are K. */
  readonly transposed?: { readonly a?: boolean; readonly b?: boolean }
  readonly swizzle?: 32 | 64 | 128
  /** A goes to tensor memory first. */
  readonly a?: 'tensor'
  /** How results are loaded. */
  readonly shape?: TensorShape
  /** Column of the result, and its first lane. */
  readonly column?: number
  readonly lane?: 0 | 16
}

/** What the steps below work with. */
export interface Bench {
  readonly k: KernelBuilder
  readonly memory: TensorMemory
  readonly d: TensorAccumulator
  readonly a: SmemTile
  readonly b: SmemTile
  /** Completes when the multiplies have; and one that all threads arrive at. */
  readonly done: Barriers
  readonly first: Val<'pred'>
  /** A barrier of the block, or of the pair. */
  readonly barrier: () => void
  /** A and B. */
  readonly operands: readonly [TensorTile | TensorOperand, TensorTile]
  /** Stores registers of this thread for the test. */
  readonly keep: (registers: readonly Val<'f32'>[]) => void
}

/** The steps of the kernel; a test replaces some to plant a bug. */
export interface Steps {
  readonly allocate: (x: Bench) => void
  readonly fence: (x: Bench) => void
  readonly share: (x: Bench) => void
  readonly issue: (x: Bench) => void
  readonly wait: (x: Bench) => void
  readonly read: (x: Bench) => void
  readonly free: (x: Bench) => void
}

const shapeOf = (c: TensorCase): TensorShape =>
  c.shape ?? (c.m === 64 && c.stationary !== true && c.pair !== true ? '16x256b' : '32x32b')

const formOf = ({ m, n, stationary = false, pair = false }: TensorCase): ResultForm => ({ m, n, stationary, pair })

/** Repetitions that load the whole result. */
const timesOf = (c: TensorCase, columns: number): number => columns / tensorShapes[shapeOf(c)].columns

export const steps: Omit<Steps, 'read'> = {
  allocate: ({ k, memory, first }) =>
    k.whenUniform(first, () => {
      memory.allocate()
      memory.relinquish()
    }),
  fence: ({ k }) => k.fenceProxyAsync(),
  share: ({ memory, barrier }) => {
    memory.beforeSync()
    barrier()
    memory.afterSync()
    memory.open()
  },
  issue: ({ k, memory, first, done, d, operands }) => {
    k.whenUniform(first, () => {
      const leads = memory.pair ? k.cluster.rank.eq(0) : undefined
      const go = (): void =>
        k.when(k.elect(), () => {
          d.multiply(...operands)
          memory.commit(done.address(0), memory.pair ? { multicast: 3 } : {})
        })
      if (leads === undefined) go()
      else k.whenUniform(leads, go)
      k.warpBarrier()
    })
  },
  wait: ({ memory, done }) => {
    done.wait(0, 0)
    memory.afterSync()
  },
  free: ({ k, memory, first, barrier }) => {
    memory.beforeSync()
    barrier()
    k.whenUniform(first, () => {
      memory.afterSync()
      memory.free()
    })
  },
}

/** The kernel of a case, with some steps replaced. */
export function tensorKernel(c: TensorCase, replaced: Partial<Steps> = {}): Kernel {
  const { dtype, m, n, depth, stationary = false, pair = false, transposed = {}, swizzle, column = 0, lane = 0 } = c
  const blocks = pair ? 2 : 1
  const shape = shapeOf(c)
  const all: Steps = { ...steps, read: x => readAll(c, x), ...replaced }
  const params = { a: input('u32', 'A'), b: input('u32', 'B'), out: output('f32', 'registers') }
  return kernel({ name: 'probe', target: 'sm_100a', threads: 128, cluster: blocks, params }, (k, p) => {
    const tileOf = (rows: number, mnMajor: boolean | undefined): SmemTile =>
      k.tile({
        dtype,
        rows: mnMajor ? depth : rows / blocks,
        columns: mnMajor ? rows / blocks : depth,
        ...(swizzle === undefined ? {} : { swizzle }),
      })
    const [a, b] = [tileOf(m, transposed.a), tileOf(n, transposed.b)]
    const memory = k.tensorMemory({ columns: 512, pair })
    const d = memory.accumulator({ m, n, column, lane, stationary })
    const done = k.barriers(2)
    const rank = pair ? k.cluster.rank : k.const('u32', 0)
    const first = k.threadIdx.lt(32)
    const count = timesOf(c, d.columns) * tensorShapes[shape].registers
    const operand = memory.operand({ dtype, depth, column: 384, lane })
    const bench: Bench = {
      k,
      memory,
      d,
      a,
      b,
      done,
      first,
      barrier: () => (pair ? k.cluster.barrier() : k.barrier()),
      operands: [
        c.a === 'tensor' ? operand : { tile: a, transposed: transposed.a === true },
        { tile: b, transposed: transposed.b === true },
      ],
      keep: registers =>
        registers.forEach((value, j) => p.out.store(rank.mul(128).add(k.threadIdx).mul(count).add(j), value)),
    }
    all.allocate(bench)
    k.when(k.threadIdx.eq(0), () => {
      done.init(1)
      k.fenceBarrierInit()
    })
    fill(k, a, p.a, rank)
    fill(k, b, p.b, rank)
    all.fence(bench)
    all.share(bench)
    if (c.a === 'tensor') operandToLanes(c, bench, p.a, rank)
    all.issue(bench)
    all.wait(bench)
    all.read(bench)
    all.free(bench)
  })
}

function readAll(c: TensorCase, { d, memory, keep }: Bench): void {
  const shape = shapeOf(c)
  const half = c.lane === 16 ? ({ lane: 16 } as const) : {}
  const registers: Val<'f32'>[] = []
  const { columns } = tensorShapes[shape]
  for (let done = 0; done < d.columns; ) {
    const times = 2 ** Math.floor(Math.log2((d.columns - done) / columns))
    registers.push(...d.load(shape, times, { column: done, ...half }))
    done += times * columns
  }
  memory.waitLoads()
  keep(registers)
}

/** A block's part of a matrix into a tile, word by word. */
function fill(k: KernelBuilder, tile: SmemTile, words: { load(at: Val<'u32'>): Val<'u32'> }, rank: Val<'u32'>): void {
  const rowWords = tile.rowBytes / 4
  const count = tile.rows * rowWords
  for (const i of k.range(count, { start: k.threadIdx, step: 128 }))
    tile.storeWord(tile.at(0, i.div(rowWords), i.rem(rowWords).mul(4)), words.load(rank.mul(count).add(i)))
}

/** A's rows into the lanes that multiply them: 64 rows of a folded result twice, else each once. */
function operandToLanes(
  { m, depth, dtype, stationary, pair }: TensorCase,
  { k, memory, barrier }: Bench,
  words: { load(at: Val<'u32'>): Val<'u32'> },
  rank: Val<'u32'>,
): void {
  const rowWords = (depth / kStep[dtype]) * 8
  const own = pair ? m / 2 : m
  const isSpread = own === 64 && !stationary && !pair
  const row = isSpread
    ? k.threadIdx.shr(5).mul(16).add(k.threadIdx.bitAnd(15))
    : own === 32 || own === 64
      ? k.threadIdx.bitAnd(own - 1)
      : k.threadIdx
  const values = Array.from({ length: rowWords }, (_, j) => words.load(rank.mul(own).add(row).mul(rowWords).add(j)))
  memory.store('32x32b', values, { column: 384 })
  memory.waitStores()
  memory.beforeSync()
  barrier()
  memory.afterSync()
}

/** Small integers, exact in every type. */
function values(count: number, seed: number): Float32Array {
  let state = seed
  return Float32Array.from({ length: count }, () => (((state = (Math.imul(state, 48271) + 11) >>> 0) >>> 16) % 9) - 4)
}

export interface TensorRun extends RunResult {
  /** D as the registers hold it. */
  readonly d: Float64Array
  readonly expected: Float64Array
}

/** Runs a case; D by its elements beside what it should be. */
export function runTensor(
  c: TensorCase,
  traced: Kernel = tensorKernel(c),
  options: { readonly landing?: 'early' | 'late'; readonly seed?: number } = {},
): TensorRun {
  const { m, n, depth, dtype, transposed = {}, pair = false, lane = 0 } = c
  const blocks = pair ? 2 : 1
  const [a, b] = [values(m * depth, 3), values(n * depth, 5)]
  const image = (x: Float32Array, rows: number, mnMajor: boolean | undefined): Uint32Array => {
    const codes = encodeArray(dtype, mnMajor ? turned(x, rows, depth, blocks) : x)
    return new Uint32Array(codes.buffer, 0, codes.byteLength / 4)
  }
  const form = formOf(c)
  const shape = tensorShapes[shapeOf(c)]
  const columns = n / (resultPlace(form, 0, n - 1).lane >= 96 ? 4 : resultPlace(form, 0, n - 1).lane >= 64 ? 2 : 1)
  const count = timesOf(c, columns) * shape.registers
  const out = new Float32Array(blocks * 128 * count)
  const buffers = { a: image(a, m, transposed.a), b: image(b, n, transposed.b), out }
  const result = runKernel(traced, { buffers, blocks, ...options })
  const d = new Float64Array(m * n).fill(Number.NaN)
  const at = new Map<number, number>()
  for (let i = 0; i < out.length; i++) {
    const [thread, j] = [Math.floor(i / count), i % count]
    const [rank, warp, t] = [thread >> 7, (thread >> 5) & 3, thread & 31]
    at.set(((rank * 128 + 32 * warp + lane + shape.lane(t, j)) << 9) | shape.column(t, j), out[i]!)
  }
  const expected = new Float64Array(m * n)
  for (let i = 0; i < m; i++)
    for (let j = 0; j < n; j++) {
      const place = resultPlace(form, i, j)
      d[i * n + j] = at.get(((place.rank * 128 + lane + place.lane) << 9) | place.column) ?? Number.NaN
      for (let x = 0; x < depth; x++) expected[i * n + j]! += a[i * depth + x]! * b[j * depth + x]!
    }
  return { ...result, d, expected }
}

/** Columns of each block's rows after one another: what MN-major tiles hold. */
function turned(x: Float32Array, rows: number, depth: number, blocks: number): Float32Array {
  const own = rows / blocks
  return Float32Array.from({ length: x.length }, (_, i) => {
    const [block, rest] = [Math.floor(i / (own * depth)), i % (own * depth)]
    const [kRow, row] = [Math.floor(rest / own), rest % own]
    return x[(block * own + row) * depth + kRow]!
  })
}
