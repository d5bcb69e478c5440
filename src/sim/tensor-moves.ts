/** Loads and stores of one warp between registers and its lanes of tensor memory, which end when it waits for them. */

import { type Inst, isRegister, type Operand, type Register, type Site } from '../lang/ir.ts'
import { type TensorShape, tensorColumns, tensorShapes } from '../lang/isa/tensor-shape.ts'
import type { TensorMoveRequest } from '../lang/tensor-machine.ts'
import type { Lanes } from '../lang/types.ts'
import type { Block } from './block.ts'
import type { TensorLedger } from './tensor-ledger.ts'
import type { TensorRegion } from './tensor-memory.ts'
import type { Warp } from './warp.ts'

/** A load or store that has not been waited for. */
interface Move {
  readonly number: number
  readonly site: Site
  /** Undefined once the bits have moved. */
  readonly run: (() => void) | undefined
}

export class TensorMoves {
  private readonly warp: Warp
  private readonly block: Block
  private readonly ledger: TensorLedger
  private readonly underWay: Readonly<Record<'ld' | 'st', Move[]>> = { ld: [], st: [] }
  /** Registers that loads under way will assign. */
  private readonly arriving = new Set<number>()

  constructor(warp: Warp, block: Block, ledger: TensorLedger) {
    this.warp = warp
    this.block = block
    this.ledger = ledger
  }

  /** Whether loads are under way, so that register accesses must be checked. */
  get busy(): boolean {
    return this.arriving.size > 0
  }

  /** Code reads or assigns registers that a load under way will assign. */
  checkTouched(inst: Inst): void {
    for (const operand of Object.values(inst.operands).flat() as Operand[])
      if (isRegister(operand) && this.arriving.has(operand.id))
        this.block.findings.report(
          'matrix-registers',
          `${inst.record.name} touches a register of a tcgen05.ld before tcgen05.wait::ld`,
          inst.site,
        )
  }

  move(access: 'ld' | 'st', request: TensorMoveRequest): void {
    const { warp, block } = this
    const { tensorMemory } = block
    const by = this.ledger.operation(access === 'ld' ? 'load' : 'store')
    this.checkLane(request)
    const regions = regionsOf(request)
    const judged = this.ledger.access(by)
    const allowed = regions.every(region => tensorMemory.owns(region, judged))
    if (allowed) for (const region of regions) tensorMemory[access === 'ld' ? 'read' : 'write'](region, judged)
    const words = request.registers.map(wordsOf)
    // Registers of a store are read when it is issued.
    const given = access === 'st' ? words.map(word => word.slice()) : words
    const early = block.cluster.context.landing === 'early'
    const run = allowed ? (): void => moveBits(access, request, tensorMemory.cells, given) : undefined
    if (early) run?.()
    if (access === 'ld') for (const { id } of warp.instruction.operands.v as readonly Register[]) this.arriving.add(id)
    this.underWay[access].push({ number: by.number, site: warp.site, run: early ? undefined : run })
  }

  wait(access: 'ld' | 'st'): void {
    for (const { number, run } of this.underWay[access].splice(0)) {
      run?.()
      this.ledger.waited(number)
    }
    if (access === 'ld') this.arriving.clear()
  }

  /** At the end of the block: what was never waited for. */
  end(): void {
    for (const [access, [first]] of Object.entries(this.underWay))
      if (first !== undefined)
        this.block.findings.report(
          'in-flight',
          `a tcgen05.${access} is still under way at the end of the block`,
          first.site,
        )
  }

  /** A warp reaches the 32 lanes of its number modulo 4, by shapes of 16 lanes either half of them. */
  private checkLane({ shape, address }: TensorMoveRequest): void {
    const { index } = this.warp
    const [lane, base] = [address >>> 16, 32 * (index & 3)]
    const from = shape === '32x32b' ? [base] : [base, base + 16]
    if (from.includes(lane)) return
    const reach = `it reaches lanes ${base} to ${base + 31}, ${shape} from ${from.join(' or ')} on`
    this.warp.report('tensor-memory', `warp ${index} of the block at lane ${lane}; ${reach}`)
  }
}

function regionsOf({ shape, address, second, registers }: TensorMoveRequest): TensorRegion[] {
  const columns = (registers.length / tensorShapes[shape].registers) * tensorShapes[shape].columns
  const first = { lane: address >>> 16, lanes: shape === '32x32b' ? 32 : 16, column: address & 0xffff, columns }
  return shape === '16x32bx2' ? [first, { ...first, column: first.column + second }] : [first]
}

function moveBits(
  access: 'ld' | 'st',
  { shape, address, second, registers }: TensorMoveRequest,
  cells: Uint32Array,
  words: readonly Uint32Array[],
): void {
  const offsets = cellOffsets(shape, registers.length, second)
  const first = (address >>> 16) * tensorColumns + (address & 0xffff)
  words.forEach((word, j) => {
    for (let t = 0; t < 32; t++) {
      const cell = first + offsets[32 * j + t]!
      if (access === 'ld') word[t] = cells[cell]!
      else cells[cell] = word[t]!
    }
  })
}

const knownOffsets = new Map<string, Int32Array>()

/** Cells from the first on, for register `j` of thread `t` at `32 j + t`. */
function cellOffsets(shape: TensorShape, registers: number, second: number): Int32Array {
  const key = `${shape} ${registers} ${second}`
  let offsets = knownOffsets.get(key)
  if (offsets === undefined) {
    const { lane, column } = tensorShapes[shape]
    const moved = (t: number): number => (shape === '16x32bx2' && t >= 16 ? second : 0)
    offsets = Int32Array.from({ length: 32 * registers }, (_, i) => {
      const [j, t] = [i >> 5, i & 31]
      return lane(t, j) * tensorColumns + column(t, j) + moved(t)
    })
    knownOffsets.set(key, offsets)
  }
  return offsets
}

/** Bits of a register of 32 bits. */
const wordsOf = (lanes: Lanes): Uint32Array => new Uint32Array(lanes.buffer, lanes.byteOffset, 32)
