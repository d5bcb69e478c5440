/**
 * Rows of e4m3 codes from memory into half of a swizzled bf16 tile, by 128 threads: memory gives one byte a value, registers
 * turn it into two.
 *
 *   thread t       piece t mod 4 (16 columns) of every panel of rows t / 4 and t / 4 + 32
 *   a step         16 bytes of one row: load, convert, two stores of 16 bytes, of which eight lanes fill all banks
 *   in flight      a few steps: the registers of a step are loaded again, for a later step, as soon as they are converted
 *
 * Where there is room for it, the first step is converted before the tile is free. Rows that do not count become zeros; their
 * memory is not read. The rope columns of packed rows are bf16 already and go past the registers.
 */

import type { KernelBuilder } from '../../lang/builder.ts'
import type { SmemTile } from '../../lang/smem-tile.ts'
import type { Arg, Val, Var } from '../../lang/value.ts'
import { loadFloatIf, loadWordsIf, storeSharedWords, type Words } from '../../lang/words.ts'
import { decodeWord } from './e4m3-words.ts'
import {
  codePanels,
  type Fp8RowBuffers,
  type Fp8RowFormat,
  hasEvenBlocks,
  isScaled,
  ownScale,
  packedOffsets,
  panelColumns,
  panelScale,
} from './row-format.ts'

type U32 = Val<'u32'>

/** Rows of a group. */
export const groupRows = 32
/** Groups of a tile. */
const groups = 2
/** Panels of the first half of a tile. */
const firstPanels = 4

interface Step {
  readonly group: number
  readonly panel: number
}

/** The registers of a step under way. */
interface Bank {
  readonly words: readonly Var<'u32'>[]
  readonly scale: Var<'f32'> | undefined
}

/** A row of the tile to come. */
interface Row {
  readonly counts: Var<'u32'>
  /** First byte of this lane's piece of panel 0. */
  readonly values: Var<'u64'>
  /** Number of the row, where scales lie apart. */
  readonly memoryRow: Var<'u32'> | undefined
}

export interface ConvertedRowsOptions {
  /** Thread 0..127. */
  readonly thread: U32
  /** Which panels: 0..3, or the others. */
  readonly half: 0 | 1
}

export class ConvertedRows {
  /** This thread's row within a group. */
  readonly row: U32
  private readonly k: KernelBuilder
  private readonly format: Fp8RowFormat
  private readonly buffers: Fp8RowBuffers
  private readonly tile: SmemTile
  private readonly steps: readonly Step[]
  private readonly half: 0 | 1
  /** Steps that are converted before the stage is free. */
  private readonly early: number
  private readonly piece: U32
  private readonly rows: readonly Row[]
  private readonly banks: readonly Bank[]
  /** Byte of stage 0 where the first 8 columns of this thread's piece go, of panel 0 and group 0. */
  private readonly target: U32

  constructor(
    k: KernelBuilder,
    format: Fp8RowFormat,
    buffers: Fp8RowBuffers,
    tile: SmemTile,
    { thread, half }: ConvertedRowsOptions,
  ) {
    this.k = k
    this.format = format
    this.buffers = buffers
    this.tile = tile
    this.piece = thread.bitAnd(3)
    this.row = thread.shr(2)
    this.half = half
    this.steps = stepsOf(half === 0 ? [0, firstPanels] : [firstPanels, codePanels(format)])
    const scaled = isScaled(format)
    this.early = scaled || half === 1 ? 0 : 1
    this.rows = Array.from({ length: groups }, () => ({
      counts: k.var('u32', 0),
      values: k.var('u64', 0),
      memoryRow: scaled && !format.packed ? k.var('u32', 0) : undefined,
    }))
    this.banks = Array.from({ length: depthOf(this.steps.length, depthLimit(format, half)) }, () => ({
      words: k.vars('u32', 4, 0),
      scale: scaled ? k.var('f32', 0) : undefined,
    }))
    this.target = tile.at(0, this.row, this.piece.mul(32))
  }

  /** Says which memory row a group's row of the tile to come is, and whether it counts. */
  aim(group: number, counts: Val<'pred'>, memoryRow: U32): void {
    const { k, buffers, piece } = this
    const row = this.rows[group]!
    row.counts.set(counts.select(k.const('u32', 1), 0))
    row.values.set(buffers.values.address(k.offset(piece.mul(16), memoryRow, buffers.rowBytes)))
    row.memoryRow?.set(memoryRow)
  }

  /** Starts the first loads of the tile aimed at, when no tile comes before it. */
  prefetch(): void {
    this.banks.forEach((_, step) => this.load(step))
  }

  /**
   * Fills the half of a stage from the tile aimed at. `acquire` waits for the stage; `turn` aims at the tile after it, once
   * its rows are needed.
   */
  fill(acquire: () => U32, turn: () => void): void {
    const { steps, banks, tile, k } = this
    const convert = (step: number, part: 0 | 1): Words => {
      const { words, scale } = banks[step % banks.length]!
      return words.slice(2 * part, 2 * part + 2).flatMap(word => decodeWord(word, scale)) as unknown as Words
    }
    const loadNext = (step: number): void => {
      if (step === steps.length - banks.length) turn()
      this.load((step + banks.length) % steps.length)
    }
    const early = Array.from({ length: this.early }, (_, step) => {
      const words = [convert(step, 0), convert(step, 1)]
      loadNext(step)
      return words
    })
    const stageByte = acquire().mul(tile.stageBytes)
    const rope = this.half === 1 && this.format.packed
    if (rope) this.copyRope(stageByte)
    const targets = [this.target.add(stageByte), this.target.bitXor(16).add(stageByte)]
    steps.forEach(({ group, panel }, step) => {
      const offset = group * groupRows * 128 + panel * tile.panelBytes
      for (const part of [0, 1] as const)
        storeSharedWords(targets[part]!.add(offset), early[step]?.[part] ?? convert(step, part))
      if (step >= early.length) loadNext(step)
    })
    if (rope) k.threadCopies.wait(0)
  }

  private load(step: number): void {
    const { steps, rows, banks } = this
    const { group, panel } = steps[step]!
    const { counts, values } = rows[group]!
    const { words, scale } = banks[step % banks.length]!
    loadWordsIf(counts.ne(0), values.add(BigInt(panelColumns * panel)), 'keep').forEach((word, i) =>
      words[i]!.set(word),
    )
    scale?.set(loadFloatIf(counts.ne(0), this.scaleAddress(rows[group]!, panel)))
  }

  private scaleAddress({ values, memoryRow }: Row, panel: number): Val<'u64'> {
    const { k, format, buffers, piece } = this
    const index = panelScale(format, panel, piece)
    const bytes = typeof index === 'number' ? BigInt(4 * index) : index.mul(4).to('u64')
    const first =
      memoryRow === undefined
        ? this.rowByte(values, packedOffsets.scales)
        : buffers.scales.address(k.offset(ownScale(format, piece), memoryRow, buffers.scaleStride))
    return first.add(bytes)
  }

  /** Address of a byte of the row whose piece begins at `values`. */
  private rowByte(values: Val<'u64'>, byte: Arg<'u32'>): Val<'u64'> {
    const fromPiece = typeof byte === 'number' ? this.k.const('u32', byte) : byte
    return values.add(fromPiece.sub(this.piece.mul(16)).to('u64'))
  }

  /** Byte within the rope panel of this lane's 16 bytes `part`: neighbouring rows take turns, so that no banks meet. */
  private ropeByte(part: 0 | 1): U32 {
    return this.piece.mul(16).add(this.row.add(part).bitAnd(1).mul(64))
  }

  private copyRope(stageByte: U32): void {
    const { rows, tile, k } = this
    const panel = codePanels(this.format) * tile.panelBytes
    const target = tile.at(0, this.row, this.ropeByte(0)).add(stageByte)
    rows.forEach(({ counts, values }, group) => {
      for (const part of [0, 1] as const) {
        const from = this.rowByte(values, this.ropeByte(part).add(packedOffsets.rope))
        const to = target.bitXor(64 * part)
        k.threadCopies.load(to.add(group * groupRows * 128 + panel), from, { valid: counts.shl(4) })
      }
    })
    k.threadCopies.commit()
  }
}

/** Group by group: a row's panels follow each other. */
const stepsOf = ([first, end]: readonly [number, number]): readonly Step[] =>
  Array.from({ length: groups }, (_, group) =>
    Array.from({ length: end - first }, (__, i) => ({ group, panel: first + i })),
  ).flat()

/** Steps in flight: the most up to `limit` that divide those of a tile. */
const depthOf = (steps: number, limit: number): number =>
  [5, 4, 3, 2].find(depth => depth <= limit && steps % depth === 0)!

/** What the registers of a thread leave room for: 48, of which a scale takes one a step, and Q some beside half 0. */
function depthLimit(format: Fp8RowFormat, half: 0 | 1): number {
  if (!isScaled(format)) return 5
  return hasEvenBlocks(format) && !(format.packed && half === 0) ? 4 : 2
}
