/** Runs the call of a listed kernel on the simulator and watches the kernel: its timeline and what it is bound by. */

import { dtypeInfo } from '../dtypes/dtype.ts'
import type { GpuPlan, LaunchArg } from '../lang/launch.ts'
import type { Target } from '../lang/types.ts'
import { standsFor } from '../ops/plan-cache.ts'
import { Counters } from '../sim/counters.ts'
import { type Observation, SimDevice } from '../sim/device.ts'
import {
  b200,
  type Card,
  type Estimate,
  estimate,
  formatEstimate,
  h200,
  type Part,
  partsOf,
  shareOf,
} from '../sim/estimate.ts'
import type { Span, Timeline, Track } from '../sim/timeline.ts'
import { type Allocation, DeviceTensor } from '../tensor/device-tensor.ts'
import { Tensor } from '../tensor/tensor.ts'
import type { ListedKernel } from './listed-kernel.ts'

export { type Card, formatEstimate, type Span, type Timeline, type Track }

export interface ExampleRun {
  readonly card: Card
  /** Of the cluster that took longest. */
  readonly timeline: Timeline
  readonly blocks: number
  /** Of the launch, and of its blocks when all other multiprocessors are as busy. */
  readonly estimate: Estimate
  readonly crowded: Estimate
  /** What takes the time of the unit that bounds it then, the most first. */
  readonly parts: readonly Part[]
}

const cardOf = (target: Target): Card => (target === 'sm_100a' ? b200 : h200)

/** @returns undefined where the target runs the call with other kernels */
export async function runExample(
  { plan, entry, nth = 0 }: ListedKernel,
  target: Target,
): Promise<ExampleRun | undefined> {
  const card = cardOf(target)
  const watched: Observation = { counters: new Counters(), timelines: [], timedFor: card }
  let seen = 0
  await using device = new SimDevice(target, {
    observe: kernel => (kernel.name === entry && seen++ === nth ? watched : undefined),
  })
  const planned = plan(device) as GpuPlan
  const launch = planned.launches.filter(({ kernel }) => kernel.name === entry)[nth]
  if (launch === undefined) return undefined
  const real = binder(device)
  const launches = planned.launches.slice(0, planned.launches.indexOf(launch) + 1).map(one => ({
    ...one,
    args: Object.fromEntries(Object.entries(one.args).map(([name, arg]) => [name, real(arg)])),
  }))
  device.submit({ ...planned, launches } as GpuPlan, { inputs: {}, outputs: {} })
  await device.sync()
  const [first, ...rest] = watched.timelines
  if (first === undefined) return undefined
  const blocks = launch.grid[0] * launch.grid[1]
  const timeline = rest.reduce((longest, other) => (other.end > longest.end ? other : longest), first)
  const { counters } = watched
  const crowded = estimate(counters, blocks, shareOf(card, blocks))
  const parts = partsOf(counters, crowded.bound, card)
  return { card, timeline, blocks, estimate: estimate(counters, blocks, card), crowded, parts }
}

/** Gives the tensors of a plan memory on the device. */
function binder(device: SimDevice): (arg: LaunchArg) => LaunchArg {
  const held = new Map<Allocation, Allocation>()
  const memoryOf = (stand: Allocation): Allocation => {
    const known = held.get(stand)
    if (known !== undefined) return known
    const source = standsFor.get(stand)
    const allocation =
      source === undefined
        ? stand
        : source instanceof Tensor
          ? device.upload(livened(source)).allocation
          : device.alloc(source.dtype, source.shape).allocation
    held.set(stand, allocation)
    return allocation
  }
  return arg => {
    if (!(arg instanceof DeviceTensor)) return arg
    const { dtype, shape, strides, offset, dims, space } = arg
    return new DeviceTensor({ dtype, shape, strides, offset, dims, space }, memoryOf(arg.allocation))
  }
}

/** Examples have zeros; numbers near one let data-dependent work take its course. */
function livened(source: Tensor): Tensor {
  const { dtype } = source
  const codes = source.codes()
  const one = ones[dtype]
  if (one === undefined || codes.some(code => Number(code) !== 0)) return source
  let state = 1
  const filled = new dtypeInfo[dtype].storage(codes.length)
  for (let i = 0; i < codes.length; i++) {
    state = (Math.imul(state, 48271) + 11) >>> 0
    filled[i] = one(state >>> 16) as never
  }
  return new Tensor({ ...source, offset: 0 }, filled as never)
}

/** A number between a half and two. */
const ones: Readonly<Partial<Record<Tensor['dtype'], (bits: number) => number>>> = {
  f32: bits => 0.5 + (bits & 255) / 256,
  bf16: bits => 0x3f00 + (bits & 0x80ff),
  f16: bits => 0x3800 + (bits & 0x87ff),
  e4m3: bits => 0x30 + (bits & 0x8f),
}
