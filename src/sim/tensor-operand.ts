/** Operands of a tensor-core multiply: which bytes of shared or tensor memory they are, and what these hold. */

import { type ResultForm, resultPlace, tensorColumns } from '../lang/isa/tensor-shape.ts'
import { swizzled } from '../lang/swizzle.ts'
import type { Block } from './block.ts'
import type { Accessor } from './shadow.ts'
import type { SharedDescriptor } from './tensor-descriptor.ts'

/** Bytes of K of one instruction. */
const stepBytes = 32

/**
 * Byte address of 16 bytes of an operand; `line` is a row of it, or a row of K of a transposed one. Sources: PTX ISA 9.0,
 * "canonical layouts", restated in isa.md §5.4; CUTLASS, the layouts beside `make_umma_desc`, evaluated by the test beside.
 */
export function chunkAddress(
  { start, leading, stride, swizzle }: SharedDescriptor,
  line: number,
  byte: number,
  transposed: boolean,
): number {
  if (swizzle === 0) {
    const [lines, chunks] = transposed ? [leading, stride] : [stride, leading]
    return start + 16 * (line & 7) + (line >> 3) * lines + (byte >> 4) * chunks + (byte & 15)
  }
  const [panel, inside] = transposed ? [Math.floor(byte / swizzle), byte % swizzle] : [0, byte]
  return swizzled(start + (line & 7) * swizzle + (line >> 3) * stride + panel * leading + inside, swizzle)
}

/** Part of an operand in one block's shared memory. */
export interface SharedPart {
  readonly block: Block
  readonly rows: number
  readonly elementBytes: 1 | 2
  readonly transposed: boolean
  /** Byte addresses of 16 bytes each: of row after row, or of row of K after row of K. */
  readonly chunks: Int32Array
}

/** The bytes of an operand, after judging whether they may be read now. */
export function sharedPart(
  block: Block,
  by: Accessor,
  descriptor: SharedDescriptor,
  rows: number,
  elementBytes: 1 | 2,
  transposed: boolean,
): SharedPart {
  const lines = transposed ? stepBytes / elementBytes : rows
  const perLine = (transposed ? rows * elementBytes : stepBytes) / 16
  const chunks = new Int32Array(lines * perLine)
  for (let line = 0; line < lines; line++)
    for (let i = 0; i < perLine; i++) {
      const at = chunkAddress(descriptor, line, 16 * i, transposed)
      chunks[line * perLine + i] = at
      block.asyncRead(by, at, 16)
    }
  return { block, rows, elementBytes, transposed, chunks }
}

/** What the part holds now: 32 bytes of K of each row. */
export function bytesOfPart({ block, rows, elementBytes, transposed, chunks }: SharedPart): Uint8Array {
  const { bytes } = block.shared
  const out = new Uint8Array(rows * stepBytes)
  if (!transposed) {
    for (let i = 0; i < chunks.length; i++) out.set(bytes.subarray(chunks[i]!, chunks[i]! + 16), 16 * i)
    return out
  }
  const perLine = (rows * elementBytes) / 16
  for (let i = 0; i < chunks.length; i++) {
    const line = Math.floor(i / perLine)
    const first = ((i % perLine) * 16) / elementBytes
    for (let x = 0; x < 16; x++)
      out[(first + Math.floor(x / elementBytes)) * stepBytes + line * elementBytes + (x % elementBytes)] =
        bytes[chunks[i]! + x] ?? 0
  }
  return out
}

/**
 * The 32 bytes of K of the rows that a block's tensor memory gives for columns `part` of the result: a folded result takes
 * them from the lanes below which its columns lie.
 */
export function bytesOfLanes(
  cells: Uint32Array,
  form: ResultForm,
  rank: number,
  part: number,
  { lane, column }: { readonly lane: number; readonly column: number },
): Uint8Array {
  const own = form.pair ? form.m / 2 : form.m
  const out = new Uint8Array(own * stepBytes)
  const words = new Uint32Array(out.buffer)
  for (let row = 0; row < own; row++) {
    const place = resultPlace(form, rank * own + row, part)
    const at = (lane + place.lane) * tensorColumns + column
    for (let i = 0; i < stepBytes / 4; i++) words[8 * row + i] = cells[at + i]!
  }
  return out
}
