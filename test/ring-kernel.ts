/** A ring of two stages between a copying and an adding warp, with places for bugs. */

import type { KernelBuilder } from '../src/lang/builder.ts'
import { type Bound, type Kernel, kernel } from '../src/lang/kernel.ts'
import type { Barriers } from '../src/lang/mbarrier.ts'
import { type BufferParam, input, output } from '../src/lang/params.ts'
import type { SharedArray } from '../src/lang/shared.ts'
import type { Val } from '../src/lang/value.ts'
import { here } from './sim-kernel.ts'

type F32 = Bound<BufferParam<'f32'>>

const stages = 2
export const rounds = 5
/** Places where a bug can be planted in the kernel below; each notes its line in `bug`. */
export interface RingPlan {
  readonly expectBytes?: number
  readonly sourceShift?: number
  readonly targetShift?: number
  readonly consumerParity?: number
  readonly flip?: boolean
  readonly releaseFirst?: boolean
  readonly skipEmptyWait?: boolean
  readonly producers?: number
  readonly extraArrival?: boolean
  readonly lostArrival?: boolean
  readonly skipInitBarrier?: boolean
  readonly fence?: 'consumer' | 'producer'
}

export interface RingLines {
  load: string
  arrive: string
  wait: string
}

/** y[r] = sum of 32 words of x[r], which one warp copies and another adds up, through a ring of two stages. */
export function ring(plan: RingPlan = {}): { readonly traced: Kernel; readonly lines: RingLines } {
  const lines: RingLines = { load: '', arrive: '', wait: '' }
  const traced = kernel(
    { name: 'ring', target: 'sm_90a', threads: 64, params: { x: input('f32', 'x'), y: output('f32', 'y') } },
    (k, p) => {
      const slots = k.shared('f32', 32 * stages)
      const full = k.barriers(stages)
      const empty = k.barriers(stages)
      k.when(k.threadIdx.eq(0), () => {
        full.init(plan.producers ?? 1)
        empty.init(32)
        k.fenceBarrierInit()
      })
      if (!plan.skipInitBarrier) k.barrier()
      k.role('produce', { warps: [0, 1] }, () =>
        k.when(k.lane.eq(0), () => produce(k, plan, lines, p.x, slots, full, empty)),
      )
      k.role('consume', { warps: [1, 2] }, () => {
        for (const { round, stage, parity } of turns(k)) {
          lines.wait = here(1)
          full.wait(stage, plan.flip === false ? 0 : parity.bitXor(plan.consumerParity ?? 0))
          if (plan.releaseFirst) empty.arrive(stage)
          const value = slots.load(stage.mul(32).add(k.lane))
          if (!plan.releaseFirst) release(k, plan, lines, empty, stage)
          const sum = k.warpSum(value)
          k.when(k.lane.eq(0), () => p.y.store(round, sum))
        }
      })
    },
  )
  return { traced, lines }
}

function* turns(k: KernelBuilder) {
  for (const round of k.range(rounds)) yield { round, stage: round.bitAnd(1), parity: round.shr(1).bitAnd(1) }
}

function produce(
  k: KernelBuilder,
  plan: RingPlan,
  lines: RingLines,
  x: F32,
  slots: SharedArray<'f32'>,
  full: Barriers,
  empty: Barriers,
): void {
  const bytes = 128
  for (const { round, stage, parity } of turns(k)) {
    if (!plan.skipEmptyWait) empty.wait(stage, parity.bitXor(1))
    if (plan.fence === 'producer') k.fenceProxyAsync()
    full.arriveExpect(stage, plan.expectBytes ?? bytes)
    const target = slots.byteAt(stage.mul(32)).add(plan.targetShift ?? 0)
    const source = x.address(round.mul(32).add(plan.sourceShift ?? 0))
    lines.load = here(1)
    k.bulk.load(target, source, bytes, full.address(stage) as Val<'u32'>)
  }
}

function release(k: KernelBuilder, plan: RingPlan, lines: RingLines, empty: Barriers, stage: Val<'u32'>): void {
  if (plan.fence === 'consumer') k.fenceProxyAsync()
  if (plan.lostArrival) k.when(k.lane.lt(31), () => empty.arrive(stage))
  else {
    lines.arrive = here(1)
    empty.arrive(stage)
  }
  if (plan.extraArrival) {
    lines.arrive = here(1)
    k.when(k.lane.eq(0), () => empty.arrive(stage))
  }
}
