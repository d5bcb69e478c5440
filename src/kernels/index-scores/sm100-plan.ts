/** When and how the Blackwell indexers run, and which of the two. */

import type { KernelLaunch } from '../../lang/launch.ts'
import { fitsE4m3, scoringArgs } from './e4m3-call.ts'
import type { E4m3Config } from './e4m3-config.ts'
import { groupsBytes, groupsLaunch } from './groups.ts'
import type { IndexScoresProblem } from './problem.ts'
import type { ScoreRequest, Scoring } from './score-request.ts'
import { paddedHeadsFor, residentKeys, streamedKeys, tileTokens } from './sm100-config.ts'
import { traceIndexScoresSm100Resident } from './sm100-resident.ts'
import { traceIndexScoresSm100Stream } from './sm100-stream.ts'

/** Multiprocessors of a B200, whose grids the rules below were measured on. */
const multiprocessors = 148
/** Blocks of the streaming kernel that a multiprocessor holds. */
const residentBlocks = 2

/** What the choice of a kernel and its grid look at: metadata, which never changes a result. */
export interface ScoringShape {
  readonly paddedHeads: number
  /** Tokens of a sequence: the most where the host knows them, else the mean. */
  readonly tokens: number
  /** Columns of the scores. */
  readonly width: number
}

/**
 * Keys stay for few tokens, stream for many: from 16 tiles of tokens on for 64 heads and more, always for 32. Few tokens
 * against very many keys stream too, split by keys.
 */
export function streamsKeys({ paddedHeads, tokens, width }: ScoringShape): boolean {
  const tiles = Math.ceil(tokens / tileTokens(paddedHeads))
  const keySplit = tiles <= 4 && Math.ceil(width / streamedKeys) >= 64
  return keySplit || paddedHeads === 32 || (paddedHeads >= 64 && tiles >= 16)
}

/** Slices of each sequence's tokens, so that blocks of 64 keys fill the device: 1 where they do alone. */
export function slicesFor({ paddedHeads, tokens, width }: ScoringShape, sequences: number): number {
  const base = sequences * Math.ceil(width / residentKeys)
  if (base >= multiprocessors || base === 0) return 1
  const tiles = Math.ceil(tokens / tileTokens(paddedHeads))
  return Math.max(1, Math.min(Math.ceil((2 * multiprocessors) / base), Math.ceil(tiles / 2)))
}

/** Parts of each group's keys: about 16 tiles each, at most four waves of blocks and at least one; 1 where groups fill the device. */
export function partsFor({ paddedHeads, tokens, width }: ScoringShape, groups: number): number {
  const tiles = Math.ceil(width / streamedKeys)
  const few = Math.ceil(tokens / tileTokens(paddedHeads)) <= 4
  if (groups >= multiprocessors && !few) return 1
  const wave = Math.max(1, Math.floor((residentBlocks * multiprocessors) / groups))
  return Math.max(1, Math.min(tiles, Math.max(wave, Math.min(Math.ceil(tiles / 16), 4 * wave))))
}

/** Keys of the largest copy that no page cuts: whole swizzled groups of 8. */
const copyKeysFor = ({ keys }: IndexScoresProblem, tile: number): number =>
  keys.paged ? Math.min(tile, keys.pageSize & -keys.pageSize) : tile

/** Undefined where the portable kernel must serve: other dtypes, depths, page sizes or strides. */
export function scoreSm100(request: ScoreRequest): Scoring | undefined {
  const { problem, limits } = request
  const { keys, windows, heads } = problem
  const fits =
    limits.target === 'sm_100a' && (!keys.paged || keys.pageSize % 8 === 0) && windows.width > 0 && fitsE4m3(request)
  if (!fits) return undefined
  const { rows, batch, tokens, width } = windows
  const shape = { paddedHeads: paddedHeadsFor(heads), tokens: rows || Math.ceil(tokens / Math.max(1, batch)), width }
  return streamsKeys(shape) ? streaming(request, shape) : resident(request, shape)
}

function configFor({ problem }: ScoreRequest, { paddedHeads }: ScoringShape, tile: number): E4m3Config {
  const { keys, outDtype, fill } = problem
  return { paddedHeads, copyKeys: copyKeysFor(problem, tile), paged: keys.paged, outDtype, fill }
}

function resident(request: ScoreRequest, shape: ScoringShape): Scoring {
  const { windows } = request.problem
  const sequences = Math.max(1, windows.batch)
  const keyTiles = Math.ceil(windows.width / residentKeys)
  const slices = slicesFor(shape, sequences)
  const queryStages = (windows.rows || windows.tokens) <= tileTokens(shape.paddedHeads) ? 1 : 2
  const launch: KernelLaunch = {
    kernel: traceIndexScoresSm100Resident({ ...configFor(request, shape, residentKeys), queryStages }),
    grid: [sequences * keyTiles * slices, 1],
    args: { ...scoringArgs(request), tokens: windows.tokens, sequences, keyTiles, slices },
  }
  return { launches: [launch], scratch: {} }
}

function streaming(request: ScoreRequest, shape: ScoringShape): Scoring {
  const { problem, limits, windows: at } = request
  const { tokens, batch } = problem.windows
  const size = tileTokens(shape.paddedHeads)
  const groups = Math.ceil(tokens / size) + batch
  const parts = partsFor(shape, groups)
  const launch: KernelLaunch = {
    kernel: traceIndexScoresSm100Stream(configFor(request, shape, streamedKeys)),
    grid: [groups * parts, 1],
    args: { ...scoringArgs(request), groups: { scratch: 'groups' }, parts },
  }
  return {
    launches: [groupsLaunch(limits.target as 'sm_100a', size, tokens, at), launch],
    scratch: { groups: groupsBytes(tokens) },
  }
}
