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
  /** Waits that saw the phase before the present one complete: the step of each warp. */
  private readonly waits = new Map<number, number>()
  /** The last phase that each warp saw complete. */
  private readonly lastSeen = new Map<number, number>()
  private initialized: { readonly warp: number; readonly step: number; readonly site: Site } | undefined
  /** Whether a fence has made the initialisation visible to copies and other blocks. */
  private visible = false
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

  get isInitialized(): boolean {
    return this.expected > 0
  }

  /** The initialising warp has fenced. */
  makeVisible(): void {
    this.visible = true
  }

  /** A copy, or a warp of another block, with this clock uses the barrier. */
  checkVisible(clock: Clock, site: Site): void {
    this.checkInitialized(clock, site)
    if (this.expected > 0 && !this.visible)
      this.findings.report(
        'missing-proxy-fence',
        `${this.name} is used by a copy or another block without fence.mbarrier_init after its initialisation`,
        site,
        this.initialized?.site,
      )
  }

  /** A warp with this clock uses the barrier. */
  checkInitialized(clock: Clock, site: Site): void {
    if (this.expected === 0) this.findings.report('barrier', `${this.name} is used before it is initialised`, site)
    else if (this.initialized !== undefined && clock.seen[this.initialized.warp]! < this.initialized.step)
      this.findings.report(
        'race',
        `${this.name} is used while its initialisation may still be under way`,
        site,
        this.initialized.site,
      )
  }

  init(arrivals: number, by: { readonly warp: number; readonly step: number; readonly site: Site }): void {
    const { site } = by
    this.visible = false
    this.initialized = by
    if (arrivals < 1 || arrivals > most)
      this.findings.report('barrier', `${this.name} is initialised for ${arrivals} arrivals`, site)
    this.expected = arrivals
    this.pending = arrivals
    this.bytes = 0
    this.phase = 0
    this.waits.clear()
    this.lastSeen.clear()
  }

  /** One arrival of somebody who knows `knowledge`, releasing what `clock` knows. */
  arrive(clock: Clock, site: Site, knowledge: Clock = clock): void {
    if (this.pending === 0 && this.expected > 0)
      this.findings.report('barrier', `${this.name} gets more than ${this.expected} arrivals in one phase`, site)
    else this.pending--
    this.checkWaited(knowledge, site)
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

  /** What a warp that waits for `parity` at its step learns, or undefined while the phase is under way. */
  passed(parity: number, warp: number, step: number, site: Site): Clock | undefined {
    if (this.phase % 2 === parity) return undefined
    const last = this.lastSeen.get(warp)
    const complete = this.phase - 1
    if (last !== undefined && complete - last >= 3 && (complete - last) % 2 === 1)
      this.findings.report(
        'barrier',
        `${this.name} is waited for by a warp that missed ${complete - last - 1} phases; parities tell one phase back only`,
        site,
      )
    this.waits.set(warp, step)
    this.lastSeen.set(warp, complete)
    return this.completed
  }

  /** What the barrier still waits for. */
  get missing(): string {
    return `${this.name}: ${this.pending} of ${this.expected} arrivals and ${this.bytes} bytes are missing`
  }

  /** Somebody must have waited for the phase before, or this arrival could have come into that one. */
  private checkWaited(clock: Clock, site: Site): void {
    if (this.phase === 0) return
    for (const [warp, step] of this.waits) if (Math.max(clock.seen[warp]!, clock.past[warp]!) >= step) return
    this.findings.report('barrier', `${this.name} gets an arrival although nobody waited for the phase before`, site)
  }

  private turn(): void {
    if (this.pending !== 0 || this.bytes !== 0 || this.expected === 0) return
    this.phase++
    this.waits.clear()
    this.pending = this.expected
    this.completed = this.arriving
    this.arriving = new Clock(this.warps)
  }
}
