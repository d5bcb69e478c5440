/** The argument struct of selection.as.ts, and what the selecting planners share. */

import { argStruct, type CpuAddresses, lines } from '../../cpu/plan.ts'
import type { DeviceTable } from '../../ops/op.ts'
import type { SelectionProblem } from './problem.ts'

const selectionStruct = argStruct('Selection', {
  k: 'u32',
  byIndex: 'u32',
  indices: 'ptr',
  indexStride: 'u32',
  counts: 'ptr',
  firstToken: 'u32',
  splits: 'u32',
  splitKeys: 'u32',
  parts: 'ptr',
})

/** Candidates and digit counts of candidates.as.ts, before the entries. */
export const candidateHeadBytes: number = 24 + 4096

/** Entries that `offer` adds before it looks whether the buffer is full. */
export const offerStep = 16

/** How the keys of a token are split over items; the splits are merged exactly, so they never change a result. */
export interface Splits {
  readonly splits: number
  /** Keys of a part; the last one may have more or fewer. */
  readonly splitKeys: number
}

export const oneSplit: Splits = { splits: 1, splitKeys: 2 ** 31 - 1 }

/** Bytes of the parts of one token. */
export const partsBytes = (k: number, { splits, splitKeys }: Splits): number =>
  splits === 1 ? 0 : splits * 8 * (1 + Math.min(k, splitKeys))

/** Worker scratch of `mergeParts`. */
export const mergeBytes = (k: number): number => lines(candidateHeadBytes + 8 * k)

interface Placement extends Splits {
  readonly firstToken: number
  /** Address of the parts. */
  readonly parts: number
}

/** Words of Selection. */
export const selectionWords = (
  { k, order }: SelectionProblem,
  { indices }: DeviceTable,
  at: CpuAddresses,
  placement: Placement,
): Uint32Array =>
  selectionStruct.pack({
    k,
    byIndex: order === 'index' ? 1 : 0,
    indices: at.output('indices'),
    indexStride: indices!.strides[0]!,
    counts: at.output('counts'),
    ...placement,
  })
