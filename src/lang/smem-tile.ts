/**
 * Tiles in shared memory as tensor copies write them and matrix units read them: rows of one swizzle span, aligned to
 * the swizzle's repeat, in one or more stages. Wider rows are split into panels of 128 bytes, one box each, one after
 * the other.
 */

import { dtypeInfo } from '../dtypes/dtype.ts'
import { memory } from './isa/memory.ts'
import { descriptorWord } from './isa/pack.ts'
import { specials } from './isa/special.ts'
import type { MatrixDtype } from './isa/wgmma.ts'
import { descriptorBits } from './matrix-descriptor.ts'
import { type Swizzle, swizzleRepeat } from './swizzle.ts'
import type { Trace } from './trace.ts'
import { immediate } from './trace.ts'
import { type Arg, emitValue, Val } from './value.ts'

export interface TileShape {
  readonly dtype: MatrixDtype
  readonly rows: number
  /** Columns of one row: 32 or 64 bytes, or a multiple of 128. */
  readonly columns: number
  readonly stages?: number
  /** Bytes of a panel's rows; by default 32 or 64 for rows of that, else 128. */
  readonly swizzle?: Exclude<Swizzle, 0>
  /** A tile whose bytes this one takes over, when the other's use has ended. */
  readonly over?: SmemTile
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

  constructor(trace: Trace, { dtype, rows, columns, stages = 1, swizzle, over }: TileShape, startByte: number) {
    const span = columns * dtypeInfo[dtype].bytes
    if (swizzle === undefined && span !== 32 && span !== 64 && (span % 128 !== 0 || span === 0))
      throw trace.error(`a tile row of ${span} bytes; expected 32, 64 or a multiple of 128`)
    if (swizzle !== undefined && (span % swizzle !== 0 || span === 0))
      throw trace.error(`a tile row of ${span} bytes in panels of ${swizzle}; expected a multiple`)
    if (rows % 8 !== 0) throw trace.error(`a tile of ${rows} rows; expected a multiple of 8`)
    this.trace = trace
    this.dtype = dtype
    this.rows = rows
    this.columns = columns
    this.stages = stages
    this.swizzle = swizzle ?? (span === 32 || span === 64 ? span : 128)
    const repeat = swizzleRepeat(this.swizzle)
    this.startByte = Math.ceil((over?.startByte ?? startByte) / repeat) * repeat
    if (over !== undefined && this.startByte + this.bytes > over.startByte + over.bytes)
      throw trace.error(`a tile of ${this.bytes} bytes over one of ${over.bytes}`)
  }

  /** Bytes of a row. */
  get rowBytes(): number {
    return this.columns * dtypeInfo[this.dtype].bytes
  }
  /** Panels of one swizzle span. */
  get panels(): number {
    return this.rowBytes / this.swizzle
  }
  /** Bytes of a panel: what one box brings. */
  get panelBytes(): number {
    return this.rows * this.swizzle
  }
  get stageBytes(): number {
    return this.panels * this.panelBytes
  }
  get bytes(): number {
    return this.stages * this.stageBytes
  }

  /** First byte of a panel of a stage. */
  address(stage: Arg<'u32'> = 0, panel = 0): Val<'u32'> {
    const first = this.startByte + panel * this.panelBytes
    if (typeof stage === 'number') return this.constant(first + stage * this.stageBytes)
    return stage.mul(this.stageBytes).add(first)
  }

  /** Byte address of byte `byte` of a row, through the swizzle; 16 bytes from a multiple of 16 lie together. */
  at(stage: Arg<'u32'>, row: Arg<'u32'>, byte: Arg<'u32'>): Val<'u32'> {
    const [r, b] = [this.value(row), this.value(byte)]
    const inPanel = b.bitAnd(this.swizzle - 1)
    const pattern = r.mul(this.swizzle).add(inPanel)
    const turned = pattern.bitXor(
      pattern
        .shr(7)
        .bitAnd(this.swizzle / 16 - 1)
        .shl(4),
    )
    const panel = b.shr(Math.log2(this.swizzle)).mul(this.panelBytes)
    return turned.add(panel).add(this.address(stage))
  }

  /** One 32-bit word at an address from `at`, by ordinary code. */
  loadWord(address: Val<'u32'>): Val<'u32'> {
    const v = this.trace.register('u32')
    this.trace.emit(memory['ld.shared.u32']!, { v, address: address.operand })
    return new Val(this.trace, 'u32', v)
  }
  storeWord(address: Val<'u32'>, value: Val<'u32' | 'bf16x2' | 'e4m3x4'>): void {
    this.trace.emit(memory['st.shared.u32']!, { v: value.operand, address: address.operand })
  }

  /**
   * Matrix descriptors of a stage as a K-major operand, from row `row` (a multiple of 8) and byte `byte` of each row (a
   * multiple of 32): isa.md §5.3 to §5.5. The address is computed once; the places differ by constants.
   */
  descriptors(stage: Arg<'u32'>): (row: number, byte: number) => Val<'u64'> {
    return this.words(stage, 0, 32)
  }

  /** The same as an MN-major operand: rows are K, from row `row` (a multiple of 8) and byte `byte`, a panel's first. */
  transposedDescriptors(stage: Arg<'u32'>): (row: number, byte: number) => Val<'u64'> {
    return this.words(stage, this.panelBytes, this.swizzle)
  }

  private words(stage: Arg<'u32'>, panelBytes: number, unit: number): (row: number, byte: number) => Val<'u64'> {
    const { low, high } = descriptorBits(this.trace.target, this.swizzle, panelBytes)
    const base = emitValue(this.trace, specials.sharedBase, 'u32', {})
    const first = emitValue(this.trace, descriptorWord, 'u64', { address: base.add(this.address(stage)), low, high })
    return (row, byte) => {
      if (row % 8 !== 0 || byte % unit !== 0 || row < 0 || row >= this.rows || byte < 0 || byte >= this.rowBytes)
        throw this.trace.error(
          `row ${row}, byte ${byte} of a tile of ${this.rows} rows of ${this.rowBytes} bytes; expected multiples of 8 and ${unit} inside it`,
        )
      const offset = this.offset(row, byte)
      return offset === 0 ? first : first.add(BigInt(offset / 16))
    }
  }

  private offset(row: number, byte: number): number {
    return Math.floor(byte / this.swizzle) * this.panelBytes + row * this.swizzle + (byte % this.swizzle)
  }

  private value(x: Arg<'u32'>): Val<'u32'> {
    return x instanceof Val ? x : this.constant(x)
  }

  private constant(value: number): Val<'u32'> {
    return new Val(this.trace, 'u32', immediate(this.trace, 'u32', value))
  }
}
