/**
 * Linear layers of many tokens, Hopper, bf16 operands and f32 sums.
 *
 *   out[t, h, o] = Σ_i x[t, h, i] W[h, o, i]
 *
 * A pair of blocks (a cluster) takes tiles of 2 × 128 tokens × 256 outputs of one head; each brings half of the tile of W,
 * to both. The columns i pass in stages of 64:
 *
 *   S[64, 256] += X[64, 64] · W[256, 64]ᵀ                   four multiplies of m64n256k16, each warpgroup its 64 tokens
 *
 * warp 0 copies | warps 4..7 and 8..11 multiply, 64 tokens each
 *
 * shared memory   X 128 rows + W 256 rows of 128 bytes, 4 stages × 48 KB | out 2 warpgroups × 16 KB, on its way to memory
 * registers       168 at entry; copies 40, math 232: 128 accumulators
 */

import type { Buffer } from '../../lang/buffer.ts'
import type { KernelBuilder } from '../../lang/builder.ts'
import { type Kernel, kernel } from '../../lang/kernel.ts'
import { specialize } from '../../lang/launch.ts'
import { output, tensorMap, u32 } from '../../lang/params.ts'
import type { Pipeline } from '../../lang/pipeline.ts'
import type { SmemTile } from '../../lang/smem-tile.ts'
import { TensorMap } from '../../lang/tensor-map.ts'
import type { Val } from '../../lang/value.ts'
import { rowStrides } from '../rows/elements.ts'
import { type LinearManyConfig, manyStages, manyTokens, mathWarps, pairBlocks, stageColumns } from './sm90-config.ts'
import { storeRounded, storeSums } from './sm90-store.ts'

type U32 = Val<'u32'>

/** bf16 outputs leave as boxes, f32 ones element by element. */
const outParam = ({ outDtype }: LinearManyConfig) =>
  outDtype === 'bf16'
    ? { out: tensorMap({ dtype: 'bf16', box: [64, 1, 64], swizzle: 128 }, '[tokens, heads, outputs]') }
    : { out: output('f32', '[tokens, heads, outputs]') }

const params = (c: LinearManyConfig) => ({
  x: tensorMap({ dtype: 'bf16', box: [stageColumns, 1, manyTokens], swizzle: 128 }, '[tokens, heads, inputs]'),
  weight: tensorMap(
    { dtype: 'bf16', box: [stageColumns, c.outputs / pairBlocks, 1], swizzle: 128 },
    '[heads, outputs, inputs]',
  ),
  ...outParam(c),
  tokens: u32('tokens'),
  outputs: u32('columns of out'),
  steps: u32('stages of 64 columns'),
  tokenTiles: u32('tiles of 256 tokens'),
  outputTiles: u32('tiles of outputs'),
  span: u32('tiles of tokens that share the reading of W'),
  items: u32('tiles of all heads'),
  ...rowStrides('out'),
})

export interface ManyParams
  extends Readonly<
    Record<
      | 'tokens'
      | 'outputs'
      | 'steps'
      | 'tokenTiles'
      | 'outputTiles'
      | 'span'
      | 'items'
      | 'outTokenStride'
      | 'outHeadStride',
      U32
    >
  > {
  readonly x: TensorMap
  readonly weight: TensorMap
  readonly out: TensorMap | Buffer<'f32'>
}

interface Stages {
  readonly x: SmemTile
  readonly weight: SmemTile
  readonly ring: Pipeline
}

/** A tile of the output. */
interface Work {
  readonly head: U32
  /** Of this block. */
  readonly firstToken: U32
  readonly firstOutput: U32
}

/** The tiles of this pair: `span` tiles of tokens for each tile of outputs, then the next tokens. */
function* workItems(k: KernelBuilder, c: LinearManyConfig, p: ManyParams): Generator<Work, void> {
  const { cluster } = k
  const perHead = p.tokenTiles.mul(p.outputTiles)
  for (const item of k.range(p.items, { start: cluster.index, step: k.gridDim.x.div(pairBlocks) })) {
    const head = item.div(perHead)
    const inHead = item.sub(head.mul(perHead))
    const group = inHead.div(p.span.mul(p.outputTiles))
    const inGroup = inHead.sub(group.mul(p.span.mul(p.outputTiles)))
    const width = p.span.min(p.tokenTiles.sub(group.mul(p.span)))
    const outputTile = inGroup.div(width)
    const tokenTile = group.mul(p.span).add(inGroup.sub(outputTile.mul(width)))
    const firstToken = tokenTile.mul(pairBlocks).add(cluster.rank).mul(manyTokens)
    yield { head, firstToken, firstOutput: outputTile.mul(c.outputs) }
  }
}

function copyRole(k: KernelBuilder, c: LinearManyConfig, p: ManyParams, { x, weight, ring }: Stages): void {
  const producer = ring.producer()
  const half = k.cluster.rank.mul(c.outputs / pairBlocks)
  const halfByte = half.mul(2 * stageColumns)
  for (const work of workItems(k, c, p)) {
    for (const step of k.range(p.steps)) {
      const stage = producer.acquire(x.stageBytes + weight.stageBytes)
      const column = step.mul(stageColumns).to('i32')
      p.x.load(x.address(stage.index), [column, work.head.to('i32'), work.firstToken.to('i32')], stage.full)
      const row = work.firstOutput.add(half).to('i32')
      const target = weight.address(stage.index).add(halfByte)
      p.weight.load(target, [column, row, work.head.to('i32')], stage.full, { multicast: 2 ** pairBlocks - 1 })
      producer.advance()
    }
  }
}

function mathRole(
  k: KernelBuilder,
  c: LinearManyConfig,
  p: ManyParams,
  { x, weight, ring }: Stages,
  leaving: SmemTile,
  side: 0 | 1,
): void {
  const consumer = ring.consumer()
  const sums = k.accumulator(c.outputs)
  for (const { head, firstToken, firstOutput } of workItems(k, c, p)) {
    for (const step of k.range(p.steps)) {
      const stage = consumer.acquire()
      k.warpgroup.fence()
      const a = { tile: x, stage: stage.index, row: 64 * side }
      sums.multiply(a, { tile: weight, stage: stage.index }, { accumulate: step })
      k.warpgroup.commit()
      k.warpgroup.wait(1)
      k.whenUniform(step.gt(0), () => consumer.releaseAll(pairBlocks))
    }
    k.warpgroup.wait(0)
    consumer.releaseAll(pairBlocks)
    const place = { head, token: firstToken.add(64 * side), output: firstOutput }
    if (p.out instanceof TensorMap) storeRounded(k, p.out, sums, leaving, side, place)
    else storeSums(k, { ...p, out: p.out }, sums, place)
  }
  if (c.outDtype === 'bf16') k.when(k.threadIdx.bitAnd(127).eq(0), () => k.bulk.waitRead(0))
}

export const traceLinearMany: (c: LinearManyConfig) => Kernel = specialize(c =>
  kernel(
    {
      name: `linear_sm90_many_${c.outDtype}_${c.outputs}`,
      target: 'sm_90a',
      threads: 384,
      cluster: pairBlocks,
      params: params(c),
    },
    (k, p) => {
      const stages = manyStages(c)
      const x = k.tile({ dtype: 'bf16', rows: manyTokens, columns: stageColumns, stages })
      const weight = k.tile({ dtype: 'bf16', rows: c.outputs, columns: stageColumns, stages })
      const leaving = k.tile({ dtype: 'bf16', rows: 64, columns: 128, stages: 2 })
      const ring = k.pipeline({ stages, producers: 1, consumers: pairBlocks * mathWarps, scope: 'block' })
      k.when(k.threadIdx.eq(0), () => {
        ring.init()
        k.fenceBarrierInit()
      })
      k.cluster.barrier()
      const shared = { x, weight, ring }
      k.role('copy', { warps: [0, 4], registers: 40 }, () => k.when(k.threadIdx.eq(0), () => copyRole(k, c, p, shared)))
      k.role('math_low', { warps: [4, 8], registers: 232 }, () => mathRole(k, c, p, shared, leaving, 0))
      k.role('math_high', { warps: [8, 12], registers: 232 }, () => mathRole(k, c, p, shared, leaving, 1))
      k.cluster.barrier()
    },
  ),
)
