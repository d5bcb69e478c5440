/** Barriers among warps: the 16 of a block (bar.sync, bar.arrive) and the one of a cluster. */

import { Clock } from './clock.ts'
import type { Findings } from './finding.ts'
import type { Warp } from './warp.ts'

export class WarpBarrier {
  private readonly name: string
  private readonly actors: number
  private readonly findings: Findings
  /** What the warps that arrived in the present generation have published, and the same of the last that opened. */
  private arriving: Clock
  private opened: Clock
  private generation = 0
  private readonly arrived = new Set<Warp>()
  private expected = 0
  /** Generation that each waiting warp arrived in. */
  private readonly waiting = new Map<Warp, number>()

  constructor(name: string, actors: number, findings: Findings) {
    this.name = name
    this.actors = actors
    this.findings = findings
    this.arriving = new Clock(actors)
    this.opened = this.arriving
  }

  /** One warp arrives; the barrier opens when `warps` have. */
  arrive(warp: Warp, warps: number): void {
    if (this.arrived.size > 0 && this.expected !== warps)
      this.report(warp, `expects ${32 * warps} threads here and ${32 * this.expected} at another arrival`)
    if (this.arrived.has(warp)) this.report(warp, `gets a second arrival of warp ${warp.index} before it opened`)
    this.expected = warps
    warp.release(this.arriving)
    if (this.arrived.add(warp).size < warps) return
    this.generation++
    this.arrived.clear()
    this.opened = this.arriving
    this.arriving = new Clock(this.actors)
  }

  /** Arrives once, then waits until every warp has arrived. */
  arriveAndWait(warp: Warp, warps: number): boolean {
    if (!this.waiting.has(warp)) {
      this.waiting.set(warp, this.generation)
      this.arrive(warp, warps)
    }
    return this.waitSince(warp)
  }

  /** Arrives now; `waitArrived` waits for the others. */
  arriveSplit(warp: Warp, warps: number): void {
    if (this.waiting.has(warp)) this.report(warp, 'gets an arrival without a wait for the one before')
    this.waiting.set(warp, this.generation)
    this.arrive(warp, warps)
  }

  /** False until the generation that the warp arrived in has opened. */
  waitArrived(warp: Warp): boolean {
    if (!this.waiting.has(warp)) {
      this.report(warp, 'is waited for without an arrival')
      return true
    }
    return this.waitSince(warp)
  }

  /** What the barrier still waits for. */
  get missing(): string {
    return `${this.name}: ${this.arrived.size} of ${this.expected} warps have arrived`
  }

  private waitSince(warp: Warp): boolean {
    if (this.waiting.get(warp) === this.generation) return false
    this.waiting.delete(warp)
    warp.clock.join(this.opened)
    return true
  }

  private report(warp: Warp, what: string): void {
    this.findings.report('barrier', `${this.name} ${what}`, warp.site)
  }
}
