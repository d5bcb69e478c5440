/**
 * One math warpgroup of the Hopper indexer. Thread t holds, of S[64 keys][256 columns], two keys (rows r and r + 8) and
 * 64 columns; column = token · H' + head. The weighted sum over heads ends in the four threads of a quad, which add up
 * and split the tokens among themselves, so that each score is stored once.
 *
 *   x + |x| = 2 relu(x), exact; the factor 1/2 goes into kScale
 */

import type { Accumulator } from '../../lang/accumulator.ts'
import type { KernelBuilder } from '../../lang/builder.ts'
import type { Val, Var } from '../../lang/value.ts'
import { poolRowOf } from '../pool-row.ts'
import { columnsFor, type IndexScoresSm90Config, type Sm90Params, tileKeys } from './sm90-config.ts'
import { type Stages, tilesOf, type Work, workItems } from './sm90-work.ts'
import { windowWords } from './windows.ts'

type U32 = Val<'u32'>
type F32 = Val<'f32'>

/** Rows of this thread's two keys below its first. */
const halves = [0, 8] as const

/** A token whose scores this thread stores. */
interface StoredToken {
  readonly exists: Val<'pred'>
  readonly lo: U32
  readonly hi: U32
  readonly token: U32
}

export function mathRole(
  k: KernelBuilder,
  c: IndexScoresSm90Config,
  p: Sm90Params,
  { queries, keys, rings }: Stages,
  side: 0 | 1,
): void {
  const queryRing = rings.queries.consumer()
  const keyRing = rings.keys[side].consumer()
  const leader = k.lane.eq(0)
  const quadLane = k.lane.bitAnd(3)
  const firstKey = k.threadIdx.bitAnd(127).shr(5).mul(16).add(k.lane.shr(2))
  const partColumns = columnsFor(c.paddedHeads) / 2
  const scores = [k.accumulator(partColumns), k.accumulator(partColumns)] as const
  for (const work of workItems(k, p)) {
    k.whenUniform(work.tiles.gt(0), () => {
      const weights = loadWeights(k, c, p, work, quadLane)
      const stored = [0, 1].map(part => storedTokens(k, c, p, work, quadLane, part))
      const query = queryRing.acquire()
      const multiply = (part: 0 | 1, stage: U32): void => {
        k.warpgroup.fence()
        scores[part].multiply(
          { tile: keys[side], stage },
          { tile: queries, stage: query.index, row: part * partColumns },
        )
        k.warpgroup.commit()
      }
      const finish = (part: 0 | 1, own: readonly OwnKey[]): void =>
        storeScores(k, c, p, weigh(c, scores[part], weights, part), own, stored[part]!, quadLane)
      const tiles = tilesOf(work.tiles, side)
      const keyOf = (i: U32, below: number): U32 =>
        work.firstTile.add(i.mul(2)).add(side).mul(tileKeys).add(firstKey).add(below)
      const scales = halves.map(below => new KeyScale(k, c, p, work, keyOf(k.const('u32', 0), below)))
      for (const i of k.range(tiles)) {
        const { index } = keyRing.acquire()
        multiply(0, index)
        multiply(1, index)
        const own = halves.map((below, h) => scales[h]!.take(keyOf(i, below)))
        halves.forEach((below, h) => scales[h]!.prefetch(keyOf(i.add(1), below)))
        k.warpgroup.wait(1)
        finish(0, own)
        k.warpgroup.wait(0)
        keyRing.release(leader)
        finish(1, own)
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

/**
 * Sums [token][row half] of this thread's columns of one part. Even and odd columns are summed apart, and the tokens
 * take turns: the additions of one sum are far enough from each other to hide their latency.
 */
function weigh(
  { paddedHeads }: IndexScoresSm90Config,
  scores: Accumulator,
  weights: readonly F32[],
  part: 0 | 1,
): F32[] {
  const partColumns = scores.n
  const tokens = Math.max(1, partColumns / paddedHeads)
  const groups = partColumns / 8 / tokens
  const sums = Array.from({ length: 4 * tokens }, () => undefined as F32 | undefined)
  for (let g = 0; g < groups; g++)
    for (let token = 0; token < tokens; token++)
      for (let e = 0; e < 4; e++) {
        const column = 8 * (token * groups + g)
        const x = scores.get(column / 2 + e)
        const weight = weights[(part * partColumns + column) / 4 + (e & 1)]!
        const doubled = x.add(x.abs())
        const before = sums[4 * token + e]
        sums[4 * token + e] = before === undefined ? doubled.mul(weight) : doubled.fma(weight, before)
      }
  return Array.from({ length: 2 * tokens }, (_, i) => sums[2 * i]!.add(sums[2 * i + 1]!))
}

interface OwnKey {
  readonly j: U32
  readonly exists: Val<'pred'>
  /** Half of the key's scale. */
  readonly scale: F32
}

/** The scale of one of this thread's keys, loaded a tile ahead: it takes longer than a tile's multiplies. */
class KeyScale {
  private readonly k: KernelBuilder
  private readonly c: IndexScoresSm90Config
  private readonly p: Sm90Params
  private readonly work: Work
  private readonly scale: Var<'f32'>
  private readonly missing: Var<'u32'>

  constructor(k: KernelBuilder, c: IndexScoresSm90Config, p: Sm90Params, work: Work, j: U32) {
    this.k = k
    this.c = c
    this.p = p
    this.work = work
    this.scale = k.var('f32', 0)
    this.missing = k.var('u32', 0)
    this.prefetch(j)
  }

  /** What was prefetched for key `j`. */
  take(j: U32): OwnKey {
    const scale = this.scale.mul(0.5)
    return { j, scale, exists: this.c.paged ? this.missing.eq(0) : j.lt(this.p.width) }
  }

  prefetch(j: U32): void {
    const { k, c, p, work } = this
    if (!c.paged) {
      k.when(j.lt(work.keyEnd), () => this.scale.set(p.kScale.load(work.firstRow.add(j))))
      return
    }
    this.missing.set(1)
    k.when(j.lt(work.keyEnd), () => {
      const { block, row, exists } = poolRowOf(k, p, work.sequence, j)
      k.when(exists, () => {
        this.scale.set(p.kScale.load(k.offset(row, block, p.kScaleStride)))
        this.missing.set(0)
      })
    })
  }
}

/** Tokens of one part of the group whose sums end in this thread; a quad shares them, or its pairs share one. */
function storedTokens(
  k: KernelBuilder,
  c: IndexScoresSm90Config,
  p: Sm90Params,
  work: Work,
  quadLane: U32,
  part: number,
): StoredToken[] {
  const tokens = Math.max(1, columnsFor(c.paddedHeads) / 2 / c.paddedHeads)
  const each = Math.max(1, tokens / 4)
  const within = tokens >= 4 ? quadLane.mul(each) : tokens === 2 ? quadLane.shr(1) : quadLane.mul(0)
  return Array.from({ length: each }, (_, i) => {
    const index = within.add(part * tokens + i)
    const exists = index.lt(work.tokens)
    const token = work.firstToken.add(index)
    const lo = k.var('u32', 0)
    const hi = k.var('u32', 0)
    k.when(exists, () => {
      lo.set(p.windows.load(token.mul(windowWords)))
      hi.set(p.windows.load(token.mul(windowWords).add(1)))
    })
    return { exists, lo, hi, token }
  })
}

/** Adds two halves of a list between lanes that differ in `mask`; each keeps the half its lane's bit names. */
function splitBetween(k: KernelBuilder, sums: readonly F32[], mask: 1 | 2, quadLane: U32): F32[] {
  if (sums.length === 1) return [sums[0]!.add(k.shuffleXor(sums[0]!, mask))]
  const upper = quadLane.bitAnd(mask).ne(0)
  const half = sums.length / 2
  return Array.from({ length: half }, (_, i) => {
    const [low, high] = [sums[i]!, sums[i + half]!]
    return upper.select(high, low).add(k.shuffleXor(upper.select(low, high), mask))
  })
}

/**
 * Stores the sums of one part. They are split by token first and by row half last, so with few tokens a lane's bit says
 * which of the two keys its sum belongs to.
 */
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
  const second = quadLane.bitAnd(sums.length === 2 ? 2 : 1).ne(0)
  const [a, b] = own as [OwnKey, OwnKey]
  const chosen = totals.length > 1 ? undefined : chooseKey(second, a, b)
  totals.forEach((total, i) => {
    const { exists, lo, hi, token } = stored[i >> 1]!
    const { j, exists: real, scale } = chosen ?? [a, b][i & 1]!
    const visible = j.ge(lo).and(j.lt(hi))
    const value = visible.and(real).select(total.mul(scale), Number.NEGATIVE_INFINITY)
    const wanted = c.fill ? exists.and(j.lt(p.width)) : exists.and(visible)
    const stores = sums.length === 2 ? wanted.and(quadLane.bitAnd(1).eq(0)) : wanted
    k.when(stores, () => p.scores.store(k.offset(j, token, p.scoresStride), value))
  })
}

const chooseKey = (second: Val<'pred'>, a: OwnKey, b: OwnKey): OwnKey => ({
  j: second.select(b.j, a.j),
  exists: second.and(b.exists).or(second.not().and(a.exists)),
  scale: second.select(b.scale, a.scale),
})

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
