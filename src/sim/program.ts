/**
 * Walks the trace of a kernel for one warp. Straight-line code runs at once; an instruction that must wait hands
 * control back to the scheduler and is tried again.
 */

import type { Inst, Node, Register } from '../lang/ir.ts'
import type { Lanes } from '../lang/types.ts'
import { pureStep } from './pure.ts'
import type { Warp } from './warp.ts'

const lanes = 32
const everyLane = -1

export function* run(warp: Warp, nodes: readonly Node[]): Generator<void, void> {
  for (const node of nodes) {
    switch (node.kind) {
      case 'inst':
        if (node.record.lane === undefined) yield* execute(warp, node)
        else {
          compute(warp, node)
          if (warp.timer !== undefined) yield
        }
        break
      case 'branch':
        if (node.uniform) checkUniform(warp, node)
        yield* diverge(warp, node.holds, node.otherwise, maskOf(warp, node.when))
        break
      case 'loop':
        yield* loop(warp, node)
        break
      case 'repeat':
        yield* repeat(warp, node.body, node.again)
        break
      case 'role':
        if (warp.index < node.first || warp.index >= node.last) break
        warp.timer?.enter(node.name)
        yield* run(warp, node.body)
        break
      default:
        node satisfies never
    }
  }
}

/** The author promised that all lanes agree. */
function checkUniform(warp: Warp, { when, site }: Extract<Node, { kind: 'branch' }>): void {
  const holds = maskOf(warp, when) & warp.mask
  if (holds !== 0 && holds !== warp.mask)
    warp.block.findings.report('divergence', 'a branch that is to be uniform differs between lanes', site)
}

function* diverge(warp: Warp, then: readonly Node[], otherwise: readonly Node[], holds: number): Generator<void, void> {
  const { mask } = warp
  warp.mask = mask & holds
  if (warp.mask !== 0) yield* run(warp, then)
  warp.mask = mask & ~holds
  if (warp.mask !== 0) yield* run(warp, otherwise)
  warp.mask = mask
}

function* loop(warp: Warp, node: Extract<Node, { kind: 'loop' }>): Generator<void, void> {
  const { mask } = warp
  const index = warp.lanesOf(node.index) as Uint32Array
  copy(warp, index, warp.lanesOf(node.start))
  for (;;) {
    const end = warp.lanesOf(node.end)
    for (let lane = 0; lane < lanes; lane++)
      if (warp.active(lane) && !(index[lane]! < (end[lane] as number))) warp.mask &= ~(1 << lane)
    if (warp.mask === 0) break
    warp.timer?.turn()
    yield* run(warp, node.body)
    const step = warp.lanesOf(node.step)
    for (let lane = 0; lane < lanes; lane++) if (warp.active(lane)) index[lane]! += step[lane] as number
  }
  warp.mask = mask
}

function* repeat(warp: Warp, body: readonly Node[], again: Register): Generator<void, void> {
  const { mask } = warp
  do {
    yield* run(warp, body)
    warp.mask &= maskOf(warp, again)
  } while (warp.mask !== 0)
  warp.mask = mask
}

/** A pure instruction: each active lane by itself. */
function compute(warp: Warp, inst: Inst): void {
  const { d: target, inputs, lane, elements, reads } = pureStep(inst)
  if (warp.matrix.busy) warp.matrix.checkTouched(inst, inst.site)
  if (warp.tensor.busy) warp.tensor.checkTouched(inst)
  warp.matrix.assigned(target as Register)
  const d = warp.lanesOf(target) as { [lane: number]: unknown }
  const { mask } = warp
  const shift = elements === 64 ? 1 : 0
  const a = warp.lanesOf(inputs[0]!)
  if (inputs.length === 1) {
    for (let i = 0; i < elements; i++) if ((mask >>> (i >> shift)) & 1) d[i] = lane(a[i]!)
  } else if (inputs.length === 2) {
    const b = warp.lanesOf(inputs[1]!)
    for (let i = 0; i < elements; i++) if ((mask >>> (i >> shift)) & 1) d[i] = lane(a[i]!, b[i]!)
  } else {
    const b = warp.lanesOf(inputs[1]!)
    const c = warp.lanesOf(inputs[2]!)
    for (let i = 0; i < elements; i++) if ((mask >>> (i >> shift)) & 1) d[i] = lane(a[i]!, b[i]!, c[i]!)
  }
  warp.block.counters.count(inst.record)
  warp.block.counters.registerReads += reads
  warp.timer?.executed(inst)
}

function* execute(warp: Warp, inst: Inst): Generator<void, void> {
  const { record } = inst
  if (warp.timer?.drains(inst)) yield
  warp.begin(inst)
  warp.missing = undefined
  if (record.convergent !== undefined && warp.mask !== everyLane)
    warp.report('divergence', `${record.name} needs all lanes of the warp; only some are active here`)
  const ordinary = record.cost.unit !== 'tensor'
  if (ordinary && warp.matrix.busy) warp.matrix.checkTouched(inst, inst.site)
  if (warp.tensor.busy) warp.tensor.checkTouched(inst)
  while (record.run!(warp) === false) {
    warp.timer?.blocked()
    warp.waiting = { what: record.name, missing: warp.missing, site: inst.site }
    yield
    warp.begin(inst)
  }
  warp.end()
  if (ordinary) warp.matrix.assignedBy(inst)
  warp.block.counters.count(record)
  warp.time += BigInt(Math.ceil(record.cost.cycles))
  warp.timer?.executed(inst)
  if (record.effect === 'sync' || warp.timer !== undefined) yield
}

function copy(warp: Warp, to: Lanes, from: Lanes): void {
  for (let lane = 0; lane < lanes; lane++) if (warp.active(lane)) to[lane] = from[lane]! as never
}

function maskOf(warp: Warp, predicate: Register): number {
  const values = warp.lanesOf(predicate)
  let mask = 0
  for (let lane = 0; lane < lanes; lane++) if (values[lane]) mask |= 1 << lane
  return mask
}
