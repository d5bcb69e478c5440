/**
 * Dense attention with separate keys per head (non-absorbed MLA prefill) for any GPU: f32 arithmetic, shared memory, no
 * instruction newer than sm_75.
 *
 *   s_tj = mod(scale · qScale_t · kScale_j · (qNope_t · kNope_j + qRope_t · kRope_j)) + bias_tj      p_tj = e^(s_tj - m_t)
 *   out_t = Σ p_tj v_j / (Σ p_tj + e^(sink - m_t))      lse_t = m_t + ln Σ p_tj      j: keys that t sees
 *
 * A block of 128 threads takes up to 16 lanes of one kv head: its query heads at consecutive tokens. Tokens of several
 * sequences are taken one sequence after the other, its keys in tiles of 32 from key 0 on, so a row's bits do not depend
 * on its block. A lane that does not see a key of its tile is left out of P V there: 0 · NaN never appears.
 */

import type { KernelBuilder } from '../../lang/builder.ts'
import { type Bound, type Kernel, kernel } from '../../lang/kernel.ts'
import { specialize } from '../../lang/launch.ts'
import { type FloatBufferDtype, f32, input, output, u32 } from '../../lang/params.ts'
import type { Target } from '../../lang/types.ts'
import type { Val } from '../../lang/value.ts'
import { AttentionTile, tileBlocks, tileColumns, tileKeys, tileThreads } from '../attention-tile.ts'
import { type KeysConfig, KeyTile, keysParams, type SequenceKeys } from './portable-keys.ts'
import { hasKey, Lanes, tileOf } from './portable-lanes.ts'
import { type MaskStepConfig, maskParams, PortableMask } from './portable-mask.ts'
import { finishLanes, leaveLanes, sliceColumns } from './portable-output.ts'
import { type ScoreConfig, Scorer } from './portable-score.ts'

type U32 = Val<'u32'>
type F32 = Val<'f32'>
type Pred = Val<'pred'>

export interface DenseConfig extends ScoreConfig {
  readonly target: Target
  readonly qNope: FloatBufferDtype
  readonly qRope: FloatBufferDtype
  readonly keys: KeysConfig
  readonly out: 'f32' | 'bf16'
  readonly sink: boolean
  /** Lanes of a block. */
  readonly lanes: 4 | 8 | 16
  /** Blocks of 64 columns of a slice of V. */
  readonly valueBlocks: number
  readonly mask: readonly MaskStepConfig[]
  /** Scores are held in units of this power of two, so that sums of biases stay finite. */
  readonly unit: number
  /** Whether blocks leave partial results for a merge. */
  readonly split: boolean
}

const callParams = ({ qNope, qRope, out }: DenseConfig) => ({
  qNope: input(qNope, '[tokens, heads, nope]'),
  qNopeTokenStride: u32('elements'),
  qNopeHeadStride: u32('elements'),
  qRope: input(qRope, '[tokens, heads, 64]'),
  qRopeTokenStride: u32('elements'),
  qRopeHeadStride: u32('elements'),
  qScale: input('f32', '[tokens]'),
  spans: input('u32', '[tokens, 5]'),
  scale: f32('softmax scale, natural-log units'),
  cap: f32('cap of softcap'),
  slopes: input('f32', '[heads]: slopes of alibi'),
  sink: input('f32', '[heads]'),
  nope: u32('columns of nope'),
  vDim: u32('columns of v'),
  slices: u32('slices of v'),
  ropeFirst: u32('column of a cached row where rope starts'),
  ropeScaleBlock: u32('columns of a cached row under one scale'),
  blockTable: input('u32', '[batch, maxPages]'),
  tableStride: u32('elements'),
  maxPages: u32('columns of the block table'),
  pageSize: u32('keys of a page'),
  blocks: u32('blocks of the pools'),
  out: output(out, '[tokens, heads, vDim]'),
  outTokenStride: u32('elements'),
  outHeadStride: u32('elements'),
  lse: output('f32', '[tokens, heads]'),
  lseTokenStride: u32('elements'),
  heads: u32('query heads'),
  group: u32('query heads of a kv head'),
  firstToken: u32('first token of the launch'),
  tokens: u32('tokens of the launch'),
  lastBlock: u32('last block of lanes'),
  reversed: u32('1: the last block of lanes first'),
  splits: u32('splits of a sequence of keys'),
  partial: output('f32', '[tokens, heads, splits, vDim]: O'),
  states: output('f32', '[tokens, heads, splits, 2]: m and l'),
})

type Call = { readonly [K in keyof ReturnType<typeof callParams>]: Bound<ReturnType<typeof callParams>[K]> }

export const traceDense: (config: DenseConfig) => Kernel = specialize((c: DenseConfig) =>
  kernel(
    {
      name: `dense_prefill_portable_${c.qNope}`,
      target: c.target,
      threads: tileThreads,
      // Masks of several leaves take registers beside those of a wide V.
      residentBlocks: c.mask.length > 1 || c.valueBlocks > 4 ? tileBlocks - 1 : tileBlocks,
      params: { ...callParams(c), ...keysParams(c.keys), ...maskParams(c.mask) },
    },
    (k, bound) => new Attend(k, c, bound as unknown as Call, bound).run(),
  ),
)

class Attend {
  private readonly k: KernelBuilder
  private readonly c: DenseConfig
  private readonly p: Call
  private readonly tile: AttentionTile
  private readonly keys: KeyTile
  private readonly mask: PortableMask
  private readonly lanes: Lanes
  private readonly scorer: Scorer
  private readonly split: U32
  private readonly slice: U32

  constructor(k: KernelBuilder, c: DenseConfig, p: Call, bound: Readonly<Record<string, unknown>>) {
    const { lanes, unit } = c
    this.k = k
    this.c = c
    this.p = p
    const block = k.blockIdx.x.div(p.splits)
    this.split = k.blockIdx.x.sub(block.mul(p.splits))
    const first = p.reversed.ne(0).select(p.lastBlock.sub(block), block).mul(lanes)
    const kvHead = k.blockIdx.y.div(p.slices)
    this.slice = k.blockIdx.y.sub(kvHead.mul(p.slices))
    this.tile = new AttentionTile(k, { lanes, valueBlocks: c.valueBlocks, unit })
    this.keys = new KeyTile(k, c.keys, bound, { pool: p, kvHead })
    this.mask = new PortableMask(k, c.mask, bound)
    this.lanes = new Lanes(k, lanes, p, { first, kvHead }, this.mask)
    this.scorer = new Scorer(k, c, p, { tile: this.tile, keys: this.keys, lanes: this.lanes })
  }

  run(): void {
    const { k, p, c, lanes, tile, slice } = this
    lanes.enter()
    lanes.eachSequence(s => this.attendSequence(s))
    k.barrier()
    if (c.split) leaveLanes(k, p, { tile, lanes, slice }, this.split)
    else finishLanes(k, p, { tile, lanes, slice }, c.sink, c.unit)
  }

  /** The keys of one sequence that its lanes may see, or those of them that belong to the split. */
  private attendSequence(s: SequenceKeys): void {
    const { k, p } = this
    const { first, end } = this.lanes.hull(s)
    const tiles = s.keyEnd.add(tileKeys - 1).div(tileKeys)
    const perSplit = tiles.add(p.splits).sub(1).div(p.splits).mul(tileKeys)
    const from = this.split.mul(perSplit)
    const start = tileOf(first).max(from)
    for (const base of k.range(end.min(from.add(perSplit)), { start, step: tileKeys })) this.attendTile(s, base)
  }

  private attendTile(s: SequenceKeys, base: U32): void {
    const { k, keys, lanes } = this
    k.barrier()
    keys.enter(s, base)
    lanes.look(s, base)
    k.barrier()
    const possible = lanes.seenByAny()
    k.whenUniform(possible.ne(0), () => {
      if (this.mask.biases === 0) {
        this.addTile(s, base, possible, [])
        return
      }
      const biases = this.readBiases(s, base)
      const seen = lanes.seenByAny()
      k.whenUniform(seen.ne(0), () => this.addTile(s, base, seen, biases))
    })
  }

  /** Biases of the thread's key and lanes, summed; the lanes no longer see the keys that they hide. */
  private readBiases(s: SequenceKeys, base: U32): readonly F32[] {
    const { k, c, tile, lanes } = this
    const pairs = tile.scoreLanes().map(lane => {
      const sees = lanes.seenBy(lane).ne(0)
      const query = { ...lanes.queryOf(lane, s), keyEnd: sees.select(s.keyEnd, 0) }
      return this.mask.pair(query, lanes.at(lane).head, base.add(tile.key), c.unit)
    })
    tile.shareConditions(pairs.map(({ visible }) => visible))
    k.barrier()
    lanes.restrict(lane => tile.conditionsOf(lane))
    k.barrier()
    return pairs.map(({ bias }) => bias)
  }

  /** One tile, of whose keys some lane sees those of `seen`. */
  private addTile(s: SequenceKeys, base: U32, seen: U32, biases: readonly F32[]): void {
    const { c, tile, keys, lanes } = this
    const isRead = (index: U32): Pred => keys.exists(index)?.and(hasKey(seen, index)) ?? hasKey(seen, index)
    const found = this.scorer.scores(s, base, isRead)
    const exists = keys.exists(tile.key)
    const visible = tile.scoreLanes().map(lane => {
      const sees = hasKey(lanes.seenBy(lane), tile.key)
      return exists?.and(sees) ?? sees
    })
    const scores = found.map((score, i) => {
      const biased = biases.length === 0 ? score : score.fma(1 / c.unit, biases[i]!)
      return visible[i]!.select(biased, Number.NEGATIVE_INFINITY)
    })
    const harmless = lanes.allHarmless()
    const full = keys.allExist()?.and(harmless) ?? harmless
    tile.softmax(scores, { hidden: visible.map(sees => sees.not()) })
    this.addValues(s, base, isRead, full)
  }

  private addValues(s: SequenceKeys, base: U32, isRead: (index: U32) => Pred, full: Pred): void {
    const { k, c, p, tile, keys } = this
    const firstColumn = this.slice.mul(sliceColumns).add(tile.loadColumn)
    for (let block = 0; block < c.valueBlocks; block++) {
      if (block > 0) k.barrier()
      const column = firstColumn.add(block * tileColumns)
      const open = keys.reader('v', s, base, column)!
      tile.loadKeys(index => {
        const [read, exists] = [open(index), isRead(index)]
        return step => read(exists.and(column.add(step).lt(p.vDim)), step)
      })
      k.barrier()
      k.whenUniform(
        full,
        () => tile.addValues(block, false),
        () => tile.addValues(block, true),
      )
    }
  }
}
