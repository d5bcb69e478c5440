/**
 * Kernels that work element by element over rows `[tokens, heads, width]` on a GPU. A block takes some rows times a piece
 * of their columns, so that neither wide nor narrow rows leave threads idle.
 */

import type { KernelBuilder } from '../../lang/builder.ts'
import type { LaunchArg } from '../../lang/launch.ts'
import { type ScalarParam, u32 } from '../../lang/params.ts'
import type { Val } from '../../lang/value.ts'
import type { RowGrid } from './grid.ts'

type U32 = Val<'u32'>
type Scalars<N extends string> = Readonly<Record<N, ScalarParam<'u32'>>>
type Bound<N extends string> = Readonly<Record<N, U32>>

/** Threads of a block. */
export const elementThreads = 128
/** Elements that a block takes. */
const blockElements = 1024
/** Most blocks in the second dimension of a grid. */
const mostPieces = 65_535

/** Scalar parameters of an element-wise kernel. */
export const elementScalars: Scalars<'rows' | 'heads' | 'width' | 'blockRows' | 'blockColumns'> = {
  rows: u32('rows, all heads of all tokens'),
  heads: u32('rows of a token'),
  width: u32('columns'),
  blockRows: u32('rows of a block'),
  blockColumns: u32('columns of a block'),
}

/** Strides of a tensor of rows, in elements. */
export const rowStrides = <N extends string>(name: N): Scalars<`${N}TokenStride` | `${N}HeadStride`> =>
  ({ [`${name}TokenStride`]: u32('elements'), [`${name}HeadStride`]: u32('elements') }) as never

/** Their values. */
export const rowStrideArgs = (name: string, grid: RowGrid | undefined): Record<string, LaunchArg> => ({
  [`${name}TokenStride`]: grid?.tokenStride ?? 0,
  [`${name}HeadStride`]: grid?.headStride ?? 0,
})

/** Grid and arguments of an element-wise kernel over `tokens * heads` rows. */
export function elementSpan({ tokens, heads, width }: RowGrid): {
  readonly grid: readonly [number, number]
  readonly args: Readonly<Record<string, number>>
} {
  const rows = tokens * heads
  const blockColumns = Math.max(1, Math.min(width, Math.max(blockElements, Math.ceil(width / mostPieces))))
  const blockRows = Math.max(1, Math.floor(blockElements / blockColumns))
  return {
    grid: [Math.ceil(rows / blockRows), Math.ceil(width / blockColumns)],
    args: { rows, heads, width, blockRows, blockColumns },
  }
}

/** A row of a tensor, by token and head. */
export interface RowPlace {
  readonly token: U32
  readonly head: U32
}

export function rowPlace(row: U32, heads: U32): RowPlace {
  const token = row.div(heads)
  return { token, head: row.sub(token.mul(heads)) }
}

/** Offset of element 0 of a row. */
export const rowOffset = (
  k: KernelBuilder,
  { token, head }: RowPlace,
  tokenStride: U32,
  headStride: U32,
): Val<'offset'> => k.offset(k.offset(0, token, tokenStride), head, headStride)

/** Offset of an element of a row. */
export const elementOffset = (
  k: KernelBuilder,
  place: RowPlace,
  column: U32,
  tokenStride: U32,
  headStride: U32,
): Val<'offset'> => k.offset(rowOffset(k, place, tokenStride, headStride), column, 1)

/** Calls `visit` for every element of the block's rows and columns, one thread an element. */
export function eachElement(
  k: KernelBuilder,
  p: Bound<keyof typeof elementScalars>,
  visit: (place: RowPlace, column: U32) => void,
): void {
  const firstRow = k.blockIdx.x.mul(p.blockRows)
  const firstColumn = k.blockIdx.y.mul(p.blockColumns)
  for (const e of k.range(p.blockRows.mul(p.blockColumns), { start: k.threadIdx, step: elementThreads })) {
    const below = e.div(p.blockColumns)
    const row = firstRow.add(below)
    const column = firstColumn.add(e.sub(below.mul(p.blockColumns)))
    k.when(row.lt(p.rows).and(column.lt(p.width)), () => visit(rowPlace(row, p.heads), column))
  }
}
