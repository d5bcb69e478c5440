/**
 * One warp of the simulated machine: 32 lanes in step under a mask. Straight-line code runs at once; an instruction
 * that must wait hands control back to the scheduler and is tried again.
 */

import { type Inst, isRegister, type Node, type Operand, type Register, type Site } from '../lang/ir.ts'
import type { Machine, MachineBarrier, Space, TensorCopy, WarpgroupMultiply } from '../lang/machine.ts'
import type { Mods } from '../lang/record.ts'
import { type Lanes, type Type, typeInfo } from '../lang/types.ts'
import type { Block } from './block.ts'
import { Clock } from './clock.ts'
import { pureStep } from './pure.ts'
import type { Accessor } from './shadow.ts'
import { WarpgroupUnit } from './warpgroup.ts'

const lanes = 32
const everyLane = -1

/** Why a warp waits, for the deadlock report. */
export interface Waiting {
  readonly what: string
  readonly site: Site
}

const constants = new Map<string, Lanes>()

/** An immediate as a register that holds it in every lane. */
function constant(type: Type, value: number | bigint): Lanes {
  const key = `${type} ${Object.is(value, -0) ? '-0' : value}`
  let filled = constants.get(key)
  if (filled === undefined) {
    filled = new (typeInfo(type).lanes)(lanes).fill(value as never)
    constants.set(key, filled)
  }
  return filled
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
  private readonly registers: Lanes[] = []
  private readonly program: Generator<void, void>
  private mask = everyLane
  private inst: Inst | undefined
  private access: Accessor | undefined
  private readonly matrix: WarpgroupUnit

  constructor(block: Block, index: number, actor: number, actors: number, body: readonly Node[]) {
    this.block = block
    this.index = index
    this.actor = actor
    this.clock = new Clock(actors)
    this.clock.seen[actor] = 1
    this.matrix = new WarpgroupUnit(this, block)
    this.program = this.run(body)
  }

  /** Runs until the warp waits or yields; true when it has ended. */
  advance(): boolean {
    return this.program.next().done === true
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

  blockBarrier(): boolean {
    return this.block.arriveAndWait(this)
  }

  read(space: Space, _lane: number, address: number | bigint, bytes: number): DataView {
    return this.block.access(this, 'read', space, address, bytes)
  }

  write(space: Space, _lane: number, address: number | bigint, bytes: number): DataView {
    return this.block.access(this, 'write', space, address, bytes)
  }

  update(space: Space, _lane: number, address: number | bigint, bytes: number): DataView {
    return this.block.access(this, 'update', space, address, bytes)
  }

  get firstLane(): number {
    return 31 - Math.clz32(this.mask & -this.mask)
  }

  eachLane(action: (lane: number) => void): void {
    for (let lane = 0; lane < lanes; lane++) if (this.active(lane)) action(lane)
  }

  barrier(lane: number, addressOperand: string): MachineBarrier {
    const state = this.block.mbarrier(this, Number(this.operand(addressOperand)[lane]))
    const { site } = this
    return {
      init: arrivals => state.init(arrivals, site),
      expect: bytes => state.expect(bytes, site),
      arrive: () => {
        state.arrive(this.clock, site)
        this.clock.seen[this.actor]!++
      },
      passed: parity => {
        const learned = state.passed(parity)
        if (learned !== undefined) this.clock.join(learned)
        return learned !== undefined
      },
    }
  }

  fenceProxy(): void {
    this.clock.fenced[this.actor] = this.clock.seen[this.actor]!
  }

  tensorLoad(copy: TensorCopy): void {
    this.block.tensorLoad(this, copy)
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

  /** An asynchronous operation that this warp issues now. */
  asyncAccessor(op: number): Accessor {
    return { ...this.accessor(), stamp: op, isAsync: true, clock: this.clock.copy() }
  }

  /** This warp at its present step, for the shadow of a memory: one object for all lanes of an instruction. */
  accessor(): Accessor {
    this.access ??= {
      block: this.block.number,
      warp: this.actor,
      stamp: this.clock.seen[this.actor]!,
      isAsync: false,
      clock: this.clock,
      site: this.site,
    }
    return this.access
  }

  get site(): Site {
    return this.inst?.site ?? {}
  }

  /** Publishes what this warp has done so far into `target`, and starts its next step. */
  release(target: Clock): void {
    target.join(this.clock)
    this.clock.seen[this.actor]!++
  }

  report(rule: Parameters<Block['findings']['report']>[0], message: string): void {
    this.block.findings.report(rule, message, this.site)
  }

  private lanesOf(operand: Operand): Lanes {
    if (!isRegister(operand)) return constant(operand.type, operand.value)
    return (this.registers[operand.id] ??= new (typeInfo(operand.type).lanes)(lanes))
  }

  private *run(nodes: readonly Node[]): Generator<void, void> {
    for (const node of nodes) {
      switch (node.kind) {
        case 'inst':
          if (node.record.lane !== undefined) this.compute(node)
          else yield* this.execute(node)
          break
        case 'branch':
          yield* this.diverge(node.holds, node.otherwise, this.maskOf(node.when))
          break
        case 'loop':
          yield* this.loop(node)
          break
        case 'repeat':
          yield* this.repeat(node.body, node.again)
          break
        case 'role':
          if (this.index >= node.first && this.index < node.last) yield* this.run(node.body)
          break
        default:
          node satisfies never
      }
    }
  }

  private *diverge(then: readonly Node[], otherwise: readonly Node[], holds: number): Generator<void, void> {
    const { mask } = this
    this.mask = mask & holds
    if (this.mask !== 0) yield* this.run(then)
    this.mask = mask & ~holds
    if (this.mask !== 0) yield* this.run(otherwise)
    this.mask = mask
  }

  private *loop(node: Extract<Node, { kind: 'loop' }>): Generator<void, void> {
    const { mask } = this
    const index = this.lanesOf(node.index) as Uint32Array
    this.copy(index, this.lanesOf(node.start))
    for (;;) {
      const end = this.lanesOf(node.end)
      for (let lane = 0; lane < lanes; lane++)
        if (this.active(lane) && !(index[lane]! < (end[lane] as number))) this.mask &= ~(1 << lane)
      if (this.mask === 0) break
      yield* this.run(node.body)
      const step = this.lanesOf(node.step)
      for (let lane = 0; lane < lanes; lane++) if (this.active(lane)) index[lane]! += step[lane] as number
    }
    this.mask = mask
  }

  private *repeat(body: readonly Node[], again: Register): Generator<void, void> {
    const { mask } = this
    do {
      yield* this.run(body)
      this.mask &= this.maskOf(again)
    } while (this.mask !== 0)
    this.mask = mask
  }

  /** A pure instruction: each active lane by itself. */
  private compute(inst: Inst): void {
    const { d: target, inputs, lane } = pureStep(inst)
    if (this.matrix.busy) this.matrix.checkTouched(inst, inst.site)
    this.matrix.assigned(target as Register)
    const d = this.lanesOf(target) as { [lane: number]: unknown }
    const { mask } = this
    const a = this.lanesOf(inputs[0]!)
    if (inputs.length === 1) {
      for (let i = 0; i < lanes; i++) if ((mask >>> i) & 1) d[i] = lane(a[i]!)
    } else if (inputs.length === 2) {
      const b = this.lanesOf(inputs[1]!)
      for (let i = 0; i < lanes; i++) if ((mask >>> i) & 1) d[i] = lane(a[i]!, b[i]!)
    } else {
      const b = this.lanesOf(inputs[1]!)
      const c = this.lanesOf(inputs[2]!)
      for (let i = 0; i < lanes; i++) if ((mask >>> i) & 1) d[i] = lane(a[i]!, b[i]!, c[i]!)
    }
    this.block.counters.count(inst.record)
  }

  private *execute(inst: Inst): Generator<void, void> {
    const { record } = inst
    this.inst = inst
    this.mods = inst.mods
    this.access = undefined
    if (record.convergent !== undefined && this.mask !== everyLane)
      this.report('divergence', `${record.name} needs all lanes of the warp; only some are active here`)
    while (record.run!(this) === false) {
      this.waiting = { what: record.name, site: inst.site }
      yield
      this.inst = inst
      this.mods = inst.mods
    }
    this.waiting = undefined
    this.block.counters.count(record)
    if (record.effect === 'sync') yield
  }

  private copy(to: Lanes, from: Lanes): void {
    for (let lane = 0; lane < lanes; lane++) if (this.active(lane)) to[lane] = from[lane]! as never
  }

  private maskOf(predicate: Register): number {
    const values = this.lanesOf(predicate)
    let mask = 0
    for (let lane = 0; lane < lanes; lane++) if (values[lane]) mask |= 1 << lane
    return mask
  }
}
