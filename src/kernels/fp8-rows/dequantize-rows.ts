/**
 * Rows of e4m3 codes of one layer of a pool as bf16 rows in slot order, for a call that reads each of them many times. Rows
 * of pages without a mark (page-marks.ts) are left out, and not read.
 *
 *   unit, per-token scales   row = the e4m3 values, exact; a token's scale is copied beside
 *   scales of blocks, packed row = bf16(value · scale), the product in f32; bf16 columns are copied
 *
 * the same bits as the tiles of the kernels that convert on the way. A thread takes 16 bytes at a time, of which it has a few
 * on the way; neighbours have neighbouring pieces. Blocks walk through all pieces, a stride of the grid apart.
 */

import type { KernelBuilder } from '../../lang/builder.ts'
import { type Bound, type Kernel, kernel } from '../../lang/kernel.ts'
import { specialize } from '../../lang/launch.ts'
import { reinterpret } from '../../lang/packed.ts'
import { input, output, u32 } from '../../lang/params.ts'
import type { Val } from '../../lang/value.ts'
import { loadFloatIf, loadWordsIf } from '../../lang/words.ts'
import { decodeWord } from './e4m3-words.ts'
import { blockOf, type Fp8RowFormat, isScaled, packedOffsets } from './row-format.ts'

type U32 = Val<'u32'>

export const dequantizeThreads = 256
/** Bytes of a piece, and codes. */
const pieceBytes = 16
/** Pieces of a thread on the way from memory. */
const ahead = 4
const packedCodes = 512

export interface DequantizeConfig extends Fp8RowFormat {
  /** Whether each row has one scale, which is copied. */
  readonly keyScales: boolean
}

const params = {
  values: input('u8', '[memory rows, rowBytes]: the first row of the layer and those after it'),
  rowBytes: u32('bytes from row to row'),
  scales: input('f32', '[memory rows, scaleStride]: scales of plain rows'),
  scaleStride: u32('elements'),
  pageSize: u32('slots of a block'),
  blockGap: u32('memory rows from the end of a block to the layer’s next one'),
  slots: u32('slots of the pool'),
  marks: input('u32', '[blocks]: not 0 where a list names a row of the block'),
  rows: output('u32', '[slots, width]: bf16 in pairs'),
  rowScales: output('f32', '[slots]: scales of rows that have one'),
}

type Params = { readonly [K in keyof typeof params]: Bound<(typeof params)[K]> }

export const traceDequantizeRows: (c: DequantizeConfig) => Kernel = specialize(c =>
  kernel({ name: nameOf(c), target: 'sm_90a', threads: dequantizeThreads, params }, (k, p) => {
    const pieces = piecesOf(c)
    const total = p.slots.mul(pieces)
    const stride = k.gridDim.x.mul(dequantizeThreads)
    const first = k.blockIdx.x.mul(dequantizeThreads).add(k.threadIdx)
    for (const start of k.range(total, { start: first, step: stride.mul(ahead) })) {
      const loaded = Array.from({ length: ahead }, (_, i) => {
        const index = start.add(stride.mul(i))
        const slot = index.div(pieces)
        const inside = index.lt(total)
        const named = p.marks.loadIf(inside, slot.div(p.pageSize)).ne(0)
        return load(k, c, p, inside.and(named), slot, index.sub(slot.mul(pieces)))
      })
      for (const one of loaded) k.when(one.exists, () => store(k, c, p, one))
    }
  }),
)

const nameOf = ({ packed, width, scaleBlock, keyScales }: DequantizeConfig): string => {
  const scales = keyScales ? 'token' : scaleBlock > 0 ? `block${scaleBlock}` : 'unit'
  return `dequantize_rows_sm90_${packed ? 'packed656' : `${width}_${scales}`}`
}

const codesOf = ({ packed, width }: Fp8RowFormat): number => (packed ? packedCodes : width)

/** Pieces of a row: of codes, then of bf16 columns. */
export const piecesOf = (format: Fp8RowFormat): number =>
  codesOf(format) / pieceBytes + (2 * (format.width - codesOf(format))) / pieceBytes

interface Piece {
  readonly exists: Val<'pred'>
  readonly slot: U32
  readonly piece: U32
  readonly words: readonly U32[]
  /** Of the piece, or of the row where that is copied. */
  readonly scale: Val<'f32'> | undefined
}

function load(k: KernelBuilder, c: DequantizeConfig, p: Params, exists: Val<'pred'>, slot: U32, piece: U32): Piece {
  const row = slot.add(slot.div(p.pageSize).mul(p.blockGap))
  const codes = codesOf(c) / pieceBytes
  const byte = piece.mul(pieceBytes)
  const from = c.packed ? piece.lt(codes).select(byte, byte.add(packedOffsets.rope - packedCodes)) : byte
  const values = p.values.address(k.offset(from, row, p.rowBytes))
  const words = loadWordsIf(exists, values, 'stream')
  if (!c.keyScales && !isScaled(c)) return { exists, slot, piece, words, scale: undefined }
  const number = c.keyScales ? 0 : byte.div(blockOf(c))
  const at = c.packed
    ? p.values.address(k.offset((number as U32).mul(4).add(packedOffsets.scales), row, p.rowBytes))
    : p.scales.address(k.offset(number, row, p.scaleStride))
  const needed = c.keyScales ? exists.and(piece.eq(0)) : exists.and(piece.lt(codes))
  return { exists, slot, piece, words, scale: loadFloatIf(needed, at) }
}

function store(k: KernelBuilder, c: DequantizeConfig, p: Params, { slot, piece, words, scale }: Piece): void {
  const codes = codesOf(c) / pieceBytes
  const row = k.offset(0, slot, c.width / 2)
  const convert = (): void => {
    const at = k.offset(row, piece, pieceBytes / 2)
    const pairs = words.flatMap(word => decodeWord(word, c.keyScales ? undefined : scale))
    for (const half of [0, 4])
      p.rows.store4(
        k.offset(at, half, 1),
        pairs.slice(half, half + 4).map(pair => reinterpret(pair, 'u32')),
      )
  }
  if (c.packed)
    k.when(piece.lt(codes), convert, () =>
      p.rows.store4(k.offset(k.offset(row, piece.sub(codes), pieceBytes / 4), packedCodes / 2, 1), words),
    )
  else convert()
  if (c.keyScales) k.when(piece.eq(0), () => p.rowScales.store(slot, scale!))
}
