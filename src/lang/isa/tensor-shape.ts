/**
 * Where values lie in tensor memory (isa.md §6.3, §6.8): 128 lanes of 512 columns of 32 bits. Registers of a warp meet
 * it in one of five shapes, results of multiplies lie there in one of six layouts.
 */

/** How the registers of a warp spread over its 32 lanes of tensor memory. */
export type TensorShape = '32x32b' | '16x64b' | '16x128b' | '16x256b' | '16x32bx2'

interface ShapeInfo {
  /** Registers of a thread for each repetition. */
  readonly registers: number
  /** Most repetitions. */
  readonly most: number
  /** Columns of each repetition. */
  readonly columns: number
  /** Lane of register `j` of thread `t`, from the lane in the address on. */
  readonly lane: (t: number, j: number) => number
  /** Its column, from the column in the address on; `16x32bx2` adds its own offset for threads from 16 on. */
  readonly column: (t: number, j: number) => number
}

/**
 * Sources: PTX ISA 9.0, "matrix fragments" of tcgen05.ld (figures), restated in isa.md §6.3; CUTLASS, `Copy_Traits` of
 * `SM100_TMEM_LOAD_…1x` (CuTe layouts); Triton, `getTileLayout` (bases of linear layouts). The test beside evaluates the
 * last two. `16x32bx2` is in the PTX ISA and Triton.
 */
export const tensorShapes: Readonly<Record<TensorShape, ShapeInfo>> = {
  '32x32b': { registers: 1, most: 128, columns: 1, lane: t => t, column: (_, j) => j },
  '16x64b': {
    registers: 1,
    most: 128,
    columns: 2,
    lane: t => (t >> 2) + 8 * (t & 1),
    column: (t, j) => 2 * j + ((t >> 1) & 1),
  },
  '16x128b': {
    registers: 2,
    most: 64,
    columns: 4,
    lane: (t, j) => (t >> 2) + 8 * (j & 1),
    column: (t, j) => 4 * (j >> 1) + (t & 3),
  },
  '16x256b': {
    registers: 4,
    most: 32,
    columns: 8,
    lane: (t, j) => (t >> 2) + 8 * ((j >> 1) & 1),
    column: (t, j) => 8 * (j >> 2) + 2 * (t & 3) + (j & 1),
  },
  '16x32bx2': { registers: 1, most: 128, columns: 1, lane: t => t & 15, column: (_, j) => j },
}

/** Columns and lanes of tensor memory. */
export const tensorColumns = 512
export const tensorLanes = 128

/** Where the rows of a multiply lie. */
export interface ResultForm {
  /** Rows: 64 or 128 of one block; 128 or 256 of a pair of blocks. */
  readonly m: number
  readonly n: number
  /** The weight-stationary form (`.ws`), which packs 64 rows into all lanes. */
  readonly stationary: boolean
  /** Two blocks multiply together (`cta_group::2`). */
  readonly pair: boolean
}

/** Block of the pair, lane and column of an element of the result, from the result's address on. */
export interface ResultPlace {
  readonly rank: number
  readonly lane: number
  readonly column: number
}

/** Whether the second half of the columns lies in lanes 64 to 127, below the first. */
const isFolded = ({ m, stationary, pair }: ResultForm): boolean => (stationary && m === 64) || (pair && m === 128)

/** Columns that a result takes. */
export const resultColumns = (form: ResultForm): number =>
  form.stationary && form.m === 32 ? form.n / 4 : isFolded(form) ? form.n / 2 : form.n

/**
 * The place of element (row, column): layouts A (pair, 256 rows), B (pair, 128), D (128), E and G (`.ws`, 64 and 32) and F
 * (64 rows, 16 of each warp's 32 lanes). Sources: PTX ISA 9.0, "data path layout organization" (figures), restated in
 * isa.md §6.8; CUTLASS, `UMMA::tmem_frg` and `tmem_frg_ws` (CuTe layouts), which the test beside evaluates.
 */
export function resultPlace(form: ResultForm, row: number, column: number): ResultPlace {
  const { m, n, stationary, pair } = form
  const own = pair ? m / 2 : m
  const [rank, r] = [Math.floor(row / own), row % own]
  if (stationary && m === 32) return { rank, lane: r + 32 * Math.floor(column / (n / 4)), column: column % (n / 4) }
  if (isFolded(form)) return { rank, lane: r + 64 * Math.floor(column / (n / 2)), column: column % (n / 2) }
  if (own === 64) return { rank, lane: 32 * (r >> 4) + (r & 15), column }
  return { rank, lane: r, column }
}
