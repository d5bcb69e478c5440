/**
 * Sparse prefill, sparse decode and dense decode in float64 on the dequantised operands, over host tensors; the formula
 * of a row is in attention-reference.ts. K is a whole cached row, V its first 512 columns.
 */

import { DeviceError } from '../../errors.ts'
import type { DenseDecodeArgs } from '../../ops/dense-decode.ts'
import type { LatentArgs, ListArgs } from '../../ops/latent-args.ts'
import type { SparseDecodeArgs } from '../../ops/sparse-decode.ts'
import type { SparsePrefillArgs } from '../../ops/sparse-prefill.ts'
import { nopeWidth } from '../../tensor/cache-layout.ts'
import type { LatentPool } from '../../tensor/cache-pool.ts'
import { type AnyTensor, DeviceTensor } from '../../tensor/device-tensor.ts'
import { latentRows } from '../../tensor/host-rows.ts'
import type { Tensor } from '../../tensor/tensor.ts'
import { type AttentionReference, attendRow, emptyReference } from '../attention-reference.ts'

/** The cached rows that query `query` of sequence `sequence` attends to. */
type Selection = (sequence: number, query: number) => Float64Array[]

/** @throws DeviceError when an operand lies on a device */
export function sparsePrefillReference(args: SparsePrefillArgs): AttentionReference {
  return attend(args, listed(args.cache, args))
}

/** @throws DeviceError when an operand lies on a device */
export function sparseDecodeReference(args: SparseDecodeArgs): AttentionReference {
  const { logicalIndices, cacheLength, extra } = args
  const positions = logicalIndices && lists(logicalIndices)
  const selected = listed(args.cache, args, (sequence, query, entry) => {
    if (positions === undefined || cacheLength === undefined) return true
    const position = positions(sequence, query)[entry]!
    return position >= 0 && position <= numbers(cacheLength)[sequence]! + query
  })
  const always = extra === undefined ? () => [] : listed(extra.cache, extra)
  return attend(
    args,
    within(args.validLength, (b, i) => [...selected(b, i), ...always(b, i)]),
  )
}

/** @throws DeviceError when an operand lies on a device */
export function denseDecodeReference(args: DenseDecodeArgs): AttentionReference {
  const { cache, blockTable, lengthsIncludeNew = false, causal = true, validLength } = args
  const read = reader(cache)
  const pageSize = cache.values.shape[2]!
  const pages = lists(blockTable)
  const selection: Selection = (sequence, query) => {
    const rows = validLength === undefined ? args.q.shape[1]! : numbers(validLength)[sequence]!
    const numKeys = numbers(args.cacheLength)[sequence]! + (lengthsIncludeNew ? 0 : rows)
    const visible = causal ? numKeys - rows + query + 1 : numKeys
    const slots = Array.from({ length: Math.max(0, visible) }, (_, position) => {
      const block = pages(sequence, query)[Math.floor(position / pageSize)] ?? -1
      return block < 0 ? -1 : block * pageSize + (position % pageSize)
    })
    return slots.flatMap(read)
  }
  return attend(args, within(validLength, selection))
}

/** Nothing for the queries past the length of their sequence. */
const within =
  (validLength: AnyTensor<'u32'> | undefined, selection: Selection): Selection =>
  (sequence, query) =>
    validLength !== undefined && query >= numbers(validLength)[sequence]! ? [] : selection(sequence, query)

function attend({ q, qScale, scale, sink }: LatentArgs, selection: Selection): AttentionReference {
  const [heads, width] = q.shape.slice(-2) as [number, number]
  const queries = q.shape.length === 4 ? q.shape[1]! : 1
  const into = emptyReference([...q.shape.slice(0, -1), nopeWidth])
  const [vectors, scales, sinks] = [numbers(q), qScale && numbers(qScale), sink && numbers(sink)]
  for (let token = 0; token < q.shape[0]! * queries; token++) {
    const keys = selection(Math.floor(token / queries), token % queries)
    for (let h = 0; h < heads; h++) {
      const row = token * heads + h
      const vector = vectors.subarray(row * width, (row + 1) * width).map(x => x * (scales?.[row] ?? 1))
      attendRow(into, row, { q: vector, keys, values: keys, scale, sink: sinks?.[h] })
    }
  }
  return into
}

/** The rows that lists of slots name: inside the pool, among the first `topkLength`, and as `counts` says. */
function listed(
  cache: LatentPool,
  { indices, topkLength }: ListArgs,
  counts: (sequence: number, query: number, entry: number) => boolean = () => true,
): Selection {
  const read = reader(cache)
  const slots = lists(indices)
  const lengths = topkLength && entries(topkLength, indices.shape.length - 1)
  return (sequence, query) => {
    const length = lengths?.(sequence, query) ?? Infinity
    return [...slots(sequence, query)].filter((_, j) => j < length && counts(sequence, query, j)).flatMap(read)
  }
}

/** Decodes a row of the pool, once; nothing for a slot outside it. */
function reader(cache: LatentPool): (slot: number) => Float64Array[] {
  const rows = latentRows(cache)
  const decoded = new Map<number, Float64Array>()
  return slot => {
    if (slot < 0 || slot >= rows.slots) return []
    const row = decoded.get(slot) ?? new Float64Array(rows.width)
    if (!decoded.has(slot)) rows.read(slot, row)
    decoded.set(slot, row)
    return [row]
  }
}

/** The list `[...rows, entries]` of a row; a tensor of two axes has one for each sequence. */
function lists(t: AnyTensor): (sequence: number, query: number) => Float64Array {
  const values = numbers(t)
  const length = t.shape.at(-1)!
  const queries = t.shape.length === 3 ? t.shape[1]! : undefined
  return (sequence, query) => {
    const row = queries === undefined ? sequence : sequence * queries + query
    return values.subarray(row * length, (row + 1) * length)
  }
}

/** The number of a row in a tensor of one or two row axes. */
function entries(t: AnyTensor, axes: number): (sequence: number, query: number) => number {
  const values = numbers(t)
  return (sequence, query) => values[axes === 1 ? sequence : sequence * t.shape[1]! + query]!
}

/** All values of a tensor, exactly. @throws DeviceError when it lies on a device */
function numbers(t: AnyTensor): Float64Array {
  if (t instanceof DeviceTensor)
    throw new DeviceError({
      where: 'reference',
      argument: 'tensor',
      given: `on ${t.device.name}`,
      allowed: 'host memory',
    })
  return Float64Array.from(isInteger(t) ? (t.codes() as Int32Array) : t.floats())
}

const isInteger = ({ dtype }: Tensor): boolean => dtype === 'i32' || dtype === 'u32'
