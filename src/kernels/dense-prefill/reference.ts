/**
 * Dense prefill in float64 on the dequantised operands, over host tensors; the formula of a row is in
 * attention-reference.ts. Written to be read next to spec section 5, not to be fast.
 */

import { DeviceError } from '../../errors.ts'
import type { DenseKeys, KeyRows, RopeRows } from '../../ops/dense-keys.ts'
import type { DensePrefillArgs } from '../../ops/dense-prefill.ts'
import { type AnyTensor, DeviceTensor } from '../../tensor/device-tensor.ts'
import { latentRows } from '../../tensor/host-rows.ts'
import { Tensor } from '../../tensor/tensor.ts'
import { type AttentionReference, attendRow, emptyReference } from '../attention-reference.ts'
import { identity } from './score-mods.ts'

/** Queries `[firstToken, firstToken + tokens)` of the call, and the keys of their sequence. */
interface Span {
  readonly sequence: number
  readonly firstToken: number
  readonly tokens: number
  readonly numKeys: number
  /** Row of key 0 in contiguous tensors. */
  readonly firstKey: number
}

/** Where a key lies: its row in contiguous tensors, its block and place in pools. */
interface KeyPlace {
  /** Logical position. */
  readonly k: number
  readonly row: number
  readonly block: number
  readonly offset: number
}

/** A key of a sequence, its rows decoded for each kv head. */
interface DecodedKey {
  readonly k: number
  readonly keys: readonly Float64Array[]
  readonly values: readonly Float64Array[]
}

/** out `[tokens, heads, vDim]` and the symbols of its gates. @throws DeviceError when an operand lies on a device */
export function densePrefillReference(args: DensePrefillArgs): AttentionReference {
  const { keys, mask, scale, scoreMod = identity() } = args
  const query = queryReader(args)
  const decode = keyDecoder(keys)
  const sinks = args.sink && numbers(args.sink)
  const { tokens, heads } = query
  const { heads: kvHeads, width } = rowReader(keys.v)
  const into = emptyReference([tokens, heads, width])
  for (const span of spansOf(args, tokens)) {
    const decoded = placesOf(keys, span).map(decode)
    for (let row = 0; row < span.tokens; row++) {
      const position = span.numKeys - span.tokens + row
      const token = span.firstToken + row
      for (let head = 0; head < heads; head++) {
        const kvHead = Math.floor((head * kvHeads) / heads)
        const place = { row, head }
        const seen = decoded.filter(({ k }) => mask.visible(position, k, span.sequence, place))
        attendRow(into, token * heads + head, {
          q: query.read(token, head),
          keys: seen.map(key => key.keys[kvHead]!),
          values: seen.map(key => key.values[kvHead]!),
          scale,
          sink: sinks?.[head],
          mod: (score, j) => {
            const { k } = seen[j]!
            return scoreMod.apply(score, position, k, head) + mask.bias(k, span.sequence, place)
          },
        })
      }
    }
  }
  return into
}

/** Key vectors [nope | rope], times the key's scale, and values. */
function keyDecoder(keys: DensePrefillArgs['keys']): (place: KeyPlace) => DecodedKey {
  const [nope, v] = [rowReader(keys.nope), rowReader(keys.v)]
  const rope = ropeReader(keys.rope)
  const scale = keys.scale && rowReader(keys.scale)
  const kvHeads = Array.from({ length: v.heads }, (_, kvHead) => kvHead)
  return place => {
    const [ropeRow, factor] = [rope(place), scale?.read(place, 0)[0] ?? 1]
    return {
      k: place.k,
      keys: kvHeads.map(h => Float64Array.from([...nope.read(place, h), ...ropeRow], x => x * factor)),
      values: kvHeads.map(h => v.read(place, h)),
    }
  }
}

/** The query vector of a token and head, its scale applied. */
function queryReader(args: DensePrefillArgs): {
  readonly tokens: number
  readonly heads: number
  read(token: number, head: number): Float64Array
} {
  const parts = args.qNope === undefined ? [args.q] : [args.qNope, args.qRope]
  const scales = args.qScale && numbers(args.qScale)
  const [tokens, heads] = parts[0]!.shape as [number, number]
  const values = parts.map(part => ({ data: numbers(part), width: part.shape[2]! }))
  return {
    tokens,
    heads,
    read(token, head) {
      const at = token * heads + head
      const row = values.flatMap(({ data, width }) => [...data.subarray(at * width, (at + 1) * width)])
      return Float64Array.from(row, x => x * (scales?.[token] ?? 1))
    },
  }
}

function spansOf({ keys, rowOffsets, validLength }: DensePrefillArgs, tokens: number): Span[] {
  const batch = validLength?.shape[0] ?? (rowOffsets === undefined ? 1 : rowOffsets.shape[0]! - 1)
  const offsets = rowOffsets && numbers(rowOffsets)
  const valid = validLength && numbers(validLength)
  const kvOffsets = keys.kvRowOffsets && numbers(keys.kvRowOffsets)
  const cached = keys.cacheLength && numbers(keys.cacheLength)
  return Array.from({ length: batch }, (_, sequence) => {
    const firstToken = valid === undefined ? (offsets?.[sequence] ?? 0) : (sequence * tokens) / batch
    const count = valid?.[sequence] ?? (offsets?.[sequence + 1] ?? tokens) - firstToken
    const firstKey = kvOffsets?.[sequence] ?? 0
    const numKeys =
      cached === undefined
        ? (kvOffsets?.[sequence + 1] ?? contiguousKeys(keys)) - firstKey
        : cached[sequence]! + (keys.lengthsIncludeNew ? 0 : count)
    return { sequence, firstToken, tokens: count, numKeys, firstKey }
  })
}

/** Rows of whichever key tensor is contiguous. */
function contiguousKeys({ nope, v, rope }: DensePrefillArgs['keys']): number {
  const rows = [nope, v, 'format' in rope && rope.format === 'contiguous' ? rope.values : rope]
  return (rows.find(candidate => candidate instanceof Tensor) as Tensor).shape[0]!
}

/** The keys of a sequence, less those whose page is missing or names no block. */
function placesOf(
  { nope, v, rope, blockTable }: DenseKeys<'f32' | 'bf16' | 'e4m3'>,
  { sequence, numKeys, firstKey }: Span,
): KeyPlace[] {
  const pools = [nope, v, rope].flatMap(rows =>
    'pool' in rows ? [rows.pool] : 'layer' in rows ? [rows.values] : ([] as AnyTensor[]),
  )
  const table = blockTable && numbers(blockTable)
  const maxPages = blockTable?.shape[1] ?? 0
  const pageSize = pools[0]?.shape[2] ?? 1
  const blocks = Math.min(...pools.map(pool => pool.shape[0]!))
  const places = Array.from({ length: numKeys }, (_, k) => {
    const page = Math.floor(k / pageSize)
    const block = page < maxPages ? table![sequence * maxPages + page]! : Infinity
    return { k, row: firstKey + k, block, offset: k % pageSize }
  })
  return pools.length === 0 ? places : places.filter(({ block }) => block < blocks)
}

interface RowReader {
  readonly heads: number
  readonly width: number
  read(key: KeyPlace, head: number): Float64Array
}

/** Rows `[...row]` or `[heads, width]` of a key. */
function rowReader(rows: KeyRows<'f32' | 'bf16' | 'e4m3'>): RowReader {
  const paged = 'pool' in rows
  const tensor = paged ? rows.pool : rows
  const row = tensor.shape.slice(paged ? 3 : 1)
  const [heads, width] = row.length === 2 ? (row as [number, number]) : [1, row[0] ?? 1]
  const values = numbers(tensor)
  const [, layers, pageSize] = tensor.shape as [number, number, number]
  return {
    heads,
    width,
    read({ row: contiguous, block, offset }, head) {
      const index = paged ? (block * layers + rows.layer) * pageSize + offset : contiguous
      const at = (index * heads + head) * width
      return values.subarray(at, at + width)
    },
  }
}

/** The last 64 columns of a key's row, column c of it times scale floor(c / scaleBlock). */
function ropeReader(rope: RopeRows): (key: KeyPlace) => Float64Array {
  if (!('format' in rope)) {
    const rows = rowReader(rope as AnyTensor<'f32'>)
    return key => rows.read(key, 0)
  }
  const { values, scales, scaleBlock } = rope
  if (rope.format === 'packed656') {
    const packed = latentRows(rope)
    return ({ block, offset }) => {
      const row = new Float64Array(packed.width)
      packed.read(block * values.shape[2]! + offset, row)
      return row.slice(-64)
    }
  }
  const paged = rope.format === 'plain'
  const rowsOf = (t: AnyTensor): RowReader => rowReader((paged ? { pool: t, layer: rope.layer } : t) as KeyRows<'f32'>)
  const codes = rowsOf(values)
  const factors = scaleBlock > 0 ? rowsOf(scales!) : undefined
  return key => {
    const factor = factors?.read(key, 0)
    return codes
      .read(key, 0)
      .map((x, c) => x * (factor?.[Math.floor(c / scaleBlock)] ?? 1))
      .slice(-64)
  }
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
  return Float64Array.from(t.dtype === 'u32' ? (t.codes() as Uint32Array) : t.floats())
}
