/**
 * Lightning-indexer scores for any GPU: f32 arithmetic, shared memory, no instruction newer than sm_75.
 *
 *   scores[t, j] = kScale[j] · Σ_h relu(q[t,h] · k[j]) · qScale[t,h]                 lo[t] <= j < hi[t]
 *
 * A block of 128 threads takes one token and tiles of 16 keys: thread = key + 16 · headLane, 8 heads at a time.
 *
 * shared memory   K tile [16][depth + 1] f32 | Q of 8 heads [8][depth + 1] f32 | partial sums [8][16] f32
 */

import type { KernelBuilder } from '../../lang/builder.ts'
import { kernel } from '../../lang/kernel.ts'
import { type KernelLaunch, specialize } from '../../lang/launch.ts'
import type { FloatBufferDtype } from '../../lang/params.ts'
import { input, output, u32 } from '../../lang/params.ts'
import type { Target } from '../../lang/types.ts'
import type { Val } from '../../lang/value.ts'
import { poolRowOf } from '../pool-row.ts'
import type { ScoreRequest, Scoring } from './score-request.ts'
import { windowWords } from './windows.ts'

const threads = 128
const tileKeys = 16
const headLanes = threads / tileKeys
/** Key tiles that one block takes, so that its start pays. */
const tilesPerBlock = 8

interface Config {
  readonly target: Target
  readonly dtype: FloatBufferDtype
  readonly outDtype: 'f32' | 'bf16'
  readonly depth: number
  readonly heads: number
  readonly paged: boolean
  readonly scaled: boolean
  readonly fill: boolean
}

const params = ({ dtype, outDtype }: Config) => ({
  q: input(dtype, '[tokens, heads, depth]'),
  qScale: input('f32', '[tokens, heads]'),
  keys: input(dtype, '[blocks, pageSize, depth], or rows'),
  kScale: input('f32', '[blocks, pageSize], or rows'),
  blockTable: input('u32', '[sequences, maxPages]'),
  windows: input('i32', '[tokens, 4]: lo, hi, sequence, first row'),
  scores: output(outDtype, '[tokens, width]'),
  width: u32('columns'),
  qTokenStride: u32('elements'),
  qHeadStride: u32('elements'),
  qScaleStride: u32('elements'),
  keyBlockStride: u32('elements'),
  keyRowStride: u32('elements'),
  kScaleStride: u32('elements from block to block'),
  pageSize: u32('keys of a page'),
  blocks: u32('blocks of the pool'),
  maxPages: u32('columns of the block table'),
  tableStride: u32('elements'),
  scoresStride: u32('elements'),
})

const traceIndexScores = specialize((c: Config) =>
  kernel({ name: `index_scores_portable_${c.dtype}`, target: c.target, threads, params: params(c) }, (k, p) => {
    const pitch = c.depth + 1
    const keyTile = k.shared('f32', tileKeys * pitch)
    const queryTile = k.shared('f32', headLanes * pitch)
    const partial = k.shared('f32', threads)
    const thread = k.threadIdx
    const key = thread.rem(tileKeys)
    const headLane = thread.div(tileKeys)
    const token = k.blockIdx.x
    const [lo, hi, sequence, firstRow] = [0, 1, 2, 3].map(i =>
      p.windows.load(token.mul(windowWords).add(i)).to('u32'),
    ) as [U32, U32, U32, U32]
    const queryRow = k.offset(0, token, p.qTokenStride)

    for (const tile of k.range(tilesPerBlock)) {
      const first = k.blockIdx.y.mul(tilesPerBlock).add(tile).mul(tileKeys)
      const needed = first.lt(hi).and(first.add(tileKeys).gt(lo))
      const sum = k.var('f32', 0)
      k.whenUniform(needed, () => {
        for (const e of k.range(tileKeys * c.depth, { start: thread, step: threads })) {
          const [row, d] = [e.div(c.depth), e.rem(c.depth)]
          const j = first.add(row)
          const value = k.var('f32', 0)
          k.when(j.ge(lo).and(j.lt(hi)), () => {
            const place = keyPlace(k, c, p, j, sequence, firstRow)
            k.when(place.exists, () =>
              value.set(p.keys.load(k.offset(k.offset(d, place.block, p.keyBlockStride), place.row, p.keyRowStride))),
            )
          })
          keyTile.store(row.mul(pitch).add(d), value)
        }
        for (let chunk = 0; chunk < c.heads; chunk += headLanes) {
          k.barrier()
          for (const e of k.range(headLanes * c.depth, { start: thread, step: threads })) {
            const [lane, d] = [e.div(c.depth), e.rem(c.depth)]
            const head = lane.add(chunk)
            k.when(head.lt(c.heads), () =>
              queryTile.store(
                lane.mul(pitch).add(d),
                p.q.load(k.offset(k.offset(queryRow, head, p.qHeadStride), d, 1)),
              ),
            )
          }
          k.barrier()
          const head = headLane.add(chunk)
          k.when(head.lt(c.heads), () => {
            const dot = k.var('f32', 0)
            for (const d of k.range(c.depth))
              dot.set(keyTile.load(key.mul(pitch).add(d)).fma(queryTile.load(headLane.mul(pitch).add(d)), dot))
            const weight = p.qScale.load(k.offset(head, token, p.qScaleStride))
            sum.set(dot.max(0).fma(weight, sum))
          })
        }
      })
      k.barrier()
      partial.store(headLane.mul(tileKeys).add(key), sum)
      k.barrier()
      const j = first.add(key)
      k.when(headLane.eq(0).and(j.lt(p.width)), () => {
        const visible = j.ge(lo).and(j.lt(hi))
        const score = k.var('f32', Number.NEGATIVE_INFINITY)
        k.when(visible, () => {
          const place = keyPlace(k, c, p, j, sequence, firstRow)
          k.when(place.exists, () => {
            let total = partial.load(key)
            for (let lane = 1; lane < headLanes; lane++) total = total.add(partial.load(key.add(lane * tileKeys)))
            score.set(c.scaled ? total.mul(p.kScale.load(k.offset(place.row, place.block, p.kScaleStride))) : total)
          })
        })
        const at = k.offset(j, token, p.scoresStride)
        if (c.fill) p.scores.store(at, score)
        else k.when(visible, () => p.scores.store(at, score))
      })
    }
  }),
)

type U32 = Val<'u32'>
type Bound = Parameters<Parameters<typeof kernel<ReturnType<typeof params>>>[1]>[1]

/** Where key `j` of a sequence lies: a block and a row in it; `exists` is false for pages that are not there. */
function keyPlace(k: KernelBuilder, c: Config, p: Bound, j: U32, sequence: U32, firstRow: U32) {
  if (!c.paged) return { block: k.const('u32', 0), row: firstRow.add(j), exists: j.ge(0) }
  return poolRowOf(k, p, sequence, j)
}

export function scorePortable({ problem, inputs, limits, windows: at, scores }: ScoreRequest): Scoring {
  const target = limits.target as Target
  const { heads, depth, keys, windows, fill, outDtype } = problem
  const name = keys.paged ? 'keys.pool' : 'keys'
  const values = inputs[`${name}.values`]!
  const scales = inputs[`${name}.scales`]
  const table = inputs['keys.blockTable']
  const { q, qScale } = inputs
  const config: Config = {
    target,
    dtype: problem.dtype as FloatBufferDtype,
    outDtype,
    depth,
    heads,
    paged: keys.paged,
    scaled: scales !== undefined,
    fill,
  }
  const keysPerBlock = tileKeys * tilesPerBlock
  const launch: KernelLaunch = {
    kernel: traceIndexScores(config),
    grid: [windows.tokens, Math.ceil(windows.width / keysPerBlock)],
    args: {
      q,
      qScale,
      keys: keys.paged ? values.select(1, keys.layer) : values,
      kScale: scales !== undefined && keys.paged ? scales.select(1, keys.layer) : scales,
      blockTable: table,
      windows: at,
      scores: scores.rows,
      width: windows.width,
      qTokenStride: q!.strides[0]!,
      qHeadStride: q!.strides[1]!,
      qScaleStride: qScale!.strides[0]!,
      keyBlockStride: keys.paged ? values.strides[0]! : 0,
      keyRowStride: values.strides[keys.paged ? 2 : 0]!,
      kScaleStride: keys.paged ? (scales?.strides[0] ?? 0) : 0,
      pageSize: keys.pageSize,
      blocks: keys.blocks,
      maxPages: table?.shape[1] ?? 0,
      tableStride: table?.strides[0] ?? 0,
      scoresStride: scores.rowStride,
    },
  }
  return { launches: [launch], scratch: {} }
}
