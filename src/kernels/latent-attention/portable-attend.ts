/**
 * Latent attention for any GPU: f32 arithmetic, shared memory, no instruction newer than sm_75.
 *
 *   s_hj = scale · qScale_h · rowScale_j · (q_h · k_j)      p_hj = e^(s_hj - m_h)      l_h = Σ p_hj
 *   out_h = Σ p_hj rowScale_j v_j / (l_h + e^(sink_h - m_h))                           v_j = k_j[0..511]
 *
 * A block of 128 threads takes one token, up to 16 heads and one split of its keys, 32 candidates at a time; one that
 * does not count is a row of zeros with the score -inf, its memory is not read.
 */

import type { KernelBuilder } from '../../lang/builder.ts'
import { type Bound, type Kernel, kernel } from '../../lang/kernel.ts'
import { specialize } from '../../lang/launch.ts'
import { type FloatBufferDtype, f32, input, output, type Params, u32 } from '../../lang/params.ts'
import type { Target } from '../../lang/types.ts'
import type { Val } from '../../lang/value.ts'
import { AttentionTile, tileBlocks, tileColumns, tileKeys, tileThreads } from '../attention-tile.ts'
import { columnAt, type RowReader } from '../row-reader.ts'
import { candidates, RowTile, type SourceBound, type SourceConfig, sourceParams } from './portable-keys.ts'
import { type BlockToken, finish, leavePartial, nope } from './portable-output.ts'

type U32 = Val<'u32'>
type F32 = Val<'f32'>

const valueBlocks = nope / tileColumns

export interface AttendConfig {
  readonly target: Target
  readonly q: FloatBufferDtype
  readonly qScaled: boolean
  readonly out: 'f32' | 'bf16'
  readonly width: number
  readonly sink: boolean
  readonly validLength: boolean
  /** Heads of a block. */
  readonly lanes: 4 | 8 | 16
  /** Whether blocks leave partial results for a merge. */
  readonly split: boolean
  readonly sources: readonly SourceConfig[]
}

const callParams = ({ q, out }: AttendConfig) => ({
  q: input(q, '[sequences, queries, heads, width]'),
  qSequenceStride: u32('elements'),
  qQueryStride: u32('elements'),
  qHeadStride: u32('elements'),
  qScale: input('f32', '[sequences, queries, heads]'),
  qScaleSequenceStride: u32('elements'),
  qScaleQueryStride: u32('elements'),
  scale: f32('softmax scale, natural-log units'),
  sink: input('f32', '[heads]'),
  validLength: input('u32', '[sequences]: queries that count'),
  cacheLength: input('u32', '[sequences]'),
  blockTable: input('u32', '[sequences, maxPages]'),
  tableStride: u32('elements'),
  maxPages: u32('columns of the block table'),
  newKeys: u32('1: a sequence has the keys of its queries beyond cacheLength'),
  causal: u32('1: a query sees the positions up to its own'),
  out: output(out, '[sequences, queries, heads, 512]'),
  outSequenceStride: u32('elements'),
  outQueryStride: u32('elements'),
  outHeadStride: u32('elements'),
  lse: output('f32', '[sequences, queries, heads]'),
  lseSequenceStride: u32('elements'),
  lseQueryStride: u32('elements'),
  maxLogits: output('f32', '[sequences, queries, heads]'),
  maxLogitsSequenceStride: u32('elements'),
  maxLogitsQueryStride: u32('elements'),
  queries: u32('queries of a sequence'),
  heads: u32('heads'),
  groups: u32('groups of heads'),
  firstToken: u32('token of the first block'),
  splits: u32('blocks of a token and group of heads'),
  minSplitKeys: u32('least candidates of a split'),
  maxSplits: u32('most splits that a token may have, whatever splits leaves room for'),
  partial: output('f32', '[tokens, heads, splits, 512]: O'),
  states: output('f32', '[tokens, heads, splits, 2]: m and l'),
})

type Call = { readonly [K in keyof ReturnType<typeof callParams>]: Bound<ReturnType<typeof callParams>[K]> }

/** Parameter names of source `i`. */
export const sourceName = (name: string, i: number): string => `${name}${i}`

const paramsOf = (c: AttendConfig): Params => ({
  ...callParams(c),
  ...Object.fromEntries(
    c.sources.flatMap((source, i) =>
      Object.entries(sourceParams(source)).map(([name, param]) => [sourceName(name, i), param]),
    ),
  ),
})

export const traceAttend: (config: AttendConfig) => Kernel = specialize((c: AttendConfig) =>
  kernel(
    {
      name: `latent_attention_portable_${c.q}`,
      target: c.target,
      threads: tileThreads,
      residentBlocks: tileBlocks,
      params: paramsOf(c),
    },
    (k, bound) => {
      const call = bound as unknown as Call
      const sources = c.sources.map(
        (source, i) =>
          Object.fromEntries(
            Object.keys(sourceParams(source)).map(name => [name, bound[sourceName(name, i)]]),
          ) as unknown as SourceBound,
      )
      new Attend(k, c, call, sources).run()
    },
  ),
)

class Attend {
  private readonly tile: AttentionTile
  private readonly rows: RowTile
  private readonly token: BlockToken
  private readonly firstHead: U32
  private readonly split: U32
  private readonly k: KernelBuilder
  private readonly c: AttendConfig
  private readonly p: Call
  private readonly sources: readonly SourceBound[]

  constructor(k: KernelBuilder, c: AttendConfig, p: Call, sources: readonly SourceBound[]) {
    this.k = k
    this.c = c
    this.p = p
    this.sources = sources
    this.tile = new AttentionTile(k, { lanes: c.lanes, valueBlocks })
    this.rows = new RowTile(k, tileKeys)
    // Groups of heads are neighbours: they read the same rows.
    const piece = k.blockIdx.x.div(p.groups)
    const group = k.blockIdx.x.sub(piece.mul(p.groups))
    const local = piece.div(p.splits)
    this.split = piece.sub(local.mul(p.splits))
    const token = local.add(p.firstToken)
    const sequence = token.div(p.queries)
    const query = token.sub(sequence.mul(p.queries))
    const rows = c.validLength ? p.validLength.load(sequence).min(p.queries) : p.queries
    this.token = { local, sequence, query, rows }
    this.firstHead = group.mul(c.lanes)
  }

  run(): void {
    const { k, c, p, token, tile } = this
    const begun = k.var('u32', 0)
    c.sources.forEach((source, i) => {
      const bound = this.sources[i]!
      const total = k.var('u32', 0)
      k.whenUniform(token.query.lt(token.rows), () => total.set(candidates(k, source, bound, this.p, token)))
      const { first, last } = this.window(total)
      k.whenUniform(first.lt(last), () => begun.set(1))
      for (const base of k.range(last, { start: first, step: tileKeys })) this.attendTile(source, bound, base, last)
    })
    k.barrier()
    const block = { tile, token, firstHead: this.firstHead }
    if (c.split) leavePartial(k, p, block, { split: this.split, begun: begun.eq(1) })
    else finish(k, p, block, c.sink)
  }

  /** Candidates of the split: by the token's own number of them, never by how many splits the launch has. */
  private window(total: U32): { readonly first: U32; readonly last: U32 } {
    const { c, p, split, k } = this
    if (!c.split) return { first: k.const('u32', 0), last: total }
    const even = total.add(p.maxSplits).sub(1).div(p.maxSplits)
    const length = even
      .add(tileKeys - 1)
      .div(tileKeys)
      .mul(tileKeys)
      .max(p.minSplitKeys)
    const first = split.mul(length).min(total)
    return { first, last: first.add(length).min(total) }
  }

  /** scale · qScale of the thread's heads. */
  private factors(): readonly F32[] {
    const { k, c, p, token, tile } = this
    return tile.scoreLanes().map(lane => {
      if (!c.qScaled) return p.scale
      const head = this.firstHead.add(lane)
      const at = k.offset(k.offset(head, token.sequence, p.qScaleSequenceStride), token.query, p.qScaleQueryStride)
      return p.qScale.loadIf(head.lt(p.heads), at).mul(p.scale)
    })
  }

  private attendTile(c: SourceConfig, s: SourceBound, base: U32, last: U32): void {
    const { k, tile, rows, token } = this
    k.barrier()
    k.when(k.threadIdx.lt(tileKeys), () => rows.enter(c, s, this.p, token, base.add(k.threadIdx), last, k.threadIdx))
    k.barrier()
    k.whenUniform(rows.any(), () => {
      const scores = this.scores(c, s)
      const weigh = c.scales === 'row' ? { weigh: (weight: F32) => weight.mul(rows.scaleOf(tile.key)) } : {}
      tile.softmax(scores, weigh)
      for (let block = 0; block < valueBlocks; block++) {
        if (block > 0) k.barrier()
        tile.loadKeys(this.columns(c, s, k.const('u32', block * tileColumns), 'values'))
        k.barrier()
        tile.addValues(block, false)
      }
    })
  }

  /** Scores of the thread's key and heads. */
  private scores(c: SourceConfig, s: SourceBound): readonly F32[] {
    const { k, tile, rows } = this
    const dots = k.vars('f32', tile.threadLanes, 0)
    const wide = c.packed ? nope : this.c.width
    const add = (first: U32, keyFirst: U32, part: 'values' | 'rope'): void => {
      tile.loadQueries(lane => this.query(lane, first.add(tile.loadColumn)))
      tile.loadKeys(this.columns(c, s, keyFirst, part))
      k.barrier()
      tile.addDots(dots)
      k.barrier()
    }
    for (const first of k.range(wide, { step: tileColumns })) add(first, first, 'values')
    if (c.packed) add(k.const('u32', nope), k.const('u32', 0), 'rope')
    const exists = rows.exists(tile.key)
    const factors = this.factors()
    return dots.map((dot, i) => {
      const score = dot.mul(factors[i]!)
      const scaled = c.scales === 'row' ? score.mul(rows.scaleOf(tile.key)) : score
      return exists.select(scaled, Number.NEGATIVE_INFINITY)
    })
  }

  /** Readers of the 64 columns of the tile's rows from `first` on. */
  private columns(c: SourceConfig, s: SourceBound, first: U32, part: 'values' | 'rope'): (key: U32) => RowReader {
    return this.rows.reader(c, s, { first, column: first.add(this.tile.loadColumn), part })
  }

  private query(lane: U32, column: U32): RowReader {
    const { k, p, token } = this
    const head = this.firstHead.add(lane)
    const row = k.offset(k.offset(column, token.sequence, p.qSequenceStride), token.query, p.qQueryStride)
    const base = k.offset(row, head, p.qHeadStride)
    const exists = head.lt(p.heads)
    return step => p.q.loadIf(exists, columnAt(k, base, step)) as F32
  }
}
