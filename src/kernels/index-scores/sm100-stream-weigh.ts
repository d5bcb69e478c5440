/**
 * The weighing warps of the key-streaming Blackwell indexer: thread t has key t of a tile, its 128 scores come in eight
 * loads of 16 columns, and their weights stay in registers, two to a pair.
 *
 *   x + |x| = 2 relu(x), exact; the factor 1/2 goes into kScale
 */

import type { KernelBuilder } from '../../lang/builder.ts'
import { fmaPairs, mulPairs, packPair, unpackPair } from '../../lang/pairs.ts'
import type { TensorMemory } from '../../lang/tensor-memory.ts'
import type { Val, Var } from '../../lang/value.ts'
import { type E4m3Config } from './e4m3-config.ts'
import { columns, streamedKeys, tileTokens } from './sm100-config.ts'
import { type KeyPlace, type OwnKey, placeOfKey, scaleAt } from './sm100-keys.ts'
import { accumulatorAt, type StreamParams, type StreamShared, type StreamWork } from './sm100-stream-work.ts'
import { windowWords } from './windows.ts'

type U32 = Val<'u32'>
type F32 = Val<'f32'>

/** Columns of a load. */
const chunk = 16

/** Weights and windows of the group's tokens into shared memory; a barrier follows. */
export function storeTokens(
  k: KernelBuilder,
  c: E4m3Config,
  p: StreamParams,
  shared: StreamShared,
  { firstToken, tokens }: StreamWork,
): void {
  const index = k.threadIdx.shr(Math.log2(c.paddedHeads))
  const head = k.threadIdx.bitAnd(c.paddedHeads - 1)
  k.when(k.threadIdx.lt(columns), () => {
    const real = head.lt(p.heads).and(index.lt(tokens))
    shared.weights.store(k.threadIdx, p.qScale.loadIf(real, k.offset(head, firstToken.add(index), p.qScaleStride)))
  })
  k.when(k.threadIdx.lt(tileTokens(c.paddedHeads)), () => {
    const exists = k.threadIdx.lt(tokens)
    const at = firstToken.add(k.threadIdx).mul(windowWords)
    for (const i of [0, 1]) shared.windows.store(k.threadIdx.mul(2).add(i), p.windows.loadIf(exists, at.add(i)))
  })
}

export function weighRole(
  k: KernelBuilder,
  c: E4m3Config,
  p: StreamParams,
  shared: StreamShared,
  memory: TensorMemory,
  work: StreamWork,
): void {
  const ring = shared.rings.scores.consumer()
  const weights = Array.from({ length: columns / 4 }, (_, i) => shared.weights.load4(4 * i)).flatMap(
    ([w0, w1, w2, w3]) => [packPair(w0!, w1!), packPair(w2!, w3!)],
  )
  const ahead = new KeyAhead(k, c, p, work)
  for (const tile of k.range(work.tiles)) {
    const { index } = ring.acquire()
    memory.afterSync()
    const own = ahead.take(tile)
    const scores = accumulatorAt(memory, index)
    let values = scores.load('32x32b', chunk)
    memory.waitLoads()
    const sums = new TokenSums(c.paddedHeads, weights)
    for (let column = 0; column < columns; column += chunk) {
      const next = column + chunk
      const following = next < columns ? scores.load('32x32b', chunk, { column: next }) : undefined
      if (following === undefined) {
        memory.beforeSync()
        ring.release()
      }
      for (const { token, total } of sums.add(column, values)) storeScore(k, c, p, shared, work, own, token, total)
      if (following !== undefined) {
        k.warpBarrier()
        memory.waitLoads()
        values = following
      }
    }
  }
}

/** Weighted sums of a key, token after token. */
class TokenSums {
  private readonly paddedHeads: number
  private readonly weights: readonly Val<'f32x2'>[]
  private readonly partial: (Val<'f32x2'> | undefined)[]

  constructor(paddedHeads: number, weights: readonly Val<'f32x2'>[]) {
    this.paddedHeads = paddedHeads
    this.weights = weights
    // Several sums side by side hide the latency of an addition.
    this.partial = new Array<undefined>(Math.min(4, paddedHeads / 4)).fill(undefined)
  }

  /** Columns from `column` on; the sums, twice too large, of the tokens that end in them. */
  *add(column: number, scores: readonly F32[]): Generator<{ readonly token: number; readonly total: F32 }> {
    const { partial, weights, paddedHeads } = this
    for (let i = 0; i < scores.length; i += 2) {
      const [x, y] = [scores[i]!, scores[i + 1]!]
      const doubled = packPair(x.add(x.abs()), y.add(y.abs()))
      const pair = (column + i) / 2
      const place = pair % partial.length
      const before = partial[place]
      partial[place] =
        before === undefined ? mulPairs(doubled, weights[pair]!) : fmaPairs(doubled, weights[pair]!, before)
      const end = column + i + 2
      if (end % paddedHeads === 0) yield { token: end / paddedHeads - 1, total: this.finish() }
    }
  }

  private finish(): F32 {
    const halves = this.partial.map(pair => {
      const [low, high] = unpackPair(pair!)
      return low.add(high)
    })
    this.partial.fill(undefined)
    return halves.reduce((a, b) => a.add(b))
  }
}

/** This thread's key: its place is looked up two tiles ahead, its scale loaded one tile ahead. */
class KeyAhead {
  private readonly find: (tile: U32) => KeyPlace
  private readonly load: () => Omit<OwnKey, 'j'>
  private readonly firstKey: U32
  /** Of the tile after the next. */
  private readonly block: Var<'u32'>
  private readonly row: Var<'u32'>
  /** Of the next tile. */
  private readonly scale: Var<'f32'>
  private readonly found: Var<'u32'>

  constructor(k: KernelBuilder, c: E4m3Config, p: StreamParams, work: StreamWork) {
    this.firstKey = work.firstTile.mul(streamedKeys).add(k.threadIdx)
    this.find = tile => placeOfKey(k, c, p, work, this.keyOf(tile))
    this.load = () => scaleAt(k, c, p, { block: this.block, row: this.row })
    this.block = k.var('u32', 0xffff_ffff)
    this.row = k.var('u32', 0)
    this.scale = k.var('f32', 0)
    this.found = k.var('u32', 0)
    this.advance(k.const('u32', 0))
    this.advance(k.const('u32', 1))
  }

  take(tile: U32): OwnKey {
    const own = { j: this.keyOf(tile), exists: this.found.ne(0), scale: this.scale.mul(0.5) }
    this.advance(tile.add(2))
    return own
  }

  /** Loads the scale of the tile before `tile`, and looks up the key of `tile`. */
  private advance(tile: U32): void {
    const { exists, scale } = this.load()
    this.scale.set(scale)
    this.found.set(exists.select(tile.mul(0).add(1), 0))
    const { block, row } = this.find(tile)
    this.block.set(block)
    this.row.set(row)
  }

  private keyOf(tile: U32): U32 {
    return this.firstKey.add(tile.mul(streamedKeys))
  }
}

function storeScore(
  k: KernelBuilder,
  c: E4m3Config,
  p: StreamParams,
  shared: StreamShared,
  { firstToken, tokens }: StreamWork,
  { j, exists, scale }: OwnKey,
  token: number,
  total: F32,
): void {
  const [lo, hi] = [0, 1].map(i => shared.windows.load(2 * token + i)) as [U32, U32]
  const visible = j.ge(lo).and(j.lt(hi))
  const value = visible.and(exists).select(total.mul(scale), Number.NEGATIVE_INFINITY)
  const stores = c.fill ? tokens.gt(token).and(j.lt(p.width)) : visible
  k.when(stores, () => p.scores.store(k.offset(j, firstToken.add(token), p.scoresStride), value))
}
