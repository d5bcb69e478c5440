/** Runs a cluster in the order of time, one instruction after the other, for its timeline. */

import type { Cluster } from './cluster.ts'
import type { Warp } from './warp.ts'

/** False after a deadlock: the warps that wait for ever are `stuck`. */
export function runTimed(cluster: Cluster, stuck: (warps: readonly Warp[]) => void): boolean {
  const timing = cluster.timing!
  const running = new Set(cluster.warps)
  const step = (warp: Warp): void => {
    if (warp.advance()) running.delete(warp)
  }
  while (running.size > 0) {
    const next = earliest([...running].filter(({ waiting }) => waiting === undefined))
    const flight = cluster.inFlight.reduce<(typeof cluster.inFlight)[number] | undefined>(
      (first, other) => (first === undefined || other.at < first.at ? other : first),
      undefined,
    )
    if (next !== undefined && (flight === undefined || next.timer!.time <= flight.at)) {
      timing.now = Math.max(timing.now, next.timer!.time)
      step(next)
    } else if (flight !== undefined) {
      timing.now = Math.max(timing.now, flight.at)
      cluster.inFlight.splice(cluster.inFlight.indexOf(flight), 1)
      flight.signal()
      timing.changed = true
    } else {
      stuck([...running])
      return false
    }
    if (!timing.changed) continue
    timing.changed = false
    for (const warp of [...running]) if (warp.waiting !== undefined) step(warp)
  }
  cluster.end()
  return true
}

const earliest = (warps: readonly Warp[]): Warp | undefined =>
  warps.reduce<Warp | undefined>(
    (first, other) => (first === undefined || other.timer!.time < first.timer!.time ? other : first),
    undefined,
  )
