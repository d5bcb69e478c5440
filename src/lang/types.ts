/**
 * Register types of the kernel language. A type fixes the PTX register class, the lane storage of the simulator and
 * which operations exist; values of different types never mix.
 */

/** One 32-lane register of the simulator. */
export type Lanes = Float32Array | Int32Array | Uint32Array | Uint16Array | Uint8Array | BigUint64Array

type LaneStorage = {
  readonly BYTES_PER_ELEMENT: number
  new (buffer: ArrayBuffer, byteOffset: number, length: number): Lanes
}

interface TypeInfo {
  /** PTX register declaration. */
  readonly register: '.pred' | '.b16' | '.b32' | '.b64' | '.f32'
  /** Suffix in instruction names. */
  readonly suffix: string
  readonly bits: 1 | 16 | 32 | 64
  readonly lanes: LaneStorage
  /** Elements of a lane there: two of `f32x2`, the low one first. */
  readonly perLane: 1 | 2
  /** WGSL type, where WebGPU has one. */
  readonly wgsl: string | undefined
}

/**
 * `pred` a condition; `u32 i32 u64 f32` scalars; `offset` an element offset into a buffer, 64 bits wide in PTX and 32
 * in WGSL, so that one trace addresses large pools on a GPU and still prints for WebGPU; `b16` one 16-bit code or two bytes; `f16x2 bf16x2` two halves, the
 * first in the low half; `e4m3x2` (16 bits) and `e4m3x4` (32 bits) bytes, the first lowest; `f32x2` two f32 in one
 * 64-bit register.
 */
export type Type =
  | 'pred'
  | 'u32'
  | 'i32'
  | 'u64'
  | 'offset'
  | 'f32'
  | 'b16'
  | 'f16x2'
  | 'bf16x2'
  | 'e4m3x2'
  | 'e4m3x4'
  | 'f32x2'

const info: Readonly<Record<Type, TypeInfo>> = {
  pred: { register: '.pred', suffix: 'pred', bits: 1, lanes: Uint8Array, perLane: 1, wgsl: 'bool' },
  u32: { register: '.b32', suffix: 'u32', bits: 32, lanes: Uint32Array, perLane: 1, wgsl: 'u32' },
  i32: { register: '.b32', suffix: 's32', bits: 32, lanes: Int32Array, perLane: 1, wgsl: 'i32' },
  u64: { register: '.b64', suffix: 'u64', bits: 64, lanes: BigUint64Array, perLane: 1, wgsl: undefined },
  offset: { register: '.b64', suffix: 'u64', bits: 64, lanes: BigUint64Array, perLane: 1, wgsl: 'u32' },
  f32: { register: '.f32', suffix: 'f32', bits: 32, lanes: Float32Array, perLane: 1, wgsl: 'f32' },
  b16: { register: '.b16', suffix: 'b16', bits: 16, lanes: Uint16Array, perLane: 1, wgsl: undefined },
  f16x2: { register: '.b32', suffix: 'f16x2', bits: 32, lanes: Uint32Array, perLane: 1, wgsl: undefined },
  bf16x2: { register: '.b32', suffix: 'bf16x2', bits: 32, lanes: Uint32Array, perLane: 1, wgsl: undefined },
  e4m3x2: { register: '.b16', suffix: 'e4m3x2', bits: 16, lanes: Uint16Array, perLane: 1, wgsl: undefined },
  e4m3x4: { register: '.b32', suffix: 'b32', bits: 32, lanes: Uint32Array, perLane: 1, wgsl: undefined },
  f32x2: { register: '.b64', suffix: 'f32x2', bits: 64, lanes: Float32Array, perLane: 2, wgsl: undefined },
}

/** What a lane of each type is in JavaScript. */
export type LaneOf<T extends Type> = T extends 'u64' | 'offset' ? bigint : number

export const typeInfo = (type: Type): TypeInfo => info[type]

/** Architectures a kernel is printed for. `sm_90a` and `sm_100a` run on exactly one chip (isa.md §0). */
export const targets = ['sm_75', 'sm_80', 'sm_90a', 'sm_100a'] as const
export type Target = (typeof targets)[number]

const order: Record<Target, number> = { sm_75: 75, sm_80: 80, sm_90a: 90, sm_100a: 100 }

/** First architecture of an instruction; `90a` and `100a` name that chip alone. */
export type Since = 75 | 80 | 90 | '90a' | 100 | '100a'

/** Whether `target` has an instruction that came with `since`. */
export const runsOn = (target: Target, since: Since): boolean =>
  typeof since === 'string' ? target === `sm_${since}` : order[target] >= since
