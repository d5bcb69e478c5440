/**
 * The tensor memory of one block: 128 lanes of 512 columns of 32 bits, who has allocated which columns, and who touched
 * what last, by groups of 16 lanes of a column.
 */

import { tensorColumns, tensorLanes } from '../lang/isa/tensor-shape.ts'
import type { Findings } from './finding.ts'
import { describeOperation, isOver, staysBefore, type TensorKnowledge, type TensorOperation } from './tensor-order.ts'

/** Lanes that are judged together: what the smallest access takes. */
const group = 16
const groups = tensorLanes / group

/** Columns of a block, from its allocation to its end. */
export interface TensorAllocation {
  readonly start: number
  readonly columns: number
  readonly by: TensorOperation
}

/** Lanes `lane` to `lane + lanes` (multiples of 16) of `columns` columns. */
export interface TensorRegion {
  readonly lane: number
  readonly lanes: number
  readonly column: number
  readonly columns: number
}

interface Reader {
  readonly by: TensorOperation
  readonly next: Reader | undefined
}

/** An operation and what its warp knows. */
export interface TensorAccess {
  readonly by: TensorOperation
  readonly known: TensorKnowledge
  /** Published by barriers, but not fenced to here. */
  readonly published: TensorKnowledge
  /** Told of another thread's operation that this one follows in the order of issue: when this one is over, so is that. */
  readonly follows: (earlier: TensorOperation) => void
}

export class TensorMemoryState {
  /** Cells, lane by lane. */
  readonly cells: Uint32Array = new Uint32Array(tensorLanes * tensorColumns)
  readonly allocations: TensorAllocation[] = []
  relinquished = false
  /** Columns of the latest allocation: later ones are no larger. */
  private latest = tensorColumns
  private readonly writers: (TensorOperation | undefined)[] = new Array(groups * tensorColumns)
  private readonly readers: (Reader | undefined)[] = new Array(groups * tensorColumns)
  private readonly name: string
  private readonly findings: Findings

  constructor(block: number, findings: Findings) {
    this.name = `tensor memory of block ${block}`
    this.findings = findings
  }

  /** Takes free columns, from `first` on as far as they are; undefined while there are none. */
  allocate(columns: number, first: number, by: TensorOperation): TensorAllocation | undefined {
    if (columns > this.latest)
      this.report(by, `an allocation of ${columns} columns after one of ${this.latest}; later ones must not be larger`)
    for (let i = 0; i < tensorColumns; i += columns) {
      const start = (first + i) % tensorColumns
      if (start + columns > tensorColumns || this.allocations.some(a => overlaps(a, start, columns))) continue
      const allocation = { start, columns, by }
      this.allocations.push(allocation)
      this.latest = columns
      this.forget(start, columns)
      return allocation
    }
    return undefined
  }

  /** The allocation that begins at a column. */
  allocationAt(start: number): TensorAllocation | undefined {
    return this.allocations.find(a => a.start === start)
  }

  free(allocation: TensorAllocation, access: TensorAccess): void {
    this.allocations.splice(this.allocations.indexOf(allocation), 1)
    const { start, columns } = allocation
    this.write({ lane: 0, lanes: tensorLanes, column: start, columns }, access, 'freed')
    this.forget(start, columns)
  }

  /** Whether the region is the block's own, after reporting what is not. */
  owns({ lane, lanes, column, columns }: TensorRegion, access: TensorAccess): boolean {
    const { by } = access
    if (lane < 0 || lane + lanes > tensorLanes || column < 0 || column + columns > tensorColumns) {
      this.report(
        by,
        `lanes ${lane} to ${lane + lanes - 1}, columns ${column} to ${column + columns - 1} are outside the 128 × 512`,
      )
      return false
    }
    for (let at = column; at < column + columns; ) {
      const allocation = this.allocations.find(a => at >= a.start && at < a.start + a.columns)
      if (allocation === undefined) {
        this.report(by, `column ${at} is not allocated`)
        return false
      }
      this.checkAfter(allocation.by, access, 'used', at, lane)
      at = allocation.start + allocation.columns
    }
    return true
  }

  read({ lane, lanes, column, columns }: TensorRegion, access: TensorAccess): void {
    const { by } = access
    for (let g = lane / group; g < (lane + lanes) / group; g++) {
      let [lastFirst, lastReader]: (Reader | undefined)[] = []
      let lastWriter: TensorOperation | undefined
      for (let at = g * tensorColumns + column; at < g * tensorColumns + column + columns; at++) {
        const writer = this.writers[at]
        if (writer === undefined) {
          this.findings.report(
            'uninitialized-read',
            `${this.name}: column ${at % tensorColumns}, lanes from ${group * g} are read before anything wrote them`,
            by.site,
          )
          return
        }
        if (writer !== lastWriter) this.checkAfter(writer, access, 'read', at % tensorColumns, group * g)
        lastWriter = writer
        const first = this.readers[at]
        if (first === undefined || first !== lastFirst) {
          lastReader = first?.by === by ? first : { by, next: this.earlier(first, access) }
          lastFirst = first
        }
        this.readers[at] = lastReader
      }
    }
  }

  write({ lane, lanes, column, columns }: TensorRegion, access: TensorAccess, verb = 'overwritten'): void {
    for (let g = lane / group; g < (lane + lanes) / group; g++) {
      let lastFirst: Reader | undefined
      let lastWriter: TensorOperation | undefined
      for (let at = g * tensorColumns + column; at < g * tensorColumns + column + columns; at++) {
        const writer = this.writers[at]
        if (writer !== undefined && writer !== lastWriter)
          this.checkAfter(writer, access, verb, at % tensorColumns, group * g)
        lastWriter = writer
        const first = this.readers[at]
        if (first !== lastFirst)
          for (let reader = first; reader !== undefined; reader = reader.next)
            this.checkAfter(reader.by, access, verb, at % tensorColumns, group * g)
        lastFirst = first
        this.writers[at] = access.by
        this.readers[at] = undefined
      }
    }
  }

  /** At the end of the block. */
  end(): void {
    for (const { by, columns, start } of this.allocations)
      this.report(by, `columns ${start} to ${start + columns - 1} are not freed when the block ends`)
  }

  report(by: TensorOperation, problem: string): void {
    this.findings.report('tensor-memory', `${this.name}: ${problem}`, by.site)
  }

  /** Readers that are not known to be over yet: the others need not be asked again. */
  private earlier(first: Reader | undefined, access: TensorAccess): Reader | undefined {
    if (first === undefined) return undefined
    const next = this.earlier(first.next, access)
    if (isOver(first.by, access.by, access.known)) return next
    return next === first.next ? first : { by: first.by, next }
  }

  private checkAfter(earlier: TensorOperation, access: TensorAccess, verb: string, column: number, lane: number): void {
    const { by, known, published } = access
    if (isOver(earlier, by, known)) return
    if (staysBefore(earlier, by, known)) {
      access.follows(earlier)
      return
    }
    const where = `${this.name}: column ${column}, lanes from ${lane} are ${verb}`
    if (isOver(earlier, by, published) || staysBefore(earlier, by, published))
      this.findings.report(
        'tensor-fence',
        `${where} after ${describeOperation(earlier)} without tcgen05.fence::after_thread_sync between`,
        by.site,
        earlier.site,
      )
    else
      this.findings.report(
        'race',
        `${where} while ${describeOperation(earlier)} may still be under way`,
        by.site,
        earlier.site,
      )
  }

  private forget(start: number, columns: number): void {
    for (let g = 0; g < groups; g++) {
      this.writers.fill(undefined, g * tensorColumns + start, g * tensorColumns + start + columns)
      this.readers.fill(undefined, g * tensorColumns + start, g * tensorColumns + start + columns)
    }
  }
}

const overlaps = (a: TensorAllocation, start: number, columns: number): boolean =>
  start < a.start + a.columns && a.start < start + columns
