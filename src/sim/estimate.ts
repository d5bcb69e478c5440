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
  /** Registers of a warp that are read, a cycle and multiprocessor, where measured. */
  readonly registerReadsPerCycle: number | undefined
  /** Bytes a second of gathers of rows by the copy engines, where it has them. */
  readonly gatherBytesPerSecond: number | undefined
}

export const h200: Card = {
  name: 'H200',
  multiprocessors: 132,
  clockHz: 1.83e9,
  memoryBytesPerSecond: 4.2e12,
  cacheBytesPerSecond: 9e12,
  sharedBytesPerCycle: 128,
  issuesPerCycle: 4,
  registerReadsPerCycle: 7.5,
  gatherBytesPerSecond: undefined,
}

/** From data sheets and public measurements, not measured here. */
export const b200: Card = {
  name: 'B200',
  multiprocessors: 148,
  clockHz: 1.85e9,
  memoryBytesPerSecond: 7.1e12,
  cacheBytesPerSecond: 15e12,
  sharedBytesPerCycle: 128,
  issuesPerCycle: 4,
  registerReadsPerCycle: undefined,
  gatherBytesPerSecond: 2e12,
}

/** What may bound a launch. */
export type Bound =
  | 'tensor'
  | 'tmem'
  | 'fma'
  | 'alu'
  | 'mufu'
  | 'conversion'
  | 'issue'
  | 'registers'
  | 'shared'
  | 'gather'
  | 'cache'
  | 'memory'

export interface Estimate {
  readonly card: string
  /** Cycles from the launch's start to its end that each unit needs at least. */
  readonly units: Readonly<Record<Bound, number>>
  readonly bound: Bound
  readonly cycles: number
  readonly seconds: number
}

const computing = ['tensor', 'tmem', 'fma', 'alu', 'mufu', 'conversion'] as const

/** @param blocks of the launch: with fewer than the card has multiprocessors, the others rest */
export function estimate(counters: Counters, blocks: number, card: Card = h200): Estimate {
  const { bytes, sharedTurns, exchangeCycles, issued, registerReads } = counters
  const busy = Math.max(1, Math.min(blocks, card.multiprocessors))
  const perCycle = (bytesPerSecond: number): number => bytesPerSecond / card.clockHz
  const sharedCycles = sharedTurns.taken + exchangeCycles + (bytes.matrix + bytes.copied) / card.sharedBytesPerCycle
  const units = {
    ...(Object.fromEntries(computing.map(unit => [unit, (counters.cycles.get(unit) ?? 0) / busy])) as Record<
      (typeof computing)[number],
      number
    >),
    issue: issued / card.issuesPerCycle / busy,
    registers: card.registerReadsPerCycle === undefined ? 0 : registerReads / card.registerReadsPerCycle / busy,
    shared: sharedCycles / busy,
    gather: card.gatherBytesPerSecond === undefined ? 0 : bytes.gathered / perCycle(card.gatherBytesPerSecond),
    cache: (bytes.global + bytes.copied) / perCycle(card.cacheBytesPerSecond),
    memory: bytes.distinct / perCycle(card.memoryBytesPerSecond),
  }
  const [bound, cycles] = (Object.entries(units) as [Bound, number][]).reduce((a, b) => (b[1] > a[1] ? b : a))
  return { card: card.name, units, bound, cycles, seconds: cycles / card.clockHz }
}

/** The share of a card that so many blocks have when all its multiprocessors are as busy as theirs. */
export function shareOf(card: Card, blocks: number): Card {
  const share = Math.min(1, blocks / card.multiprocessors)
  return {
    ...card,
    memoryBytesPerSecond: share * card.memoryBytesPerSecond,
    cacheBytesPerSecond: share * card.cacheBytesPerSecond,
    gatherBytesPerSecond: card.gatherBytesPerSecond && share * card.gatherBytesPerSecond,
  }
}

/** A part of what a unit does, and its share of it. */
export interface Part {
  readonly name: string
  readonly share: number
}

/** What takes a unit's time, the most first: instructions, or who uses shared memory; nothing for memories beyond it. */
export function partsOf(counters: Counters, unit: Bound, card: Card): Part[] {
  const { bytes, sharedTurns, exchangeCycles } = counters
  const cycles: [string, number][] =
    unit === 'shared'
      ? [
          ['accesses of threads', sharedTurns.taken],
          ['exchanges between lanes', exchangeCycles],
          ['matrix units', bytes.matrix / card.sharedBytesPerCycle],
          ['copies', bytes.copied / card.sharedBytesPerCycle],
        ]
      : unit === 'cache' || unit === 'memory' || unit === 'gather' || unit === 'registers'
        ? []
        : [...counters.cyclesByRecord(unit)]
  const all = cycles.reduce((sum, [, one]) => sum + one, 0)
  return cycles.map(([name, one]) => ({ name, share: one / all })).sort((a, b) => b.share - a.share)
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
