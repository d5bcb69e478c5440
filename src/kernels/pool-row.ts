/** Logical positions of a sequence to blocks of a pool and rows in them, inside a kernel. */

import type { Buffer } from '../lang/buffer.ts'
import type { KernelBuilder } from '../lang/builder.ts'
import type { Val } from '../lang/value.ts'

/** Parameters of a kernel that reads a paged pool. */
export interface PoolParams {
  readonly blockTable: Buffer<'u32'>
  readonly pageSize: Val<'u32'>
  readonly blocks: Val<'u32'>
  readonly maxPages: Val<'u32'>
  readonly tableStride: Val<'u32'>
}

export interface PoolRow {
  readonly block: Val<'u32'>
  readonly row: Val<'u32'>
  /** Whether the page is in the table and names a block of the pool. */
  readonly exists: Val<'pred'>
}

/** Where position `j` of sequence `sequence` lies. The block table is read only where it has the page. */
export function poolRowOf(k: KernelBuilder, p: PoolParams, sequence: Val<'u32'>, j: Val<'u32'>): PoolRow {
  const page = j.div(p.pageSize)
  const block = k.var('u32', 0xffffffff)
  k.when(page.lt(p.maxPages), () => block.set(p.blockTable.load(k.offset(page, sequence, p.tableStride))))
  return { block, row: j.sub(page.mul(p.pageSize)), exists: block.lt(p.blocks) }
}
