/**
 * Walks the trace of a kernel for one warp. Straight-line code runs at once; an instruction that must wait hands
 * control back to the scheduler and is tried again.
 */

import type { Inst, Node, Register } from '../lang/ir.ts'
import type { Lanes } from '../lang/types.ts'
import { binary, pureStep, ternary, unary } from './pure.ts'
import type { Warp } from './warp.ts'

const lanes = 32
const everyLane = -1

export function* run(warp: Warp, nodes: readonly Node[]): Generator<void, void> {
  for (const node of nodes) {
    switch (node.kind) {
      case 'inst':
        if (node.record.lane === undefined) {
          if (warp.timer?.drains(node)) yield
          begin(warp, node)
          while (node.record.run!(warp) === false) {
            blocked(warp, node)
            yield
            warp.begin(node)
          }
          finish(warp, node)
          if (node.record.effect === 'sync' || warp.timer !== undefined) yield
        } else {
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
  const step = pureStep(inst)
  if (warp.matrix.busy) warp.matrix.checkTouched(inst, inst.site)
  if (warp.tensor.busy) warp.tensor.checkTouched(inst)
  warp.matrix.assigned(step.d)
  const { inputs } = step
  const d = warp.lanesOf(step.d)
  const a = warp.lanesOf(inputs[0]!)
  if (inputs.length === 1) unary(step, d, a, warp.mask)
  else if (inputs.length === 2) binary(step, d, a, warp.lanesOf(inputs[1]!), warp.mask)
  else ternary(step, d, a, warp.lanesOf(inputs[1]!), warp.lanesOf(inputs[2]!), warp.mask)
  warp.block.counters.count(inst.record)
  warp.block.counters.registerReads += step.reads
  warp.timer?.executed(inst)
}

/** Any other instruction, before it runs for the first time. */
function begin(warp: Warp, inst: Inst): void {
  const { record } = inst
  warp.begin(inst)
  warp.missing = undefined
  if (record.convergent !== undefined && warp.mask !== everyLane)
    warp.report('divergence', `${record.name} needs all lanes of the warp; only some are active here`)
  if (record.cost.unit !== 'tensor' && warp.matrix.busy) warp.matrix.checkTouched(inst, inst.site)
  if (warp.tensor.busy) warp.tensor.checkTouched(inst)
}

/** It must wait for others. */
function blocked(warp: Warp, { record, site }: Inst): void {
  warp.timer?.blocked()
  warp.waiting = { what: record.name, missing: warp.missing, site }
}

function finish(warp: Warp, inst: Inst): void {
  const { record } = inst
  warp.end()
  if (record.cost.unit !== 'tensor') warp.matrix.assignedBy(inst)
  warp.block.counters.count(record)
  warp.time += BigInt(Math.ceil(record.cost.cycles))
  warp.timer?.executed(inst)
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
