/**
 * Warpgroup multiplies of one warp: its 16 of the 64 rows. Results and operands belong to the matrix unit from the
 * multiply to the wait; touching them in between is reported.
 */

import { dtypeInfo } from '../dtypes/dtype.ts'
import type { Inst, Operand, Register, Site } from '../lang/ir.ts'
import { isRegister } from '../lang/ir.ts'
import { fragmentColumn, fragmentRow, kStep } from '../lang/isa/wgmma.ts'
import type { WarpgroupMultiply } from '../lang/machine.ts'
import { type Swizzle, swizzled, swizzleRepeat } from '../lang/swizzle.ts'
import type { Lanes } from '../lang/types.ts'
import type { Block } from './block.ts'
import { fusedDot, type MatrixRows, matrixRows } from './matrix.ts'
import type { Warp } from './warp.ts'

/** A matrix descriptor of Hopper, decoded from its bits (isa.md §5.3). */
interface Descriptor {
  readonly start: number
  readonly rowGroupBytes: number
  readonly swizzle: Swizzle
}

const swizzleCodes: readonly Swizzle[] = [0, 128, 64, 32]

function decodeDescriptor(bits: bigint, warp: Warp): Descriptor {
  const field = (low: bigint, width: bigint): number => Number((bits >> low) & ((1n << width) - 1n))
  const swizzle = swizzleCodes[field(62n, 2n)]!
  const start = field(0n, 14n) << 4
  const reserved = field(14n, 2n) | field(30n, 2n) | field(46n, 3n) | field(52n, 10n)
  if (reserved !== 0) warp.report('descriptor', `reserved bits are set in the matrix descriptor 0x${bits.toString(16)}`)
  const rowGroupBytes = field(32n, 14n) << 4
  if (swizzle !== 0 && rowGroupBytes % swizzleRepeat(swizzle) !== 0)
    warp.report(
      'descriptor',
      `row groups ${rowGroupBytes} bytes apart break the ${swizzle}-byte swizzle; expected a multiple of ${swizzleRepeat(swizzle)}`,
    )
  return { start, rowGroupBytes, swizzle }
}

/** Asynchronous operations between a commit and the next. */
interface Group {
  readonly ops: number[]
  readonly registers: Set<number>
}

const emptyGroup = (): Group => ({ ops: [], registers: new Set() })

export class WarpgroupUnit {
  private readonly warp: Warp
  private readonly block: Block
  private open = emptyGroup()
  private committed: Group[] = []
  /** Mutable registers assigned since the last fence. */
  private readonly dirty = new Set<number>()

  constructor(warp: Warp, block: Block) {
    this.warp = warp
    this.block = block
  }

  /** Whether any multiply may be under way, so that register accesses must be checked. */
  get busy(): boolean {
    return this.open.ops.length > 0 || this.committed.length > 0
  }

  /** Ordinary code assigns a register. */
  assigned({ id, mutable }: Register): void {
    if (mutable) this.dirty.add(id)
  }

  /** Ordinary code reads or assigns registers while multiplies are under way. */
  checkTouched(inst: Inst, site: Site): void {
    for (const operand of Object.values(inst.operands).flat() as Operand[])
      if (isRegister(operand) && this.underWay(operand.id))
        this.block.findings.report(
          'matrix-registers',
          `${inst.record.name} touches an accumulator before the wait`,
          site,
        )
  }

  fence(): void {
    this.dirty.clear()
  }

  commit(): void {
    this.committed.push(this.open)
    this.open = emptyGroup()
  }

  wait(pending: number): void {
    for (const { ops } of this.committed.splice(0, Math.max(0, this.committed.length - pending)))
      for (const op of ops) this.warp.clock.complete(op)
  }

  multiply({ dtype, n, a, b, accumulate }: WarpgroupMultiply, d: readonly Lanes[], inst: Inst): void {
    const registers = inst.operands.d as readonly Register[]
    if (registers.some(({ id }) => this.dirty.has(id)))
      this.warp.report('matrix-registers', 'an accumulator was assigned since the last wgmma.fence')
    const op = this.block.nextOperation()
    const by = this.warp.asyncAccessor(op)
    const rows = (bits: bigint, first: number, count: number): MatrixRows => {
      const { start, rowGroupBytes, swizzle } = decodeDescriptor(bits, this.warp)
      const codes = new Uint8Array(32 * count)
      for (let r = 0; r < count; r++) {
        const row = first + r
        const address = start + (row & 7) * (swizzle || 16) + (row >> 3) * rowGroupBytes
        for (let chunk = 0; chunk < 32; chunk += 16)
          codes.set(this.block.asyncRead(by, swizzled(address + chunk, swizzle), 16), 32 * r + chunk)
      }
      return matrixRows(dtype, dtypeInfo[dtype].bytes === 1 ? codes : new Uint16Array(codes.buffer), kStep[dtype])
    }
    const firstRow = 16 * (this.warp.index & 3)
    const [left, right] = [rows(a, firstRow, 16), rows(b, 0, n)]
    d.forEach((lanes, j) => {
      for (let lane = 0; lane < 32; lane++) {
        const thread = 32 * (this.warp.index & 3) + lane
        const c = accumulate ? (lanes[lane] as number) : 0
        lanes[lane] = fusedDot(dtype, left, fragmentRow(thread, j) - firstRow, right, fragmentColumn(thread, j), c)
      }
    })
    this.open.ops.push(op)
    for (const { id } of registers) this.open.registers.add(id)
  }

  private underWay(id: number): boolean {
    return this.open.registers.has(id) || this.committed.some(({ registers }) => registers.has(id))
  }
}
