/**
 * The three index spaces of a paged cache, never mixed (spec §0):
 *
 *   logical   0 .. numKeys-1 within one sequence
 *   slot      block * pageSize + offset, 0 .. blocks*pageSize-1 within a pool
 *   row       (block * layers + layer) * pageSize + offset, the memory row of a multi-layer pool
 *
 * An index tensor carries its space at run time and in its type; operations refuse a tensor of another space.
 */

import type { AnyTensor } from './device-tensor.ts'

export type IndexSpace = 'logical' | 'slot' | 'row'

/** An index tensor (i32, or u32 where 0xFFFFFFFF stands for -1) known to hold indices of space `S`. */
export type Indices<S extends IndexSpace> = AnyTensor<'i32' | 'u32'> & { readonly space: S }

const tag =
  <S extends IndexSpace>(space: S) =>
  (indices: AnyTensor<'i32' | 'u32'>): Indices<S> =>
    indices.withSpace(space) as Indices<S>

/** Declares that a tensor holds logical positions within a sequence. */
export const logical: (indices: AnyTensor<'i32' | 'u32'>) => Indices<'logical'> = tag('logical')

/** Declares that a tensor holds pool slots, `block * pageSize + offset`. */
export const slots: (indices: AnyTensor<'i32' | 'u32'>) => Indices<'slot'> = tag('slot')

/** Declares that a tensor holds memory rows, `(block * layers + layer) * pageSize + offset`. */
export const rows: (indices: AnyTensor<'i32' | 'u32'>) => Indices<'row'> = tag('row')
