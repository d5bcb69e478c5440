/** One warpgroup that multiplies tiles of small integers, for tests. */

import { encodeArray } from '../src/dtypes/convert.ts'
import type { Accumulator, Operand } from '../src/lang/accumulator.ts'
import type { KernelBuilder } from '../src/lang/builder.ts'
import type { MatrixDtype } from '../src/lang/isa/wgmma.ts'
import { type Kernel, kernel } from '../src/lang/kernel.ts'
import { input, output } from '../src/lang/params.ts'
import type { SmemTile } from '../src/lang/smem-tile.ts'
import { type RunResult, runKernel } from './sim-kernel.ts'

type Width = { readonly rows: number; readonly columns: number }

export interface Tiles {
  readonly a: SmemTile
  readonly b: SmemTile
}

/** Small integers, exact in every type. */
function values(count: number, seed: number): Float32Array {
  let state = seed
  return Float32Array.from({ length: count }, () => (((state = (Math.imul(state, 48271) + 11) >>> 0) >>> 16) % 9) - 4)
}

/** Fills a tile, one word a lane and row, and fences. */
function fill(k: KernelBuilder, tile: SmemTile, words: { load(at: never): never }): void {
  const rowWords = tile.rowBytes / 4
  for (const i of k.range(tile.rows * rowWords, { start: k.threadIdx, step: 128 })) {
    const [row, word] = [i.div(rowWords), i.rem(rowWords)]
    tile.storeWord(tile.at(0, row, word.mul(4)), words.load(i as never))
  }
}

/** out[64][n] of whatever `multiply` leaves in the accumulator, one warpgroup, A and B in shared memory. */
export const multiplying = (
  dtype: MatrixDtype,
  sizes: { readonly a: Width; readonly b: Width; readonly n: number },
  multiply: (k: KernelBuilder, d: Accumulator, tiles: Tiles) => void,
  fence: (k: KernelBuilder) => void = k => k.fenceProxyAsync(),
): Kernel =>
  kernel(
    {
      name: 'probe',
      target: 'sm_90a',
      threads: 128,
      params: { a: input('u32', 'A'), b: input('u32', 'B'), out: output('f32', '[64, n]') },
    },
    (k, p) => {
      const tiles = { a: k.tile({ dtype, ...sizes.a }), b: k.tile({ dtype, ...sizes.b }) }
      fill(k, tiles.a, p.a as never)
      fill(k, tiles.b, p.b as never)
      fence(k)
      k.barrier()
      const d = k.accumulator(sizes.n)
      multiply(k, d, tiles)
      const row = k.threadIdx.shr(5).mul(16).add(k.lane.shr(2))
      for (let j = 0; j < d.length; j++) {
        const column = k.lane
          .bitAnd(3)
          .mul(2)
          .add(8 * (j >> 2) + (j & 1))
        p.out.store(
          row
            .add(8 * ((j >> 1) & 1))
            .mul(sizes.n)
            .add(column),
          d.get(j),
        )
      }
    },
  )

export function runMultiply(
  dtype: MatrixDtype,
  sizes: { readonly a: Width; readonly b: Width; readonly n: number },
  traced: Kernel,
): RunResult & Readonly<Record<'out' | 'a' | 'b', Float32Array>> {
  const floats = [values(sizes.a.rows * sizes.a.columns, 3), values(sizes.b.rows * sizes.b.columns, 5)]
  const [a, b] = floats.map(v => {
    const codes = encodeArray(dtype, v)
    return new Uint32Array(codes.buffer, 0, codes.byteLength / 4)
  })
  const out = new Float32Array(64 * sizes.n)
  const result = runKernel(traced, { buffers: { a: a!, b: b!, out } })
  return { ...result, out, a: floats[0]!, b: floats[1]! }
}

export const once = (k: KernelBuilder, d: Accumulator, a: Operand, b: Operand, options = {}): void => {
  k.warpgroup.fence()
  d.multiply(a, b, options)
  k.warpgroup.commit()
  k.warpgroup.wait(0)
}

export const product = (
  n: number,
  depth: number,
  a: (i: number, d: number) => number,
  b: (j: number, d: number) => number,
): Float32Array =>
  Float32Array.from({ length: 64 * n }, (_, at) => {
    let sum = 0
    for (let d = 0; d < depth; d++) sum += a(Math.floor(at / n), d) * b(at % n, d)
    return sum
  })
