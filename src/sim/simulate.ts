/**
 * Runs a traced kernel cluster by cluster. Warps of a cluster take turns in an order drawn from a seed, so that different
 * seeds explore different interleavings; what is wrong in any order is found by clocks, not by luck.
 */

import type { Kernel } from '../lang/kernel.ts'
import type { Grid } from './block.ts'
import { Cluster } from './cluster.ts'
import { Counters } from './counters.ts'
import type { Card } from './estimate.ts'
import type { Findings } from './finding.ts'
import type { GlobalMemory } from './memory.ts'
import type { TensorMapEntry } from './tensor-copy.ts'
import { runTimed } from './timed-run.ts'
import type { Timeline } from './timeline.ts'
import type { Warp } from './warp.ts'

export interface SimulateOptions {
  readonly grid: Grid
  /** By parameter name: scalars, and addresses of buffers in `global`. */
  readonly args: Readonly<Record<string, number | bigint>>
  readonly global: GlobalMemory
  readonly findings: Findings
  readonly counters?: Counters
  /** What tensor-map handles among `args` describe. */
  readonly maps?: ReadonlyMap<bigint, TensorMapEntry>
  /** Whether data of copies lands at once, or as late as it may. Default late. */
  readonly landing?: 'early' | 'late'
  /** Chooses the order in which warps take turns. Default 1. */
  readonly seed?: number
  /** Receives a timeline of each cluster, estimated for a card; warps then run in the order of time. */
  readonly timelines?: Timeline[] | undefined
  readonly timedFor?: Card | undefined
}

/** Runs the whole grid; what is wrong goes to `findings`. */
export function simulate(kernel: Kernel, options: SimulateOptions): Counters {
  const {
    grid,
    args,
    global,
    findings,
    seed = 1,
    counters = new Counters(),
    maps = new Map(),
    landing = 'late',
    timelines,
    timedFor,
  } = options
  const random = turns(seed)
  if (grid[0] % kernel.cluster !== 0)
    throw new RangeError(`a grid of ${grid[0]} blocks does not divide into clusters of ${kernel.cluster}`)
  for (let y = 0; y < grid[1]; y++)
    for (let x = 0; x < grid[0]; x += kernel.cluster) {
      const cluster = new Cluster({ kernel, grid, at: [x, y], global, findings, counters, maps, landing, timedFor })
      for (const warp of cluster.warps)
        Object.keys(kernel.params).forEach((name, i) => warp.setUniform(kernel.paramRegisters[i]!, args[name]!))
      if (!runCluster(cluster, findings, random)) return counters
      if (cluster.timing !== undefined) timelines?.push(cluster.timing.timeline)
    }
  counters.bytes.distinct += global.takeTouched()
  global.settle()
  return counters
}

/**
 * Lets the warps take turns until all have ended; false after a deadlock. Copies are signalled only when every warp
 * waits, in an order drawn from the seed: as late as the machine may.
 */
function runCluster(cluster: Cluster, findings: Findings, random: (n: number) => number): boolean {
  if (cluster.timing !== undefined) return runTimed(cluster, warps => reportDeadlock(findings, warps))
  const running = [...cluster.warps]
  let idle = 0
  while (running.length > 0) {
    const turn = random(running.length)
    const warp = running[turn]!
    const ended = warp.advance()
    if (ended) running.splice(turn, 1)
    idle = ended || warp.waiting === undefined ? 0 : idle + 1
    if (running.length === 0 || idle < 8 * running.length || running.some(progresses)) continue
    idle = 0
    const [signal] = cluster.inFlight.splice(random(cluster.inFlight.length || 1), 1)
    if (signal === undefined) return reportDeadlock(findings, running)
    signal.signal()
  }
  cluster.end()
  return true
}

/** Whether one more turn gets a warp past what it waits for. */
const progresses = (warp: Warp): boolean => {
  warp.advance()
  return warp.waiting === undefined
}

function reportDeadlock(findings: Findings, stuck: readonly Warp[]): false {
  for (const { block, index, waiting } of stuck) {
    const missing = waiting!.missing === undefined ? '' : ` (${waiting!.missing()})`
    const what = `warp ${index} of block ${block.number} waits for ever at ${waiting!.what}${missing}`
    findings.report('deadlock', what, waiting!.site)
  }
  return false
}

/** A generator of turns (mulberry32). */
function turns(seed: number): (n: number) => number {
  let state = seed >>> 0
  return n => {
    state = (state + 0x6d2b79f5) >>> 0
    let t = Math.imul(state ^ (state >>> 15), 1 | state)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) % n
  }
}
