/**
 * One math warpgroup of the Hopper indexer. Thread t holds, of S[64 keys][256 columns], two keys (rows r and r + 8) and
 * 64 columns; column = token · H' + head. The weighted sum over heads ends in the four threads of a quad, which add up
 * and split the tokens among themselves, so that each score is stored once.
 *
 *   x + |x| = 2 relu(x), exact; the factor 1/2 goes into kScale
 */

import type { KernelBuilder } from '../../lang/builder.ts'
import type { Accumulator } from '../../lang/accumulator.ts'
import type { Val } from '../../lang/value.ts'
import { poolRowOf } from '../pool-row.ts'
import { columnsFor, groupTokens, type IndexScoresSm90Config, type Sm90Params, tileKeys } from './sm90-config.ts'
import { type Stages, tilesOf, type Work, workItems } from './sm90-work.ts'
import { windowWords } from './windows.ts'

type U32 = Val<'u32'>
type F32 = Val<'f32'>

/** A token whose scores this thread stores. */
interface StoredToken {
  readonly exists: Val<'pred'>
  readonly lo: U32
  readonly hi: U32
  readonly row: Val<'offset'>
}

export function mathRole(k: KernelBuilder, c: IndexScoresSm90Config, p: Sm90Params, stages: Stages, side: 0 | 1): void {
  const { queries, keys, rings } = stages
  const queryRing = rings.queries.consumer()
  const keyRing = rings.keys[side].consumer()
  const lane = k.lane
  const leader = lane.eq(0)
  const quadLane = lane.bitAnd(3)
  const thread = k.threadIdx.bitAnd(127)
  const firstKey = thread.shr(5).mul(16).add(lane.shr(2))
  const s = k.accumulator(columnsFor(c.paddedHeads))
  for (const work of workItems(k, p)) {
    k.whenUniform(work.tiles.gt(0), () => {
      const weights = loadWeights(k, c, p, work, quadLane)
      const stored = storedTokens(k, c, p, work, quadLane)
      const query = queryRing.acquire()
      for (const i of k.range(tilesOf(work.tiles, side))) {
        const tile = work.firstTile.add(i.mul(2)).add(side)
        const slot = keyRing.acquire()
        k.warpgroup.fence()
        s.multiply({ tile: keys[side], stage: slot.index }, { tile: queries, stage: query.index })
        k.warpgroup.commit()
        const own = [0, 8].map(below => keyOf(k, c, p, work, tile.mul(tileKeys).add(firstKey).add(below)))
        k.warpgroup.wait(0)
        keyRing.release(leader)
        storeScores(k, c, p, weigh(c, s, weights), own, stored, quadLane)
      }
      queryRing.release(leader)
    })
    if (c.fill) fillOutside(k, p, work, side)
  }
}

/** Weight of each of this thread's 64 columns; 0 for heads and tokens that do not exist. */
function loadWeights(k: KernelBuilder, c: IndexScoresSm90Config, p: Sm90Params, work: Work, quadLane: U32): F32[] {
  return Array.from({ length: columnsFor(c.paddedHeads) / 4 }, (_, i) => {
    const column = 8 * (i >> 1)
    const token = Math.floor(column / c.paddedHeads)
    const head = quadLane.mul(2).add((column % c.paddedHeads) + (i & 1))
    const weight = k.var('f32', 0)
    k.when(head.lt(p.heads).and(work.tokens.gt(token)), () =>
      weight.set(p.qScale.load(k.offset(head, work.firstToken.add(token), p.qScaleStride))),
    )
    return weight
  })
}

/** Sums [token][row half] of this thread's columns, in column order. */
function weigh(c: IndexScoresSm90Config, s: Accumulator, weights: readonly F32[]): F32[] {
  const sums: F32[] = []
  for (let j = 0; j < s.length; j++) {
    const [group, half, odd] = [j >> 2, (j >> 1) & 1, j & 1]
    const sum = 2 * Math.floor((8 * group) / c.paddedHeads) + half
    const x = s.get(j)
    const doubled = x.add(x.abs())
    const weight = weights[2 * group + odd]!
    const before = sums[sum]
    sums[sum] = before === undefined ? doubled.mul(weight) : doubled.fma(weight, before)
  }
  return sums
}

interface OwnKey {
  readonly j: U32
  readonly exists: Val<'pred'>
  /** Half of the key's scale. */
  readonly scale: F32
}

/** Key `j`: whether its page exists, and half its scale. */
function keyOf(k: KernelBuilder, c: IndexScoresSm90Config, p: Sm90Params, work: Work, j: U32): OwnKey {
  const scale = k.var('f32', 0)
  const inside = j.lt(p.width)
  if (!c.paged) {
    const visible = j.lt(work.keyEnd)
    k.when(visible, () => scale.set(p.kScale.load(work.firstRow.add(j)).mul(0.5)))
    return { j, exists: inside, scale }
  }
  const { block, row, exists } = poolRowOf(k, p, work.sequence, j)
  k.when(exists, () => scale.set(p.kScale.load(k.offset(row, block, p.kScaleStride)).mul(0.5)))
  return { j, exists, scale }
}

/** Tokens of the group whose sums end in this thread. */
function storedTokens(
  k: KernelBuilder,
  c: IndexScoresSm90Config,
  p: Sm90Params,
  work: Work,
  quadLane: U32,
): StoredToken[] {
  const tokens = groupTokens(c.paddedHeads)
  const each = Math.max(1, tokens / 4)
  return Array.from({ length: each }, (_, i) => {
    const index = tokens < 4 ? quadLane.shr(1) : quadLane.mul(each).add(i)
    const exists = index.lt(work.tokens)
    const token = work.firstToken.add(index)
    const lo = k.var('u32', 0)
    const hi = k.var('u32', 0)
    k.when(exists, () => {
      lo.set(p.windows.load(token.mul(windowWords)))
      hi.set(p.windows.load(token.mul(windowWords).add(1)))
    })
    return { exists, lo, hi, row: k.offset(0, token, p.scoresStride) }
  })
}

/** Adds two halves of a list between lanes that differ in `mask`; each keeps the half its lane's bit names. */
function splitBetween(k: KernelBuilder, sums: readonly F32[], mask: 1 | 2, quadLane: U32): F32[] {
  const upper = quadLane.bitAnd(mask).ne(0)
  const half = sums.length / 2
  return Array.from({ length: half }, (_, i) => {
    const [low, high] = [sums[i]!, sums[i + half]!]
    return upper.select(high, low).add(k.shuffleXor(upper.select(low, high), mask))
  })
}

function storeScores(
  k: KernelBuilder,
  c: IndexScoresSm90Config,
  p: Sm90Params,
  sums: readonly F32[],
  own: readonly OwnKey[],
  stored: readonly StoredToken[],
  quadLane: U32,
): void {
  const totals = splitBetween(k, splitBetween(k, sums, 2, quadLane), 1, quadLane)
  totals.forEach((total, i) => {
    const { exists, lo, hi, row } = stored[i >> 1]!
    const odd = quadLane.bitAnd(1).ne(0)
    const pick = <T extends 'u32' | 'f32'>(a: Val<T>, b: Val<T>): Val<T> =>
      totals.length === 1 ? odd.select(b, a as never) : [a, b][i & 1]!
    const j = pick(own[0]!.j, own[1]!.j)
    const real = totals.length === 1 ? odd.and(own[1]!.exists).or(odd.not().and(own[0]!.exists)) : own[i & 1]!.exists
    const score = total.mul(pick(own[0]!.scale, own[1]!.scale))
    const visible = j.ge(lo).and(j.lt(hi))
    const value = visible.and(real).select(score, Number.NEGATIVE_INFINITY)
    const stores = c.fill ? exists.and(j.lt(p.width)) : exists.and(visible)
    k.when(stores, () => p.scores.store(k.offset(row, j, 1), value))
  })
}

/** -inf in the part of the chunk that no tile of the group covers; the two warpgroups take every other token. */
function fillOutside(k: KernelBuilder, p: Sm90Params, work: Work, side: 0 | 1): void {
  const thread = k.threadIdx.bitAnd(127)
  const covered = work.tiles.gt(0)
  const from = covered.select(work.firstTile.mul(tileKeys), work.chunkEnd).min(work.chunkEnd)
  const to = covered.select(work.firstTile.add(work.tiles).mul(tileKeys), work.chunkEnd).min(work.chunkEnd)
  for (const index of k.range(work.tokens, { start: side, step: 2 })) {
    const row = k.offset(0, work.firstToken.add(index), p.scoresStride)
    for (const j of k.range(from, { start: work.chunkStart.add(thread), step: 128 }))
      p.scores.store(k.offset(row, j, 1), Number.NEGATIVE_INFINITY)
    for (const j of k.range(work.chunkEnd, { start: to.add(thread), step: 128 }))
      p.scores.store(k.offset(row, j, 1), Number.NEGATIVE_INFINITY)
  }
}
