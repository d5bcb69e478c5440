/**
 * Whole arrays to and from f32, and the codec of a dtype chosen at run time. Every element equals the scalar codec's bit
 * for bit, the payload of a NaN aside.
 */
import { ShapeError } from '../errors.ts'
import { bf16FromF32Bits, decodeBf16 } from './bf16.ts'
import { dtypeInfo, type FloatDtype, type StorageOf } from './dtype.ts'
import { decodeE4m3, e4m3FromF32Bits } from './e4m3.ts'
import { decodeE5m2, e5m2FromF32Bits } from './e5m2.ts'
import { decodeF16, f16FromF32Bits } from './f16.ts'
import { bitsFromF32 } from './f32-bits.ts'
import { decodeUe8m0, ue8m0FromF32Bits } from './ue8m0.ts'

type CodeDtype = Exclude<FloatDtype, 'f32'>
type ByteDtype = 'e4m3' | 'e5m2' | 'ue8m0'

const codeFromF32Bits: { readonly [D in CodeDtype]: (bits: number) => number } = {
  bf16: bf16FromF32Bits,
  f16: f16FromF32Bits,
  e4m3: e4m3FromF32Bits,
  e5m2: e5m2FromF32Bits,
  ue8m0: ue8m0FromF32Bits,
}

const decoders: { readonly [D in CodeDtype]: (code: number) => number } = {
  bf16: decodeBf16,
  f16: decodeF16,
  e4m3: decodeE4m3,
  e5m2: decodeE5m2,
  ue8m0: decodeUe8m0,
}

const tables: { readonly [D in ByteDtype]: Float32Array } = {
  e4m3: Float32Array.from({ length: 256 }, (_, code) => decodeE4m3(code)),
  e5m2: Float32Array.from({ length: 256 }, (_, code) => decodeE5m2(code)),
  ue8m0: Float32Array.from({ length: 256 }, (_, code) => decodeUe8m0(code)),
}

/** The values of all 256 codes. One shared table a dtype: read it, never write it. */
export function decodeTable(dtype: ByteDtype): Float32Array {
  return tables[dtype]
}

/** The code of `x`, first rounded to f32; for `'f32'` that f32 itself. */
export function encodeValue(dtype: FloatDtype, x: number): number {
  return dtype === 'f32' ? Math.fround(x) : codeFromF32Bits[dtype](bitsFromF32(x))
}

/** The value of a code; for `'f32'` the element itself. */
export function decodeValue(dtype: FloatDtype, code: number): number {
  return dtype === 'f32' ? code : decoders[dtype](code)
}

/**
 * The codes of `values`, in order. The sign of a NaN is kept.
 *
 * @param into receives the codes; as long as `values` and not the same memory. A new array if left out.
 * @throws ShapeError when `into` has another length
 */
export function encodeArray<D extends FloatDtype>(dtype: D, values: Float32Array, into?: StorageOf<D>): StorageOf<D> {
  const codes = destination<D>('encodeArray', dtype, values.length, into)
  if (dtype === 'f32') {
    codes.set(values)
    return codes
  }
  const bits = new Uint32Array(values.buffer, values.byteOffset, values.length)
  const encode = codeFromF32Bits[dtype as CodeDtype]
  for (let i = 0; i < bits.length; i++) codes[i] = encode(bits[i]!)
  return codes
}

/**
 * The values of `codes`, in order, all exact.
 *
 * @param into receives the values; as long as `codes` and not the same memory. A new array if left out.
 * @throws ShapeError when `into` has another length
 */
export function decodeArray<D extends FloatDtype>(dtype: D, codes: StorageOf<D>, into?: Float32Array): Float32Array {
  const values = destination('decodeArray', 'f32', codes.length, into)
  switch (dtype) {
    case 'f32':
      values.set(codes)
      break
    case 'bf16': {
      const bits = new Uint32Array(values.buffer, values.byteOffset, values.length)
      for (let i = 0; i < bits.length; i++) bits[i] = codes[i]! << 16
      break
    }
    case 'f16':
      for (let i = 0; i < values.length; i++) values[i] = decodeF16(codes[i]!)
      break
    default: {
      const table = tables[dtype as ByteDtype]
      for (let i = 0; i < values.length; i++) values[i] = table[codes[i]!]!
    }
  }
  return values
}

function destination<D extends FloatDtype>(
  where: string,
  dtype: D,
  length: number,
  into: StorageOf<D> | undefined,
): StorageOf<D> {
  if (into === undefined) return new dtypeInfo[dtype].storage(length)
  if (into.length !== length)
    throw new ShapeError({ where, argument: 'into.length', given: into.length, allowed: `${length}, one per element` })
  return into
}
