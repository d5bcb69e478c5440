/** How rows of e4m3 codes lie in memory, and where a kernel finds their parts. */

import type { Buffer } from '../../lang/buffer.ts'
import type { Val } from '../../lang/value.ts'

/** Columns of a panel of a tile: four pieces of 16. */
export const panelColumns = 64
/** Byte offsets in a packed row (spec section 3). */
export const packedOffsets = { scales: 512, rope: 528 } as const
const packedScaleBlock = 128

export interface Fp8RowFormat {
  /** 512 codes, 4 scales and 64 bf16 columns together in a row; else `width` codes. */
  readonly packed: boolean
  readonly width: 512 | 576
  /** Plain rows: columns under one scale that multiplies values here; 0 without such scales. */
  readonly scaleBlock: number
}

/** Memory rows: row r begins r · rowBytes behind the first byte, its scales r · scaleStride elements behind the first. */
export interface Fp8RowBuffers {
  readonly values: Buffer<'u8'>
  readonly rowBytes: Val<'u32'>
  readonly scales: Buffer<'f32'>
  readonly scaleStride: Val<'u32'>
}

/** Panels of codes. */
export const codePanels = ({ packed, width }: Fp8RowFormat): number => (packed ? 512 : width) / panelColumns

export const isScaled = ({ packed, scaleBlock }: Fp8RowFormat): boolean => packed || scaleBlock > 0

/** Columns under one scale. */
export const blockOf = ({ packed, scaleBlock }: Fp8RowFormat): number => (packed ? packedScaleBlock : scaleBlock)

/** Whether all lanes of a panel find its scales at constant distances from their first. */
export function hasEvenBlocks(format: Fp8RowFormat): boolean {
  const block = blockOf(format)
  return block % panelColumns === 0 || panelColumns % block === 0
}

/** The part of a scale's index that a lane adds to its row's first scale: `piece` of 0..3 is columns 16 · piece of a panel. */
export function ownScale(format: Fp8RowFormat, piece: Val<'u32'>): Val<'u32'> | number {
  const block = blockOf(format)
  return panelColumns % block === 0 ? piece.mul(16).div(block) : 0
}

/** The other part, of the columns of a panel: the same for all lanes unless blocks end within pieces of panels. */
export function panelScale(format: Fp8RowFormat, panel: number, piece: Val<'u32'>): Val<'u32'> | number {
  const [block, column] = [blockOf(format), panel * panelColumns]
  if (hasEvenBlocks(format)) return Math.floor(column / block)
  const pieces = block / 16
  return piece
    .add(4 * panel)
    .mul(Math.ceil(65_536 / pieces))
    .shr(16)
}
