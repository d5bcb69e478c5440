/**
 * What a mask is: which keys a query sees, as one object that the reference, the planners and the kernels all use.
 *
 * A mask is a postfix program of at most 16 leaves joined by `and` and `or`. Every leaf but `materialized` shows a
 * query one interval of keys, so a query's visible keys are a few disjoint intervals; kernels evaluate the same program.
 */

import { decodeValue } from '../../dtypes/convert.ts'
import type { FloatDtype } from '../../dtypes/dtype.ts'
import type { AnyTensor } from '../../tensor/device-tensor.ts'
import { Tensor } from '../../tensor/tensor.ts'
import { covers, type IntervalSet, intersect, intervalSet, touches, unite } from './intervals.ts'

export type MaskLeafKind =
  | 'none'
  | 'causal'
  | 'slidingWindow'
  | 'slidingWindowBoth'
  | 'chunked'
  | 'chunkedCausal'
  | 'causalPadding'
  | 'materialized'

/** One step of the postfix program: push a leaf, or join the two sets on top of the stack. */
export type MaskStep =
  | { readonly kind: Exclude<MaskLeafKind, 'causalPadding' | 'materialized'>; readonly window: number }
  | { readonly kind: 'causalPadding'; readonly valid: AnyTensor<'u32'> }
  | { readonly kind: 'materialized'; readonly bias: AnyTensor<BiasDtype> }
  | { readonly kind: 'and' }
  | { readonly kind: 'or' }

export type BiasDtype = 'f32' | 'bf16' | 'f16'

/** Queries of one sequence at consecutive absolute positions, against its keys. */
export interface MaskBlock {
  readonly sequence: number
  /** Absolute position of the first query; may be negative. */
  readonly firstQuery: number
  readonly queries: number
  /** Keys of the sequence; keys from here on are never visible. */
  readonly numKeys: number
}

/** The same queries against the keys `[firstKey, firstKey + keys)`. */
export interface MaskTile extends MaskBlock {
  readonly firstKey: number
  readonly keys: number
}

/** Of the tile's pairs, how many are visible: `none`, some (`partial`), all (`full`), or only known where the data are. */
export type TileStatus = 'none' | 'partial' | 'full' | 'unknown'

/** What a materialized mask is indexed by, beside the key: the query's index within its sequence's queries, and the head. */
export interface BiasPlace {
  readonly row: number
  readonly head: number
}

/** Keys that are surely visible, and keys that may be; the same set where nothing depends on device data. */
interface Sets {
  readonly sure: IntervalSet
  readonly possible: IntervalSet
}

const onHost = <D extends FloatDtype | 'u32'>(tensor: AnyTensor<D>): tensor is Tensor<D> => tensor instanceof Tensor

export class Mask {
  /** As written, e.g. `and(causal(), chunked(64))`. */
  readonly name: string
  readonly program: readonly MaskStep[]

  constructor(name: string, program: readonly MaskStep[]) {
    this.name = name
    this.program = program
  }

  /**
   * Whether the query at absolute position `q` sees key `k` of the sequence. Needs the mask's tensors on the host.
   *
   * @param place read by materialized masks only; by default the query is row `q` and the head 0
   */
  visible(q: number, k: number, sequence: number, place: BiasPlace = { row: q, head: 0 }): boolean {
    return this.fold<boolean>(
      leaf => leafVisible(leaf, q, k, sequence, place),
      (a, b) => a && b,
      (a, b) => a || b,
    )
  }

  /** What is added to the score of a visible pair: the sum over the materialized leaves that show the pair themselves. */
  bias(k: number, sequence: number, place: BiasPlace): number {
    let sum = 0
    for (const step of this.program) {
      if (step.kind !== 'materialized') continue
      const value = biasAt(step.bias, k, sequence, place)
      if (value !== -Infinity) sum += value
    }
    return sum
  }

  /** Materialized leaves of the program. */
  get biases(): number {
    return this.program.filter(step => step.kind === 'materialized').length
  }

  /** First key any query of the block may see, rounded down to a multiple of `tileKeys`; 0 when there is none. */
  startColumn(block: MaskBlock, tileKeys: number): number {
    const { first } = this.hull(block)
    return first === Infinity ? 0 : Math.floor(first / tileKeys) * tileKeys
  }

  /** Tiles of `tileKeys` keys from `startColumn` to the last key any query of the block may see. */
  iterations(block: MaskBlock, tileKeys: number): number {
    const { end } = this.hull(block)
    return Math.ceil((end - Math.min(end, this.startColumn(block, tileKeys))) / tileKeys)
  }

  /** What the mask does to a tile; `unknown` only with materialized masks or tensors on a device. */
  status({ sequence, firstQuery, queries, firstKey, keys, numKeys }: MaskTile): TileStatus {
    const end = firstKey + keys
    const rows = Array.from({ length: queries }, (_, i) => this.sets(firstQuery + i, sequence, numKeys))
    if (!rows.some(({ possible }) => touches(possible, firstKey, end))) return 'none'
    if (rows.every(({ sure }) => covers(sure, firstKey, end))) return 'full'
    const shown = rows.some(({ sure }) => touches(sure, firstKey, end))
    const hidden = rows.some(({ possible }) => !covers(possible, firstKey, end))
    return shown && hidden ? 'partial' : 'unknown'
  }

  private hull({ sequence, firstQuery, queries, numKeys }: MaskBlock): { first: number; end: number } {
    let first = Infinity
    let end = 0
    for (let q = firstQuery; q < firstQuery + queries; q++) {
      const { possible } = this.sets(q, sequence, numKeys)
      first = Math.min(first, possible[0]?.[0] ?? Infinity)
      end = Math.max(end, possible.at(-1)?.[1] ?? 0)
    }
    return { first, end }
  }

  private sets(q: number, sequence: number, numKeys: number): Sets {
    return this.fold<Sets>(
      leaf => leafSets(leaf, q, sequence, numKeys),
      (a, b) => joinSets(a, b, intersect),
      (a, b) => joinSets(a, b, unite),
    )
  }

  private fold<T>(leaf: (step: MaskLeaf) => T, and: (a: T, b: T) => T, or: (a: T, b: T) => T): T {
    const stack: T[] = []
    for (const step of this.program) {
      if (step.kind !== 'and' && step.kind !== 'or') {
        stack.push(leaf(step))
        continue
      }
      const b = stack.pop()!
      const a = stack.pop()!
      stack.push((step.kind === 'and' ? and : or)(a, b))
    }
    return stack[0]!
  }
}

type MaskLeaf = Exclude<MaskStep, { kind: 'and' | 'or' }>

function joinSets(a: Sets, b: Sets, join: (a: IntervalSet, b: IntervalSet) => IntervalSet): Sets {
  const possible = join(a.possible, b.possible)
  return a.sure === a.possible && b.sure === b.possible
    ? { sure: possible, possible }
    : { sure: join(a.sure, b.sure), possible }
}

/** The visibility rule of each leaf, pair by pair (spec section 5). */
function leafVisible(leaf: MaskLeaf, q: number, k: number, sequence: number, place: BiasPlace): boolean {
  switch (leaf.kind) {
    case 'none':
      return true
    case 'causal':
      return k <= q
    case 'slidingWindow':
      return q - leaf.window < k && k <= q
    case 'slidingWindowBoth':
      return k + leaf.window > q
    case 'chunked':
      return Math.floor(q / leaf.window) === Math.floor(k / leaf.window)
    case 'chunkedCausal':
      return k <= q && Math.floor(q / leaf.window) === Math.floor(k / leaf.window)
    case 'causalPadding':
      return k <= q && k < validAt(leaf.valid, sequence)
    case 'materialized':
      return biasAt(leaf.bias, k, sequence, place) !== -Infinity
  }
}

/** The same rule as an interval of the keys `[0, numKeys)`. */
function leafSets(leaf: MaskLeaf, q: number, sequence: number, numKeys: number): Sets {
  const exact = (first: number, end: number): Sets => {
    const set = intervalSet(Math.max(first, 0), Math.min(end, numKeys))
    return { sure: set, possible: set }
  }
  switch (leaf.kind) {
    case 'none':
      return exact(0, numKeys)
    case 'causal':
      return exact(0, q + 1)
    case 'slidingWindow':
      return exact(q - leaf.window + 1, q + 1)
    case 'slidingWindowBoth':
      return exact(q - leaf.window + 1, numKeys)
    case 'chunked':
    case 'chunkedCausal': {
      const first = Math.floor(q / leaf.window) * leaf.window
      return exact(first, leaf.kind === 'chunked' ? first + leaf.window : q + 1)
    }
    case 'causalPadding':
      return onHost(leaf.valid)
        ? exact(0, Math.min(q + 1, validAt(leaf.valid, sequence)))
        : { ...exact(0, q + 1), sure: [] }
    case 'materialized':
      return { ...exact(0, leaf.bias.shape.at(-1)!), sure: [] }
  }
}

const validAt = (valid: AnyTensor<'u32'>, sequence: number): number => {
  const { data, offset } = valid as Tensor<'u32'>
  return data[offset + sequence]!
}

/** -inf outside the tensor. */
function biasAt(bias: AnyTensor<BiasDtype>, k: number, sequence: number, { row, head }: BiasPlace): number {
  const { shape, strides, offset, data, dtype } = bias as Tensor<BiasDtype>
  const rank = shape.length
  if (row < 0 || row >= shape[rank - 2]! || k >= shape[rank - 1]!) return -Infinity
  const plane = sequence * strides[0]! + (rank === 4 ? head * strides[1]! : 0)
  return decodeValue(dtype, data[offset + plane + row * strides[rank - 2]! + k]!)
}
