/** Exercises of matrices: exchanges with shared memory, warpgroup multiplies. */

import type { KernelBuilder } from '../../lang/builder.ts'
import { Fragments } from '../../lang/fragments.ts'
import type { MatrixDtype } from '../../lang/isa/wgmma.ts'
import type { SmemTile } from '../../lang/smem-tile.ts'
import type { Exercise, ExerciseData } from './exercise.ts'

const ldmatrix: Exercise = {
  name: 'ldmatrix',
  since: 75,
  body: (k, { words, thread, put }) => {
    const shared = k.shared('u32', 512)
    const first = k.threadIdx.mul(4)
    words.load4(thread.mul(4)).forEach((word, j) => shared.store(first.add(j), word))
    k.barrier()
    const row = shared.byteAt(k.lane.bitXor(5).add(k.threadIdx.shr(5).mul(32)).mul(4))
    for (const transposed of [false, true])
      for (const count of [1, 2, 4] as const) k.loadMatrices(row, count, { transposed }).forEach(put)
  },
}

const stmatrix: Exercise = {
  name: 'stmatrix',
  since: 90,
  body: (k, { words, thread, put }) => {
    const shared = k.shared('u32', 512)
    const row = shared.byteAt(k.lane.bitXor(5).add(k.threadIdx.shr(5).mul(32)).mul(4))
    for (const transposed of [false, true])
      for (const count of [1, 2, 4]) {
        for (let j = 0; j < 4; j++) shared.store(k.threadIdx.mul(4).add(j), 0)
        k.barrier()
        k.storeMatrices(row, words.load4(thread.mul(4)).slice(0, count), { transposed })
        k.barrier()
        for (let j = 0; j < 4; j++) put(shared.load(k.threadIdx.mul(4).add(j)))
        k.barrier()
      }
  },
}

/** Fills a tile with the data's words from `first` on. */
function fill(k: KernelBuilder, { words }: ExerciseData, tile: SmemTile, first: number): void {
  const perRow = tile.rowBytes / 4
  for (const i of k.range((tile.rows * perRow) / 128)) {
    const word = i.mul(128).add(k.threadIdx)
    const row = word.shr(Math.log2(perRow))
    tile.storeWord(tile.at(0, row, word.bitAnd(perRow - 1).mul(4)), words.load(word.add(first)))
  }
}

interface Product {
  readonly dtype: MatrixDtype
  readonly n: number
  readonly swizzle: 32 | 64 | 128
  readonly transposed?: boolean
}

/** A of 64 rows times B, from shared memory and from registers, twice into the same accumulator. */
const multiply = ({ dtype, n, swizzle, transposed = false }: Product): Exercise => ({
  name: `wgmma_${dtype}_n${n}_swizzle${swizzle}${transposed ? '_transposed' : ''}`,
  since: '90a',
  body: (k, data) => {
    const bytes = dtype === 'e4m3' ? 1 : 2
    const depth = 128 / bytes
    const a = k.tile({ dtype, rows: 64, columns: depth, swizzle })
    const b = transposed
      ? k.tile({ dtype, rows: depth, columns: Math.max(n, swizzle / bytes), swizzle })
      : k.tile({ dtype, rows: n, columns: depth, swizzle })
    fill(k, data, a, 0)
    fill(k, data, b, 2048)
    k.fenceProxyAsync()
    k.barrier()
    const words = data.words.load4(data.thread.mul(4))
    const result = k.accumulator(n)
    k.warpgroup.fence()
    result.multiply({ tile: a }, { tile: b, transposed })
    k.warpgroup.commit()
    result.multiply(new Fragments(dtype, words), { tile: b, transposed }, { accumulate: true })
    k.warpgroup.commit()
    k.warpgroup.wait(0)
    for (let j = 0; j < result.length; j++) data.put(result.get(j))
  },
})

/** A with K in its rows, a panel after the first, twice into the same accumulator. */
const multiplyAcross = (dtype: 'bf16' | 'f16', n: number): Exercise => ({
  name: `wgmma_${dtype}_n${n}_a_transposed`,
  since: '90a',
  body: (k, data) => {
    const a = k.tile({ dtype, rows: 64, columns: 128 })
    const b = k.tile({ dtype, rows: n, columns: 64 })
    fill(k, data, a, 0)
    fill(k, data, b, 2048)
    k.fenceProxyAsync()
    k.barrier()
    const result = k.accumulator(n)
    k.warpgroup.fence()
    result.multiply({ tile: a, transposed: true }, { tile: b })
    result.multiply({ tile: a, column: 64, transposed: true }, { tile: b }, { accumulate: true })
    k.warpgroup.commit()
    k.warpgroup.wait(0)
    for (let j = 0; j < result.length; j++) data.put(result.get(j))
  },
})

export const matrixExercises: readonly Exercise[] = [
  ldmatrix,
  stmatrix,
  multiply({ dtype: 'bf16', n: 8, swizzle: 128 }),
  multiply({ dtype: 'bf16', n: 64, swizzle: 64 }),
  multiply({ dtype: 'bf16', n: 128, swizzle: 128, transposed: true }),
  multiply({ dtype: 'bf16', n: 256, swizzle: 32 }),
  multiply({ dtype: 'f16', n: 64, swizzle: 128 }),
  multiply({ dtype: 'f16', n: 32, swizzle: 64, transposed: true }),
  multiplyAcross('bf16', 16),
  multiplyAcross('f16', 32),
  multiply({ dtype: 'e4m3', n: 16, swizzle: 32 }),
  multiply({ dtype: 'e4m3', n: 96, swizzle: 64 }),
  multiply({ dtype: 'e4m3', n: 256, swizzle: 128 }),
]
