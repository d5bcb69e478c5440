/** What instruction records say, computed on the host: bits in, bits out. */

import { decodeBf16 } from '../dtypes/bf16.ts'
import { decodeF16 } from '../dtypes/f16.ts'
import { f32FromBits } from '../dtypes/f32-bits.ts'
import type { InstRecord } from '../lang/record.ts'
import { type Lanes, type Type, typeInfo } from '../lang/types.ts'

type Bits = number | bigint

/** A lane storage of `type` over the words that hold its bits. */
function storage(type: Type, length: number): { lanes: Lanes; bits: Lanes } {
  const { lanes: storageOf, perLane } = typeInfo(type)
  const elements = length * perLane
  const lanes = new storageOf(new ArrayBuffer(elements * storageOf.BYTES_PER_ELEMENT), 0, elements)
  const reinterpreted = lanes instanceof Float32Array || lanes instanceof Int32Array
  return { lanes, bits: reinterpreted ? new Uint32Array(lanes.buffer as ArrayBuffer) : lanes }
}

/** The record's results for these operands, each as the bits of its register. */
export function laneResults(record: InstRecord, types: readonly Type[], columns: readonly Bits[][]): Bits[] {
  const count = columns[0]!.length
  const inputs = types.map((type, j) => {
    const { lanes, bits } = storage(type, count)
    bits.set(columns[j] as never)
    return lanes
  })
  const { lanes: results, bits } = storage(record.operands.d!.type, count)
  const lane = record.lane as (...inputs: Bits[]) => never
  for (let i = 0; i < count; i++) results[i] = lane(...inputs.map(input => input[i]!))
  return [...(bits as Iterable<Bits>)]
}

const halfCodecs: Partial<Record<Type, (code: number) => number>> = { bf16x2: decodeBf16, f16x2: decodeF16 }

/**
 * Whether a result is as the record says, and its distance in units in the last place. A NaN of f32 is as good as any
 * other: JavaScript does not keep their bits apart.
 */
export function isCloseEnough(record: InstRecord, actual: Bits, expected: Bits): readonly [boolean, number] {
  if (actual === expected) return [true, 0]
  const { type } = record.operands.d!
  const { ulps = 0, within = 0 } = record
  if (typeof actual === 'bigint' || typeof expected === 'bigint') return [false, 0]
  if (type === 'f32') return closeFloats(f32FromBits, 0x80000000, actual, expected, ulps, within)
  const decode = halfCodecs[type]
  if (decode === undefined || ulps === 0) return [false, 0]
  const halves = [0, 16].map(shift =>
    closeFloats(decode, 0x8000, (actual >>> shift) & 0xffff, (expected >>> shift) & 0xffff, ulps, within),
  )
  return [halves.every(([close]) => close), Math.max(...halves.map(([, distance]) => distance))]
}

function closeFloats(
  decode: (code: number) => number,
  sign: number,
  actual: number,
  expected: number,
  ulps: number,
  within: number,
): readonly [boolean, number] {
  const [x, y] = [decode(actual), decode(expected)]
  if (Number.isNaN(x) || Number.isNaN(y)) return [Number.isNaN(x) && Number.isNaN(y), 0]
  if (ulps === 0) return [actual === expected, 0]
  const place = (code: number): number => (code >= sign ? sign - code : code)
  const distance = Math.abs(place(actual) - place(expected))
  if (Math.abs(x - y) <= within) return [true, 0]
  return [distance <= ulps, distance]
}
