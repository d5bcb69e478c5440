/**
 * How long a launch takes at least, from what the simulator counted and the rates of the card: each unit's cycles, and
 * the unit that takes the most. Units work side by side, so the longest one bounds the time; waiting between them is
 * not in it.
 */

import type { Counters } from './counters.ts'

/** Rates of a card (isa.md §10). Costs of records are in cycles of one multiprocessor. */
export interface Card {
  readonly name: string
  readonly multiprocessors: number
  readonly clockHz: number
  /** Bytes a second of the device's memory and of the second-level cache, as measured. */
  readonly memoryBytesPerSecond: number
  readonly cacheBytesPerSecond: number
  /** Bytes of shared memory and warp instructions, a cycle and multiprocessor. */
  readonly sharedBytesPerCycle: number
  readonly issuesPerCycle: number
}

export const h200: Card = {
  name: 'H200',
  multiprocessors: 132,
  clockHz: 1.83e9,
  memoryBytesPerSecond: 4.2e12,
  cacheBytesPerSecond: 9e12,
  sharedBytesPerCycle: 128,
  issuesPerCycle: 4,
}

/** What may bound a launch. */
export type Bound = 'tensor' | 'fma' | 'alu' | 'mufu' | 'conversion' | 'issue' | 'shared' | 'cache' | 'memory'

export interface Estimate {
  readonly card: string
  /** Cycles from the launch's start to its end that each unit needs at least. */
  readonly units: Readonly<Record<Bound, number>>
  readonly bound: Bound
  readonly cycles: number
  readonly seconds: number
}

const computing = ['tensor', 'fma', 'alu', 'mufu', 'conversion'] as const

/** @param blocks of the launch: with fewer than the card has multiprocessors, the others rest */
export function estimate(counters: Counters, blocks: number, card: Card = h200): Estimate {
  const { bytes, sharedTurns, exchangeCycles, issued } = counters
  const busy = Math.max(1, Math.min(blocks, card.multiprocessors))
  const perCycle = (bytesPerSecond: number): number => bytesPerSecond / card.clockHz
  const sharedCycles = sharedTurns.taken + exchangeCycles + (bytes.matrix + bytes.copied) / card.sharedBytesPerCycle
  const units = {
    ...(Object.fromEntries(computing.map(unit => [unit, (counters.cycles.get(unit) ?? 0) / busy])) as Record<
      (typeof computing)[number],
      number
    >),
    issue: issued / card.issuesPerCycle / busy,
    shared: sharedCycles / busy,
    cache: (bytes.global + bytes.copied) / perCycle(card.cacheBytesPerSecond),
    memory: bytes.distinct / perCycle(card.memoryBytesPerSecond),
  }
  const [bound, cycles] = (Object.entries(units) as [Bound, number][]).reduce((a, b) => (b[1] > a[1] ? b : a))
  return { card: card.name, units, bound, cycles, seconds: cycles / card.clockHz }
}

/** The units from the busiest on, with their shares of the bound: for tables. */
export const formatEstimate = ({ card, units, cycles, seconds }: Estimate): string =>
  [
    `${card}: at least ${(1e6 * seconds).toFixed(1)} us`,
    ...Object.entries(units)
      .sort(([, a], [, b]) => b - a)
      .filter(([, busy]) => busy > 0)
      .map(([unit, busy]) => `${unit} ${((100 * busy) / cycles).toFixed(0)} %`),
  ].join(', ')
