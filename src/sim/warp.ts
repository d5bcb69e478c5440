/** One warp of the simulated machine: 32 lanes in step under a mask, as instruction records see it. */

import { type Inst, isRegister, type Node, type Operand, type Register, type Site } from '../lang/ir.ts'
import type { CopyEngine, Machine, MachineBarrier, Space, ThreadCopies, WarpgroupMultiply } from '../lang/machine.ts'
import type { Mods } from '../lang/record.ts'
import type { Lanes } from '../lang/types.ts'
import type { Block } from './block.ts'
import { Clock } from './clock.ts'
import { constant } from './constant.ts'
import { SimCopyEngine } from './copy-engine.ts'
import { machineBarrier } from './machine-barrier.ts'
import type { MbarrierState } from './mbarrier.ts'
import { run } from './program.ts'
import type { AccessKind, Accessor } from './shadow.ts'
import { SimTensorUnit } from './tensor-unit.ts'
import { SimThreadCopies } from './thread-copies.ts'
import type { WarpTimer } from './timing.ts'
import { Traffic } from './traffic.ts'
import { WarpgroupUnit } from './warpgroup.ts'

const lanes = 32
const everyLane = -1

/** Why a warp waits, for the deadlock report. */
export interface Waiting {
  readonly what: string
  /** What is missing, once asked. */
  readonly missing: (() => string) | undefined
  readonly site: Site
}

export class Warp implements Machine {
  readonly width: number = lanes
  readonly block: Block
  /** Index within the block, and within the cluster. */
  readonly index: number
  readonly actor: number
  readonly clock: Clock
  mods: Mods = {}
  waiting: Waiting | undefined
  /** What the instruction under way waits for. */
  missing: (() => string) | undefined
  /** Lanes that are active. */
  mask: number = everyLane
  /** Counts instructions that touch more than registers. */
  turn = 0
  time = 0n
  readonly copies: CopyEngine
  readonly threadCopies: ThreadCopies
  /** Estimated times, when a timeline was asked for. */
  readonly timer: WarpTimer | undefined
  readonly tensor: SimTensorUnit
  readonly matrix: WarpgroupUnit
  private readonly registers: Lanes[] = []
  private readonly program: Generator<void, void>
  private readonly traffic = new Traffic()
  private operations = 0
  /** Barriers that this warp has initialised since its last fence. */
  private readonly initialized: MbarrierState[] = []
  private inst: Inst | undefined
  private access: Accessor | undefined

  constructor(block: Block, index: number, actor: number, actors: number, body: readonly Node[]) {
    this.block = block
    this.index = index
    this.actor = actor
    this.clock = new Clock(actors)
    this.clock.seen[actor] = 1
    this.matrix = new WarpgroupUnit(this, block)
    this.copies = new SimCopyEngine(this, block)
    this.timer = block.cluster.timing?.warp(block.number, index)
    this.tensor = new SimTensorUnit(this, block, actors)
    this.threadCopies = new SimThreadCopies(this, block)
    this.program = run(this, body)
  }

  /** Runs until the warp waits or yields; true when it has ended. */
  advance(): boolean {
    return this.program.next().done === true
  }

  /** An instruction begins, or is tried again. */
  begin(inst: Inst): void {
    this.inst = inst
    this.mods = inst.mods
    this.access = undefined
    this.turn++
  }

  /** The instruction is done. */
  end(): void {
    this.waiting = undefined
    this.traffic.flush(this.block.counters)
  }

  /** Sets a parameter register in every lane. */
  setUniform(register: Register, value: number | bigint): void {
    this.lanesOf(register).fill(value as never)
  }

  active(lane: number): boolean {
    return ((this.mask >>> lane) & 1) === 1
  }

  operand(name: string): Lanes {
    return this.lanesOf(this.inst!.operands[name] as Operand)
  }

  list(name: string): readonly Lanes[] {
    return (this.inst!.operands[name] as readonly Operand[]).map(operand => this.lanesOf(operand))
  }

  uniform(name: string): number | bigint {
    const values = this.operand(name)
    const first = this.firstLane
    for (let lane = 0; lane < lanes; lane++)
      if (this.active(lane) && values[lane] !== values[first])
        this.report('divergence', `${this.inst!.record.name}: operand ${name} differs between lanes`)
    return values[first]!
  }

  special(name: string, lane: number): number {
    return this.block.special(name, this.index * lanes + lane, lane)
  }

  blockBarrier(id = 0, threads: number = 32 * this.block.warps.length): boolean {
    const barrier = this.block.barrier(id)
    this.missing = () => barrier.missing
    return barrier.arriveAndWait(this, this.warpsOf(threads))
  }

  blockArrive(id: number, threads: number): void {
    this.block.barrier(id).arrive(this, this.warpsOf(threads))
  }

  clusterArrive(): void {
    const { barrier, warps } = this.block.cluster
    barrier.arriveSplit(this, warps.length)
  }

  clusterWait(): boolean {
    const { barrier } = this.block.cluster
    this.missing = () => barrier.missing
    return barrier.waitArrived(this)
  }

  read(space: Space, _lane: number, address: number | bigint, bytes: number): DataView {
    return this.touch('read', space, address, bytes)
  }

  write(space: Space, _lane: number, address: number | bigint, bytes: number): DataView {
    return this.touch('write', space, address, bytes)
  }

  update(space: Space, _lane: number, address: number | bigint, bytes: number): DataView {
    return this.touch('update', space, address, bytes)
  }

  get firstLane(): number {
    return 31 - Math.clz32(this.mask & -this.mask)
  }

  eachLane(action: (lane: number) => void): void {
    for (let lane = 0; lane < lanes; lane++) if (this.active(lane)) action(lane)
  }

  barrier(lane: number, addressOperand: string, space: 'shared' | 'cluster' = 'shared'): MachineBarrier {
    return machineBarrier(this, Number(this.operand(addressOperand)[lane]), space, this.initialized)
  }

  fenceBarriers(): void {
    for (const barrier of this.initialized.splice(0)) barrier.makeVisible()
  }

  fenceProxy(...spaces: ('shared' | 'global')[]): void {
    if (spaces.includes('shared')) this.fenceBarriers()
    for (const space of spaces) this.clock.fence(this.actor, space)
  }

  storeAsync(target: number, bytes: Uint8Array, barrier: number): void {
    ;(this.copies as SimCopyEngine).storeAsync(target, bytes, barrier)
  }

  warpgroupMultiply(multiply: WarpgroupMultiply): boolean {
    this.matrix.multiply(multiply, this.list('d'), this.inst!)
    return true
  }
  warpgroupFence(): boolean {
    this.matrix.fence()
    return true
  }
  warpgroupCommit(): boolean {
    this.matrix.commit()
    return true
  }
  warpgroupWait(pending: number): boolean {
    this.matrix.wait(pending)
    return true
  }

  /** A new asynchronous operation that this warp issues now. */
  asyncAccessor(): Accessor {
    return { ...this.accessor(), stamp: this.operations++, isAsync: true, proxy: 'async', clock: this.clock.copy() }
  }

  /** This warp at its present step, for the shadow of a memory: one object for all lanes of an instruction. */
  accessor(): Accessor {
    this.access ??= {
      cluster: this.block.cluster.number,
      warp: this.actor,
      stamp: this.clock.seen[this.actor]!,
      isAsync: false,
      proxy: 'generic',
      clock: this.clock,
      site: this.site,
    }
    return this.access
  }

  /** The instruction under way. */
  get instruction(): Inst {
    return this.inst!
  }

  get site(): Site {
    return this.inst?.site ?? {}
  }

  /** Publishes what this warp has done so far, and starts its next step. */
  release(target: Clock): void {
    target.join(this.clock)
    this.clock.seen[this.actor]!++
  }

  report(rule: Parameters<Block['findings']['report']>[0], message: string): void {
    this.block.findings.report(rule, message, this.site)
  }

  /** Lane storage of a register, or of a constant. */
  lanesOf(operand: Operand): Lanes {
    if (!isRegister(operand)) return constant(operand)
    return this.registers[operand.id] ?? this.newRegister(operand)
  }

  private newRegister({ id, type }: Register): Lanes {
    const made = this.block.cluster.registers.make(type)
    this.registers[id] = made
    return made
  }

  private touch(kind: AccessKind, space: Space, address: number | bigint, bytes: number): DataView {
    this.traffic.add(space, address, bytes)
    return this.block.access(this, kind, space, address, bytes)
  }

  private warpsOf(threads: number): number {
    if (threads % lanes !== 0 || threads < lanes || threads > lanes * this.block.warps.length)
      this.report('barrier', `a barrier of ${threads} threads; expected a multiple of 32 up to the block's`)
    return Math.ceil(threads / lanes)
  }
}
