/**
 * Tiles in shared memory as tensor copies write them and matrix units read them: rows of exactly one swizzle span,
 * aligned to the swizzle's repeat, in one or more stages.
 */

import { dtypeInfo } from '../dtypes/dtype.ts'
import type { MatrixDtype } from './isa/wgmma.ts'
import { descriptorBits } from './matrix-descriptor.ts'
import { pack64 } from './pack.ts'
import { type Swizzle, swizzleRepeat } from './swizzle.ts'
import type { Trace } from './trace.ts'
import { immediate } from './trace.ts'
import { type Arg, Val } from './value.ts'

export interface TileShape {
  readonly dtype: MatrixDtype
  readonly rows: number
  /** Columns of one row; a row is at most one swizzle span, 128 bytes. */
  readonly columns: number
  readonly stages?: number
}

export class SmemTile {
  readonly dtype: MatrixDtype
  readonly rows: number
  readonly columns: number
  readonly stages: number
  readonly swizzle: Swizzle
  /** First byte within the block's shared memory. */
  readonly startByte: number
  private readonly trace: Trace

  constructor(trace: Trace, { dtype, rows, columns, stages = 1 }: TileShape, startByte: number) {
    const span = columns * dtypeInfo[dtype].bytes
    if (span !== 32 && span !== 64 && span !== 128)
      throw trace.error(`a tile row of ${span} bytes; expected 32, 64 or 128`)
    if (rows % 8 !== 0) throw trace.error(`a tile of ${rows} rows; expected a multiple of 8`)
    this.trace = trace
    this.dtype = dtype
    this.rows = rows
    this.columns = columns
    this.stages = stages
    this.swizzle = span
    const repeat = swizzleRepeat(span)
    this.startByte = Math.ceil(startByte / repeat) * repeat
  }

  get stageBytes(): number {
    return this.rows * this.swizzle
  }
  get bytes(): number {
    return this.stages * this.stageBytes
  }

  /** First byte of a stage. */
  address(stage: Arg<'u32'> = 0): Val<'u32'> {
    if (typeof stage === 'number') return this.constant(this.startByte + stage * this.stageBytes)
    return stage.mul(this.stageBytes).add(this.startByte)
  }

  /**
   * Matrix descriptor of the tile as a K-major operand, from row `row` (a multiple of 8) and byte `kByte` of each row
   * (a multiple of 32): isa.md §5.3 to §5.5.
   */
  descriptor(
    stage: Arg<'u32'>,
    { row = 0, kByte = 0 }: { readonly row?: number; readonly kByte?: number } = {},
  ): Val<'u64'> {
    const offset = row * this.swizzle + kByte
    const { low, high } = descriptorBits(this.trace.target, this.swizzle)
    const address = this.address(stage).add(offset)
    return pack64(this.trace, low(address), this.constant(high))
  }

  private constant(value: number): Val<'u32'> {
    return new Val(this.trace, 'u32', immediate(this.trace, 'u32', value))
  }
}
