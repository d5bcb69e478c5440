/**
 * The state of one mbarrier (isa.md §2.1): pending arrivals, announced bytes not yet in, the phase. What the arrivals
 * of a phase have released is known to whoever waits for it.
 */

import type { Site } from '../lang/ir.ts'
import { Clock } from './clock.ts'
import type { Findings } from './finding.ts'

const most = 2 ** 20 - 1

export class MbarrierState {
  private expected = 0
  private pending = 0
  private bytes = 0
  private phase = 0
  /** Released by the arrivals of the phase under way, and by those of the phase before it. */
  private arriving: Clock
  private completed: Clock
  private readonly warps: number
  private readonly findings: Findings
  private readonly name: string

  constructor(name: string, warps: number, findings: Findings) {
    this.name = name
    this.warps = warps
    this.findings = findings
    this.arriving = new Clock(warps)
    this.completed = this.arriving
  }

  init(arrivals: number, site: Site): void {
    if (arrivals < 1 || arrivals > most)
      this.findings.report('barrier', `${this.name} is initialised for ${arrivals} arrivals`, site)
    this.expected = arrivals
    this.pending = arrivals
    this.bytes = 0
    this.phase = 0
  }

  /** One arrival, releasing what `clock` knows. */
  arrive(clock: Clock, site: Site): void {
    if (this.expected === 0) this.findings.report('barrier', `${this.name} is used before it is initialised`, site)
    else if (this.pending === 0)
      this.findings.report('barrier', `${this.name} gets more than ${this.expected} arrivals in one phase`, site)
    else this.pending--
    this.arriving.join(clock)
    this.turn()
  }

  /** Announces bytes. */
  expect(bytes: number, site: Site): void {
    this.bytes += bytes
    if (Math.abs(this.bytes) > most)
      this.findings.report('barrier', `${this.name} has ${this.bytes} bytes outstanding; at most ${most}`, site)
  }

  /** Bytes of an asynchronous operation have landed. */
  complete(bytes: number, clock: Clock): void {
    this.bytes -= bytes
    this.arriving.join(clock)
    this.turn()
  }

  /** What a waiter for `parity` learns, or undefined while the phase is under way. */
  passed(parity: number): Clock | undefined {
    return this.phase % 2 !== parity ? this.completed : undefined
  }

  /** What the barrier still waits for. */
  get missing(): string {
    return `${this.pending} of ${this.expected} arrivals and ${this.bytes} bytes`
  }

  private turn(): void {
    if (this.pending !== 0 || this.bytes !== 0 || this.expected === 0) return
    this.phase++
    this.pending = this.expected
    this.completed = this.arriving
    this.arriving = new Clock(this.warps)
  }
}
