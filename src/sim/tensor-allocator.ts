/** Columns of tensor memory as one warp takes and frees them. */

import type { TensorGroup } from '../lang/isa/tensor-memory.ts'
import { tensorColumns } from '../lang/isa/tensor-shape.ts'
import type { Block } from './block.ts'
import type { TensorLedger } from './tensor-ledger.ts'
import type { TensorAllocation } from './tensor-memory.ts'
import type { Warp } from './warp.ts'

export class TensorAllocator {
  private readonly warp: Warp
  private readonly block: Block
  private readonly ledger: TensorLedger
  /** Times that the blocks of a pair have met. */
  private meetings = 0

  constructor(warp: Warp, block: Block, ledger: TensorLedger) {
    this.warp = warp
    this.block = block
    this.ledger = ledger
  }

  /** False until the columns are free, and the other block of a pair asks too. */
  allocate(slot: number, columns: number, group: TensorGroup): boolean {
    const { warp, block } = this
    if (columns < 32 || columns > tensorColumns || (columns & (columns - 1)) !== 0) {
      this.report(`an allocation of ${columns} columns; expected a power of two in 32..512`)
      return true
    }
    if (block.tensorMemory.relinquished) this.report('an allocation after the block relinquished its right to it')
    if (group === 2 && !this.meet('allocate')) return false
    // Where the columns begin differs between blocks, as it does when several share a multiprocessor.
    const first = (block.cluster.number * columns) % tensorColumns
    const allocation = block.tensorMemory.allocate(columns, first, this.ledger.operation('allocation'))
    if (allocation === undefined) {
      warp.missing = () => `${columns} free columns of tensor memory`
      return false
    }
    this.meetings++
    warp.write('shared', warp.firstLane, slot, 4).setUint32(0, allocation.start, true)
    return true
  }

  /** False until the other block of a pair frees too. */
  free(address: number, columns: number, group: TensorGroup): boolean {
    const { warp, block } = this
    const allocation = this.allocated(address, columns)
    if (allocation === undefined) return true
    if (group === 2 && !this.meet('free')) return false
    this.meetings++
    const by = this.ledger.operation('allocation')
    if (allocation.by.actor !== by.actor)
      block.findings.report(
        'tensor-memory',
        `columns are freed by warp ${by.actor} of the cluster, allocated by warp ${allocation.by.actor}; one warp does both`,
        warp.site,
        allocation.by.site,
        'warning',
      )
    block.tensorMemory.free(allocation, this.ledger.access(by))
    return true
  }

  private allocated(address: number, columns: number): TensorAllocation | undefined {
    const allocation = address >>> 16 === 0 ? this.block.tensorMemory.allocationAt(address & 0xffff) : undefined
    if (allocation?.columns === columns) return allocation
    this.report(
      allocation === undefined
        ? `address ${address} is freed, but nothing was allocated there`
        : `${columns} columns are freed of the ${allocation.columns} that were allocated`,
    )
    return undefined
  }

  private meet(what: string): boolean {
    const { rank, cluster } = this.block
    this.warp.missing = () => 'the other block of the pair'
    return cluster.tensorPipe.meet(`${what} ${rank >> 1} ${this.meetings}`, rank)
  }

  private report(problem: string): void {
    this.warp.report('tensor-memory', problem)
  }
}
