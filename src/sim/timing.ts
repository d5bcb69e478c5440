/**
 * When things happen, for timelines: a warp issues an instruction a cycle as its pipes are free, waits for results only
 * where it synchronises (as if the assembler had ordered all between for the best), engines have a rate and a latency
 * (isa.md §10). Numbers are of public data sheets and measurements.
 */

import { type Inst, isRegister, type Operand } from '../lang/ir.ts'
import type { Cost } from '../lang/record.ts'
import { lineOf } from '../lang/site.ts'
import type { Card } from './estimate.ts'
import { Timeline, type Track } from './timeline.ts'

/** Cycles from an instruction's issue to its result. */
const latency: Readonly<Record<Cost['unit'], number>> = {
  alu: 5,
  fma: 4,
  mufu: 18,
  conversion: 8,
  shared: 28,
  global: 450,
  tensor: 0,
  tmem: 20,
  tma: 0,
  barrier: 20,
  control: 4,
}

/** From the end of a copy's bytes on their way to the barrier's signal, and from the last multiply to its commit's. */
const copyLatency = 600
const commitLatency = 150
/** Bytes a cycle that a warp's quarter of the multiprocessor loads from tensor memory. */
const tensorLoadRate = 57
/** Partitions of a multiprocessor, each with its own pipes and warps. */
const partitions = 4

/** When a pipe or an engine is free again. */
class Free {
  private readonly at = new Map<string, number>()

  /** Takes the pipe for `cycles` from `from` on, as soon as it is free; when it starts. */
  take(pipe: string, from: number, cycles: number): number {
    const start = Math.max(from, this.at.get(pipe) ?? 0)
    this.at.set(pipe, start + cycles)
    return start
  }

  until(pipe: string): number {
    return this.at.get(pipe) ?? 0
  }
}

/** The time of one cluster. */
export class Timing {
  readonly timeline: Timeline
  /** What happens now, and whether it may have let a waiting warp go on. */
  now = 0
  changed = false
  private readonly card: Card
  private readonly free = new Free()
  private readonly engines = new Map<string, Track>()

  constructor(card: Card, kernel: string, cluster: number) {
    this.card = card
    this.timeline = new Timeline(kernel, cluster)
  }

  warp(block: number, index: number): WarpTimer {
    return new WarpTimer(this, this.free, this.timeline.track(block, 'warp', index, `warp ${index}`), block, index)
  }

  /** When a copy that is issued now has arrived. */
  copy(block: number, from: number, bytes: number, isGather: boolean): number {
    const { card } = this
    const chip = isGather ? (card.gatherBytesPerSecond ?? card.cacheBytesPerSecond) : card.cacheBytesPerSecond
    const cycles = bytes / (chip / card.clockHz / card.multiprocessors)
    const start = this.free.take(`copies ${block}`, from, cycles)
    this.timeline.add(this.engine(block, 'copies'), isGather ? 'gather' : 'copy', 'work', start, start + cycles)
    return start + cycles + copyLatency
  }

  /** Multiplies of a block's tensor cores, or of a partition of them. */
  tensor(block: number, from: number, cycles: number, name: string, partition?: number): number {
    const pipe = `tensor ${block} ${partition ?? ''}`
    const start = this.free.take(pipe, from, cycles)
    this.timeline.add(this.engine(block, 'tensor cores'), name, 'work', start, start + cycles)
    return start + cycles
  }

  /** When a commit that is issued now arrives. */
  commit(block: number, from: number): number {
    return Math.max(from, this.free.until(`tensor ${block} `)) + commitLatency
  }

  private engine(block: number, name: string): Track {
    const key = `${block} ${name}`
    let track = this.engines.get(key)
    if (track === undefined) {
      track = this.timeline.track(block, 'engine', this.engines.size, name)
      this.engines.set(key, track)
    }
    return track
  }
}

/** The time of one warp. */
export class WarpTimer {
  /** When the next instruction may issue. */
  time = 0
  private readonly timing: Timing
  private readonly free: Free
  private readonly track: Track
  private readonly partition: string
  /** When each register's value is there. */
  private readonly ready: number[] = []
  private waitingSince: number | undefined
  private allReady = 0
  private loadsEnd = 0
  private groups: number[] = []
  private role = 'kernel'

  constructor(timing: Timing, free: Free, track: Track, block: number, index: number) {
    this.timing = timing
    this.free = free
    this.track = track
    this.partition = `${block} ${index % partitions}`
  }

  /** The warp begins a role; its track is named by the last. */
  enter(role: string): void {
    this.role = role
    this.track.name = `${role} (warp ${this.track.index})`
  }

  /** Before an instruction that synchronises: whether the warp must wait for results first. */
  drains({ record: { cost }, site }: Inst): boolean {
    if ((cost.unit !== 'barrier' && cost.unit !== 'control') || this.allReady <= this.time) return false
    this.until(this.allReady, 'results', lineOf(site))
    return true
  }

  /** An instruction cannot go on. */
  blocked(): void {
    this.waitingSince ??= this.time
  }

  /** An instruction has been executed. */
  executed({ record, operands, site }: Inst): void {
    const { timing } = this
    if (this.waitingSince !== undefined) {
      const until = Math.max(this.time, timing.now)
      timing.timeline.add(this.track, record.name, 'wait', this.waitingSince, until, lineOf(site))
      this.time = until
      this.waitingSince = undefined
    }
    if (record.effect === 'sync' || record.effect === 'async') timing.changed = true
    const { unit, cycles } = record.cost
    const ready = this.readyAt(record, operands)
    if (cycles === 0) {
      this.assign(record, operands, ready)
      return
    }
    const issue = this.free.take(`issue ${this.partition}`, this.time, 1)
    const isPipe = unit !== 'tensor' && unit !== 'tmem' && unit !== 'tma'
    const slot = isPipe ? this.free.take(`${unit} ${this.partition}`, issue, partitions * cycles) : issue
    const done = Math.max(slot, ready) + latency[unit]
    this.assign(record, operands, done)
    this.allReady = Math.max(this.allReady, done)
    timing.timeline.add(this.track, this.role, 'work', issue, slot + 1)
    this.time = slot + 1
    this.special(record.name, operands)
  }

  /** When all that an instruction reads is there. */
  private readyAt(record: Inst['record'], operands: Inst['operands']): number {
    let ready = 0
    for (const name in record.operands)
      if (record.operands[name]!.use !== 'out')
        for (const operand of [operands[name] ?? []].flat() as Operand[])
          if (isRegister(operand)) ready = Math.max(ready, this.ready[operand.id] ?? 0)
    return ready
  }

  /** Results are there at a time. */
  private assign(record: Inst['record'], operands: Inst['operands'], time: number): void {
    for (const name in record.operands) {
      const { use } = record.operands[name]!
      if (use !== 'out' && use !== 'both') continue
      for (const operand of [operands[name]!].flat() as Operand[])
        if (isRegister(operand)) this.ready[operand.id] = time
    }
  }

  /** A turn of a loop: a comparison and a branch. */
  turn(): void {
    this.time = this.free.take(`issue ${this.partition}`, this.time, 2) + 2
  }

  /** A group of Hopper's multiplies ends with the last of it. */
  multiply(block: number, index: number, cycles: number): void {
    const end = this.timing.tensor(block, this.time, partitions * cycles, 'multiply', index % partitions)
    this.groups[Math.max(0, this.groups.length - 1)] = end
  }

  private special(name: string, operands: Inst['operands']): void {
    const { free, partition } = this
    if (name.startsWith('tcgen05.ld')) {
      const bytes = 128 * (operands.v as readonly Operand[]).length
      this.loadsEnd = free.take(`tmem ${partition}`, this.time, bytes / tensorLoadRate) + bytes / tensorLoadRate
    } else if (name === 'tcgen05.wait.ld') this.until(this.loadsEnd + latency.tmem, name)
    else if (name === 'wgmma.commit') this.groups.push(0)
    else if (name.startsWith('wgmma.wait.')) {
      const pending = Number(name.slice('wgmma.wait.'.length))
      const over = this.groups.splice(0, Math.max(0, this.groups.length - 1 - pending))
      this.until(Math.max(0, ...over), name)
    }
  }

  private until(time: number, name: string, at?: string): void {
    if (time <= this.time) return
    this.timing.timeline.add(this.track, name, 'wait', this.time, time, at)
    this.time = time
  }
}
