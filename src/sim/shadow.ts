/**
 * Who last touched each byte of a memory, and whether an access is ordered after it. Ordinary accesses are stamped
 * with the warp and its step, asynchronous ones with the operation.
 */

import type { Site } from '../lang/ir.ts'
import type { Clock, FencedSpace } from './clock.ts'
import type { Findings } from './finding.ts'
import { nextPage, type Reader, ShadowPages, unitOf } from './shadow-pages.ts'

/** Who accesses: a warp at its current step, or an asynchronous operation started by a warp. */
export interface Accessor {
  /** Number of the cluster in the grid; clusters are never ordered with each other. */
  readonly cluster: number
  /** Number of the warp in its cluster. */
  readonly warp: number
  /** Step of the warp, or the asynchronous operation's number among the warp's. */
  readonly stamp: number
  readonly isAsync: boolean
  /** Which path to memory it takes: copies and matrix units the asynchronous one, all others the generic one. */
  readonly proxy: 'generic' | 'async'
  /** What the accessor knows: the warp's clock, or a copy from when the operation was issued. */
  readonly clock: Clock
  readonly site: Site
  /** Thread whose tensor operations this is one of: a commit that covers one covers all before it. */
  readonly stream?: number
}

/** What an access does; `update` is an atomic read and write. */
export type AccessKind = 'read' | 'write' | 'update'

/** The last write of each byte, and the reads and atomic updates since then. */
export class Shadow {
  private readonly space: string
  private readonly kind: FencedSpace
  private readonly findings: Findings
  private readonly pages: ShadowPages
  /** The last update of each actor, for the few bytes that are updated at all. */
  private readonly updaters = new Map<number, Accessor[]>()

  constructor(space: string, kind: FencedSpace, bytes: number, findings: Findings) {
    this.space = space
    this.kind = kind
    this.findings = findings
    this.pages = new ShadowPages(bytes)
  }

  read(by: Accessor, start: number, bytes: number): void {
    const end = start + bytes
    for (let from = start; from < end; from = nextPage(from))
      if (!this.readInPage(by, from, Math.min(end, nextPage(from)))) return
  }

  /** Reads bytes of one page; false at the first that nothing wrote. */
  private readInPage(by: Accessor, from: number, to: number): boolean {
    const page = this.pages.find(from, to)
    if (page === undefined) return this.unwritten(by, from, 'read')
    const { writers, readers, shift } = page
    let lastWriter: Accessor | undefined
    let lastFirst: Reader | undefined
    let lastReader: Reader | undefined
    for (let at = from, unit = unitOf(page, from); at < to; at += 1 << shift, unit++) {
      const first = readers[unit]
      // Another lane of the same instruction was here.
      if (first !== undefined && first.by === by) continue
      const writer = writers[unit]
      if (writer === undefined) return this.unwritten(by, at, 'read')
      // Neighbours were mostly written and read together.
      if (writer !== lastWriter && !sameActor(writer, by)) this.checkAfter(writer, by, at, 'read')
      lastWriter = writer
      if (this.updaters.size > 0) this.checkUpdaters(by, at, 'read')
      if (lastReader === undefined || first !== lastFirst) {
        if (first === undefined || !(sameActor(first.by, by) || sameStream(first.by, by)))
          lastReader = { by, next: first }
        else lastReader = first.by.stamp === by.stamp ? first : { by, next: first.next }
        lastFirst = first
      }
      readers[unit] = lastReader
    }
    return true
  }

  /** An atomic read and write: unordered with other updates, ordered like a write with everything else. */
  update(by: Accessor, start: number, bytes: number): void {
    for (let at = start; at < start + bytes; at++) {
      const page = this.pages.find(at, at + 1)
      const unit = page === undefined ? 0 : unitOf(page, at)
      const writer = page?.writers[unit]
      if (writer === undefined) {
        this.unwritten(by, at, 'updated')
        return
      }
      if (!sameActor(writer, by)) this.checkAfter(writer, by, at, 'updated')
      this.checkReaders(page!.readers[unit], by, at, 'updated')
      const others = this.updaters.get(at)
      if (others === undefined) this.updaters.set(at, [by])
      else {
        const own = others.findIndex(other => sameActor(other, by))
        others[own < 0 ? others.length : own] = by
      }
    }
  }

  write(by: Accessor, start: number, bytes: number): void {
    const end = start + bytes
    for (let from = start; from < end; from = nextPage(from)) this.writeInPage(by, from, Math.min(end, nextPage(from)))
  }

  private writeInPage(by: Accessor, from: number, to: number): void {
    const page = this.pages.make(from, to)
    const { writers, readers, shift } = page
    for (let at = from, unit = unitOf(page, from); at < to; at += 1 << shift, unit++) {
      const writer = writers[unit]
      if (writer !== undefined && !sameActor(writer, by)) this.checkAfter(writer, by, at, 'overwritten')
      this.checkReaders(readers[unit], by, at, 'overwritten')
      // Where bytes are updated, units are bytes.
      if (this.updaters.size > 0) {
        this.checkUpdaters(by, at, 'overwritten')
        this.updaters.delete(at)
      }
      writers[unit] = by
      readers[unit] = undefined
    }
  }

  /** Marks bytes as written without an accessor: inputs that were there before the launch. */
  initialize(start: number, bytes: number, by: Accessor): void {
    const end = start + bytes
    for (let from = start; from < end; from = nextPage(from)) {
      const to = Math.min(end, nextPage(from))
      const page = this.pages.make(from, to)
      page.writers.fill(by, unitOf(page, from), unitOf(page, to - 1) + 1)
    }
  }

  /** Stamps everything written so far as `by`, and forgets the reads. */
  settle(by: Accessor): void {
    this.pages.settle(by)
    this.updaters.clear()
  }

  private unwritten(by: Accessor, at: number, verb: string): false {
    this.findings.report('uninitialized-read', `${this.space} byte ${at} is ${verb} before anything wrote it`, by.site)
    return false
  }

  private checkReaders(first: Reader | undefined, later: Accessor, at: number, verb: string): void {
    for (let reader = first; reader !== undefined; reader = reader.next)
      if (!precedes(reader.by, later)) this.race(reader.by, later, at, verb, 'read it')
      else if (later.proxy === 'async') this.checkReadFence(reader.by, later, at)
  }

  /** Most kernels refill what ordinary code has read without a fence; one race of this kind is known (isa.md §2.4). */
  private checkReadFence(earlier: Accessor, later: Accessor, at: number): void {
    const { proxy, warp, stamp } = earlier
    if (proxy === 'async' || earlier.isAsync || warp < 0 || this.kind === 'global') return
    if (later.clock.isReadFenced(warp, stamp)) return
    this.findings.report(
      'missing-proxy-fence',
      `${this.space} byte ${at} was read by ordinary loads and is overwritten by the asynchronous proxy without fence.proxy.async between`,
      later.site,
      earlier.site,
      'warning',
    )
  }

  private checkUpdaters(later: Accessor, at: number, verb: string): void {
    for (const updater of this.updaters.get(at) ?? [])
      if (!precedes(updater, later)) this.race(updater, later, at, verb, 'update it')
  }

  private race(earlier: Accessor, later: Accessor, at: number, verb: string, still: string): void {
    this.findings.report(
      'race',
      `${this.space} byte ${at} is ${verb} while warp ${earlier.warp} may still ${still}`,
      later.site,
      earlier.site,
    )
  }

  private checkAfter(earlier: Accessor, later: Accessor, at: number, verb: string): void {
    if (!precedes(earlier, later)) {
      this.findings.report(
        'race',
        `${this.space} byte ${at} is ${verb} while the write of warp ${earlier.warp} may still be under way`,
        later.site,
        earlier.site,
      )
      return
    }
    if (later.proxy === 'async' && earlier.proxy === 'generic' && earlier.warp >= 0)
      this.checkFence(earlier, later, at, verb)
  }

  /** Stores need a proxy fence before copies and matrix units; for asynchronous stores practice differs from the book. */
  private checkFence(earlier: Accessor, later: Accessor, at: number, verb: string): void {
    const { warp, stamp, isAsync } = earlier
    if (isAsync ? later.clock.isOperationFenced(warp, stamp) : later.clock.isFenced(warp, stamp, this.kind)) return
    const stores = isAsync ? 'asynchronous stores' : 'ordinary stores'
    this.findings.report(
      'missing-proxy-fence',
      `${this.space} byte ${at} was written by ${stores} and is ${verb} by the asynchronous proxy without fence.proxy.async after the stores`,
      later.site,
      earlier.site,
      isAsync ? 'warning' : 'error',
    )
  }
}

const sameActor = (a: Accessor, b: Accessor): boolean =>
  a.cluster === b.cluster && a.warp === b.warp && a.isAsync === b.isAsync && (!a.isAsync || a.stamp === b.stamp)

/** Whether both are tensor operations of one thread: who knows that the later is over knows it of the earlier. */
const sameStream = (a: Accessor, b: Accessor): boolean =>
  a.stream !== undefined && a.stream === b.stream && a.warp === b.warp && a.cluster === b.cluster

/** Whether everything of the earlier access is visible to the later accessor. */
function precedes(earlier: Accessor, later: Accessor): boolean {
  if (earlier.warp < 0) return true
  if (earlier.cluster !== later.cluster) return false
  if (earlier.isAsync) return sameActor(earlier, later) || later.clock.knows(earlier.warp, earlier.stamp)
  if (!later.isAsync && earlier.warp === later.warp) return true
  return later.clock.seen[earlier.warp]! >= earlier.stamp
}
