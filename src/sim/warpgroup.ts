/**
 * Warpgroup multiplies of one warp: its 16 of the 64 rows. Results and operands belong to the matrix unit from the
 * multiply to the wait; touching them in between is reported.
 */

import type { Inst, Operand, Register, Site } from '../lang/ir.ts'
import { isRegister } from '../lang/ir.ts'
import { fragmentColumn, fragmentRow } from '../lang/isa/wgmma.ts'
import type { WarpgroupMultiply } from '../lang/machine.ts'
import type { Lanes } from '../lang/types.ts'
import type { Block } from './block.ts'
import { fusedDot, type MatrixRows } from './matrix.ts'
import { registerRows, sharedColumns, sharedRows } from './matrix-operand.ts'
import type { Warp } from './warp.ts'

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
  /** When each register was last assigned by ordinary code, and when the last fence was. */
  private readonly assignedAt: number[] = []
  private now = 1
  private fencedAt = 0
  private multiplies = 0

  constructor(warp: Warp, block: Block) {
    this.warp = warp
    this.block = block
  }

  /** Whether any multiply may be under way, so that register accesses must be checked. */
  get busy(): boolean {
    return this.open.ops.length > 0 || this.committed.length > 0
  }

  /** Ordinary code assigns a register. */
  assigned({ id }: Register): void {
    this.assignedAt[id] = this.now
  }

  /** The same for every result of an instruction. */
  assignedBy({ record, operands }: Inst): void {
    for (const name in record.operands) {
      const { use } = record.operands[name]!
      if (use !== 'out' && use !== 'both') continue
      const given = operands[name]!
      for (const operand of Array.isArray(given) ? given : [given]) this.assigned(operand as Register)
    }
  }

  /** Ordinary code reads or assigns registers while multiplies are under way. */
  checkTouched(inst: Inst, site: Site): void {
    for (const operand of Object.values(inst.operands).flat() as Operand[])
      if (isRegister(operand) && this.underWay(operand.id))
        this.block.findings.report(
          'matrix-registers',
          `${inst.record.name} touches an accumulator or an operand of a multiply before the wait`,
          site,
        )
  }

  fence(): void {
    this.fencedAt = this.now++
  }

  commit(): void {
    this.committed.push(this.open)
    this.open = emptyGroup()
  }

  wait(pending: number): void {
    for (const { ops } of this.committed.splice(0, Math.max(0, this.committed.length - pending)))
      for (const op of ops) this.warp.clock.complete(this.warp.actor, op)
  }

  multiply(multiply: WarpgroupMultiply, d: readonly Lanes[], inst: Inst): void {
    const { dtype, n, a, b, aTransposed, bTransposed, accumulate } = multiply
    const { warp, block } = this
    this.checkSameForAll(multiply)
    const inRegisters = typeof a !== 'bigint'
    const registers = [...(inst.operands.d as readonly Register[]), ...(inRegisters ? (inst.operands.a as never) : [])]
    if (registers.some(({ id }) => (this.assignedAt[id] ?? 0) > this.fencedAt))
      warp.report('matrix-registers', 'an accumulator or operand was assigned since the last wgmma.fence')
    const by = warp.asyncAccessor()
    block.cluster.mustEnd(by, 'a multiply')
    // Each warp reads its own rows of A; the four warps share B.
    block.counters.bytes.matrix += (inRegisters ? 0 : 32 * 16) + (32 * n) / 4
    block.counters.registerReads += registers.length
    const firstRow = 16 * (warp.index & 3)
    const shared = (bits: bigint, transposed: boolean, first: number, count: number): MatrixRows =>
      transposed
        ? sharedColumns(warp, block, by, dtype, bits, first, count)
        : sharedRows(warp, block, by, dtype, bits, first, count)
    const left = inRegisters ? registerRows(dtype, a) : shared(a, aTransposed, firstRow, 16)
    const right = shared(b, bTransposed, 0, n)
    d.forEach((lanes, j) => {
      for (let lane = 0; lane < 32; lane++) {
        const thread = 32 * (warp.index & 3) + lane
        const c = accumulate ? (lanes[lane] as number) : 0
        lanes[lane] = fusedDot(dtype, left, fragmentRow(thread, j) - firstRow, right, fragmentColumn(thread, j), c)
      }
    })
    warp.timer?.multiply(block.number, warp.index, inst.record.cost.cycles)
    this.open.ops.push(by.stamp)
    for (const { id } of registers) this.open.registers.add(id)
  }

  /** All four warps of a warpgroup must give the same multiply. */
  private checkSameForAll({ dtype, n, a, b, aTransposed, bTransposed, accumulate }: WarpgroupMultiply): void {
    const text = `${dtype} n${n} ${typeof a === 'bigint' ? a : 'registers'} ${b} ${aTransposed} ${bTransposed} ${accumulate}`
    if (!this.block.agrees(this.warp.index >> 2, this.multiplies++, text))
      this.warp.report('divergence', 'the warps of a warpgroup give different descriptors or accumulate differently')
  }

  private underWay(id: number): boolean {
    return this.open.registers.has(id) || this.committed.some(({ registers }) => registers.has(id))
  }
}
