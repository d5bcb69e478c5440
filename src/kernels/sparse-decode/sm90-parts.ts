/** Into how many parts the lists of a call are split on Hopper: from shapes alone, so that nothing waits for the device. */

import type { KeySourceProblem, LatentAttentionProblem } from '../latent-attention/problem.ts'
import { type CallPart, groupsOf, tokensOf } from '../sparse-prefill/sm90-call.ts'
import { tileKeys } from '../sparse-prefill/sm90-config.ts'

const maxParts = 32
/** Entries of every part where a token's own list decides: its bits then depend on nothing else. */
const ownPartEntries = 1024
/** Costs in units of the time of a tile: the start and end of an item, the merge, and 1 MB written and read again. */
const [itemCost, mergeCost, megabyteCost] = [2.5, 2.5, 0.4]

const tilesOf = ({ topk }: KeySourceProblem): number => Math.ceil(topk / tileKeys)

/** The launches of a call: every source of rows with its parts, numbered one after the other. */
export function partsOf(problem: LatentAttentionProblem, workers: number): readonly CallPart[] {
  const counts = problem.sources.map(source => partCount(problem, source, workers))
  const allParts = counts.reduce((a, b) => a + b, 0)
  return problem.sources.map((source, i) => ({
    source,
    parts: counts[i]!,
    partEntries: problem.split === 'own' ? ownPartEntries : tileKeys * Math.ceil(tilesOf(source) / counts[i]!),
    firstPart: counts.slice(0, i).reduce((a, b) => a + b, 0),
    allParts,
  }))
}

function partCount(problem: LatentAttentionProblem, source: KeySourceProblem, workers: number): number {
  const { split, heads } = problem
  const tiles = tilesOf(source)
  if (split === 'never') return 1
  if (split === 'own') return Math.ceil((tiles * tileKeys) / ownPartEntries)
  const tokens = tokensOf(problem)
  const items = tokens * groupsOf(heads)
  const cost = (parts: number): number => {
    const rounds = Math.ceil((items * parts) / workers)
    const megabytes = (tokens * heads * parts * 2048) / 1e6
    return rounds * (Math.ceil(tiles / parts) + itemCost) + (parts > 1 ? mergeCost + megabytes * megabyteCost : 0)
  }
  let best = 1
  for (let parts = 2; parts <= Math.min(maxParts, tiles); parts++) if (cost(parts) < cost(best)) best = parts
  return best
}
