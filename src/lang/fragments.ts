/**
 * A of a warpgroup multiply in registers: four 32-bit registers a thread for each step of K (isa.md §5.2). Made from
 * accumulator elements, in ldmatrix form from shared memory, or from words of the author's own.
 */

import type { Operand } from './ir.ts'
import { joinE4m3, packBf16, packE4m3, packF16 } from './isa/pack.ts'
import { kStep, type MatrixDtype } from './isa/wgmma.ts'
import type { Trace } from './trace.ts'
import { emitValue, type Val } from './value.ts'

type Word = Val<'u32' | 'bf16x2' | 'f16x2' | 'e4m3x4'>

/**
 * Which accumulator column lies at position `k` of fragments made from accumulators: 16-bit types keep the order, e4m3 swaps
 * within 16 columns, so that the other operand's K must be stored in this order.
 */
export const fragmentSource = (dtype: MatrixDtype, k: number): number => {
  const i = k % 16
  return dtype !== 'e4m3' ? k : k - i + 8 * ((i % 4) >> 1) + 2 * (i >> 2) + (i & 1)
}

export class Fragments {
  readonly dtype: MatrixDtype
  private readonly words: readonly Word[]

  /** @param words four for each step of K */
  constructor(dtype: MatrixDtype, words: readonly Word[]) {
    if (words.length === 0 || words.length % 4 !== 0)
      throw new RangeError(`${words.length} words of a fragment; expected four for each step of K`)
    this.dtype = dtype
    this.words = words
  }

  /** From this thread's accumulator elements; see `fragmentSource` for the order of K. */
  static of(trace: Trace, dtype: MatrixDtype, elements: readonly Val<'f32'>[]): Fragments {
    if (elements.length % (kStep[dtype] / 2) !== 0)
      throw trace.error(`${2 * elements.length} columns as ${dtype} fragments; expected a multiple of ${kStep[dtype]}`)
    const half = (j: number): Word => {
      const operands = { low: elements[j]!, high: elements[j + 1]! }
      return dtype === 'f16'
        ? emitValue(trace, packF16, 'f16x2', operands)
        : emitValue(trace, packBf16, 'bf16x2', operands)
    }
    const pair = (j: number): Val<'e4m3x2'> =>
      emitValue(trace, packE4m3, 'e4m3x2', { low: elements[j]!, high: elements[j + 1]! })
    // Elements j and j + 1 are of row r, j + 2 and j + 3 of row r + 8; j + 4 is 8 columns on.
    const e4m3 = (j: number): Word => emitValue(trace, joinE4m3, 'e4m3x4', { low: pair(j), high: pair(j + 4) })
    const words =
      dtype !== 'e4m3'
        ? elements.flatMap((_, j) => (j % 2 === 0 ? [half(j)] : []))
        : elements.flatMap((_, j) => (j % 8 === 0 ? [e4m3(j), e4m3(j + 2)] : []))
    return new Fragments(dtype, words)
  }

  /** K of all steps. */
  get depth(): number {
    return (this.words.length / 4) * kStep[this.dtype]
  }

  /** The registers of one step. */
  step(step: number): readonly Operand[] {
    return this.words.slice(4 * step, 4 * step + 4).map(word => word.operand)
  }
}
