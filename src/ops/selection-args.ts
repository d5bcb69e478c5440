/** Checks that the selecting operations share: k, the order, the map to slots, the outputs. */

import type { SlotProblem } from '../kernels/remap-indices/problem.ts'
import type { SelectionProblem } from '../kernels/top-k/problem.ts'
import type { AnyTensor, DeviceTensor } from '../tensor/device-tensor.ts'
import type { IndexSpace } from '../tensor/spaces.ts'
import type { Contract } from './contract.ts'
import type { OutputSpec, TensorTable } from './op.ts'

/** Where the sequences of a batch keep their keys: what turns logical positions into slots. */
export interface SlotArgs {
  /** u32 `[batch, maxPages]`: the block of each page. */
  readonly blockTable: AnyTensor<'u32'>
  /** Keys of a page. */
  readonly pageSize: number
  /** Blocks of the pool; a block table entry that is not below it is no page. */
  readonly blocks: number
}

export interface SelectionArgs {
  /** Columns of the result, 1..8192. */
  readonly k: number
  /** `score` (default): best first, equal scores by index. `index`: ascending. */
  readonly order?: 'score' | 'index' | undefined
  /** Map the selected positions to slots at once; what has no page becomes -1. */
  readonly slots?: SlotArgs | undefined
  /** The caller's own output tensors; `indices` with any row stride. */
  readonly into?:
    | { readonly indices?: DeviceTensor<'i32'> | undefined; readonly counts?: DeviceTensor<'i32'> | undefined }
    | undefined
}

export interface Selection<S extends IndexSpace> {
  /** i32 `[tokens, k]`, -1 after the last selected key. */
  readonly indices: DeviceTensor<'i32'> & { readonly space: S }
  /** i32 `[tokens]`: keys selected, whether or not they have a slot. */
  readonly counts: DeviceTensor<'i32'>
}

/** Argument names of {@link SelectionArgs}. */
export const selectionKeys: readonly string[] = ['k', 'order', 'slots', 'into']

/** The most that a selection may hold. */
const mostSelected = 8192

/** @throws OptionError | DtypeError | ShapeError | ValueError */
export function checkSlots(
  c: Contract,
  slots: SlotArgs,
  batch: number,
): { readonly problem: SlotProblem; readonly tensors: TensorTable } {
  const { blockTable, pageSize, blocks } = c.object('slots', slots, ['blockTable', 'pageSize', 'blocks'])
  const table = c.tensor('slots.blockTable', blockTable, { dtypes: ['u32'], shape: [batch, 'maxPages of slots'] })
  const size = c.integer('slots.pageSize', pageSize, 1, 2 ** 31 - 1)
  const problem = { pageSize: size, blocks: c.integer('slots.blocks', blocks, 0, Math.floor(2 ** 31 / size)) }
  return { problem, tensors: { 'slots.blockTable': table } }
}

/** The arguments of {@link SelectionArgs}; the dimension `tokens` must be known. @throws as `Contract.tensor` */
export function checkSelection(
  c: Contract,
  args: SelectionArgs,
  batch: number,
): {
  readonly problem: SelectionProblem
  readonly tensors: TensorTable
  readonly outputs: Readonly<Record<'indices' | 'counts', OutputSpec>>
} {
  const k = c.integer('k', args.k, 1, mostSelected)
  const order = args.order === undefined ? 'score' : c.choice('order', args.order, ['score', 'index'])
  const slots = args.slots === undefined ? undefined : checkSlots(c, args.slots, batch)
  const into = args.into === undefined ? {} : c.object('into', args.into, ['indices', 'counts'])
  const space = slots === undefined ? 'logical' : 'slot'
  return {
    problem: { k, order, slots: slots?.problem },
    tensors: slots?.tensors ?? {},
    outputs: {
      indices: c.output('into.indices', into.indices, 'i32', ['tokens', k], space),
      counts: c.output('into.counts', into.counts, 'i32', ['tokens']),
    },
  }
}
