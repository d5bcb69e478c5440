/**
 * Linear layers of few tokens, Hopper, bf16 operands and f32 sums: W passes by once, at the speed of memory.
 *
 *   out[t, h, o] = Σ_i x[t, h, i] W[h, o, i]
 *
 * A cluster takes 128 outputs of one head for all of up to T tokens; its blocks share the columns i out, in stages of 64:
 *
 *   S[64, T] += W[64, 64] · X[T, 64]ᵀ                   four multiplies of m64nTk16, each warpgroup its 64 outputs
 *
 * Then every block adds a part of the outputs over the blocks, in their order.
 *
 * warps 0..3 and 4..7 multiply, 64 outputs each | warp 8 copies; it may start before the kernels ahead have ended
 *
 * shared memory   W 128 rows + X T rows of 128 bytes, 3 to 6 stages; over them, at last, the sums [T][132] f32
 */

import type { Buffer } from '../../lang/buffer.ts'
import type { KernelBuilder } from '../../lang/builder.ts'
import type { ClusterBlocks } from '../../lang/cluster.ts'
import { type Kernel, kernel } from '../../lang/kernel.ts'
import { specialize } from '../../lang/launch.ts'
import { pack, reinterpret } from '../../lang/packed.ts'
import { output, tensorMap, u32 } from '../../lang/params.ts'
import type { Pipeline, Stage } from '../../lang/pipeline.ts'
import type { SharedArray } from '../../lang/shared.ts'
import type { SmemTile } from '../../lang/smem-tile.ts'
import type { TensorMap } from '../../lang/tensor-map.ts'
import type { Val } from '../../lang/value.ts'
import { rowStrides } from '../rows/elements.ts'
import { fewOutputs, fewResident, fewStages, type LinearFewConfig, mathWarps, stageColumns } from './sm90-config.ts'

type U32 = Val<'u32'>

/** f32 between the sums of two tokens: lanes of a multiply's result touch all banks. */
const sumsPitch = fewOutputs + 4

const params = (c: LinearFewConfig) => ({
  x: tensorMap({ dtype: 'bf16', box: [stageColumns, 1, c.tokens], swizzle: 128 }, '[tokens, heads, inputs]'),
  weight: tensorMap({ dtype: 'bf16', box: [stageColumns, fewOutputs, 1], swizzle: 128 }, '[heads, outputs, inputs]'),
  out: output(
    c.aligned && c.outDtype === 'bf16' ? 'u32' : c.outDtype,
    '[tokens, heads, outputs]; bf16 outputs that are stored 16 bytes at a time are counted in pairs',
  ),
  tokens: u32('tokens'),
  outputs: u32('columns of out'),
  steps: u32('stages of 64 columns, all blocks of a cluster together'),
  outputTiles: u32('tiles of 128 outputs'),
  ...rowStrides('out'),
})

interface FewParams {
  readonly x: TensorMap
  readonly weight: TensorMap
}

interface Stages {
  /** W, then X. */
  readonly rows: SmemTile
  readonly ring: Pipeline
}

/** What a block takes of the product. */
interface Share {
  readonly head: U32
  readonly firstOutput: U32
  readonly firstStep: U32
  /** Stages. */
  readonly share: U32
}

/**
 * Brings the stages. The kernels ahead may still make x, and read what the outputs are written over: of the first stages only
 * W comes before they have ended, where it is settled.
 */
function copyRole(
  k: KernelBuilder,
  c: LinearFewConfig,
  p: FewParams,
  { rows, ring }: Stages,
  { head, firstOutput, firstStep, share }: Share,
): void {
  const column = (step: U32) => firstStep.add(step).mul(stageColumns).to('i32')
  const loadWeight = (step: U32, { index, full }: Stage): void =>
    p.weight.load(rows.address(index), [column(step), firstOutput.to('i32'), head.to('i32')], full)
  const loadX = (step: U32, { index, full }: Stage): void =>
    p.x.load(rows.address(index).add(fewOutputs * rows.rowBytes), [column(step), head.to('i32'), 0], full)
  const producer = ring.producer()
  const early = c.settled ? share.min(fewStages(c)) : k.const('u32', 0)
  if (c.settled)
    for (const step of k.range(early)) {
      loadWeight(step, producer.acquire(rows.stageBytes))
      producer.advance()
    }
  k.waitForPrevious()
  if (c.settled) {
    const late = ring.producer()
    for (const step of k.range(early)) {
      loadX(step, late.vacant())
      late.advance()
    }
  }
  for (const step of k.range(share, { start: early })) {
    const stage = producer.acquire(rows.stageBytes)
    loadWeight(step, stage)
    loadX(step, stage)
    producer.advance()
  }
}

/** One warpgroup: S[64 outputs, T tokens] of the block's columns, into the sums, token by token. */
function keepSums(
  k: KernelBuilder,
  c: LinearFewConfig,
  { rows, ring }: Stages,
  share: U32,
  side: 0 | 1,
  sums: SharedArray<'f32'>,
): void {
  const consumer = ring.consumer()
  const s = k.accumulator(c.tokens)
  const first = k.lane.eq(0)
  for (const step of k.range(share)) {
    const { index: stage } = consumer.acquire()
    k.warpgroup.fence()
    s.multiply({ tile: rows, stage, row: 64 * side }, { tile: rows, stage, row: fewOutputs }, { accumulate: step })
    k.warpgroup.commit()
    k.warpgroup.wait(0)
    consumer.release(first)
  }
  k.barrierAmong(1, 32 * mathWarps)
  const row = k.threadIdx.shr(5).mul(16).add(k.lane.shr(2))
  const token = k.lane.bitAnd(3).mul(2)
  for (let j = 0; j < s.length; j++) {
    const at = token.add(8 * (j >> 2) + (j & 1)).mul(sumsPitch)
    sums.store(at.add(row).add(8 * ((j >> 1) & 1)), s.get(j))
  }
}

export const traceLinearFew: (c: LinearFewConfig) => Kernel = specialize(c =>
  kernel(
    {
      name: `linear_sm90_few_${c.outDtype}_${c.tokens}_${c.splits}${c.settled ? '_settled' : ''}${c.aligned ? '' : '_odd'}`,
      target: 'sm_90a',
      threads: 32 * (mathWarps + 1),
      residentBlocks: fewResident,
      cluster: c.splits,
      overlaps: true,
      params: params(c),
    },
    (k, p) => {
      const stages = fewStages(c)
      const rows = k.tile({ dtype: 'bf16', rows: fewOutputs + c.tokens, columns: stageColumns, stages })
      const sums = k.shared('f32', c.tokens * sumsPitch, rows)
      const ring = k.pipeline({ stages, producers: 1, consumers: mathWarps, scope: 'block' })
      const whole = c.splits > 1 ? k.cluster : undefined
      const rank = whole?.rank ?? k.const('u32', 0)
      const tile = whole?.index ?? k.blockIdx.x
      const head = tile.div(p.outputTiles)
      const firstOutput = tile.sub(head.mul(p.outputTiles)).mul(fewOutputs)
      const firstStep = rank.mul(p.steps).div(c.splits)
      const share = rank.add(1).mul(p.steps).div(c.splits).sub(firstStep)
      k.when(k.threadIdx.eq(0), () => {
        ring.init()
        k.fenceBarrierInit()
      })
      k.barrier()
      k.launchNext()
      k.role('copy', { warps: [mathWarps, mathWarps + 1] }, () =>
        k.when(k.lane.eq(0), () => copyRole(k, c, p, { rows, ring }, { head, firstOutput, firstStep, share })),
      )
      for (const side of [0, 1] as const)
        k.role(`math_${side}`, { warps: [4 * side, 4 * side + 4] }, () =>
          keepSums(k, c, { rows, ring }, share, side, sums),
        )
      if (whole === undefined) k.barrier()
      else whole.barrier()

      const part = fewOutputs / c.splits
      const unit = outputsAtOnce(c)
      for (const i of k.range(p.tokens.mul(part / unit), { start: k.threadIdx, step: 32 * (mathWarps + 1) })) {
        const token = i.div(part / unit)
        const row = i
          .sub(token.mul(part / unit))
          .mul(unit)
          .add(rank.mul(part))
        const totals = Array.from({ length: c.splits }, (_, r) => sumsOf(whole, sums, token, row, { unit, block: r }))
        const values = totals.reduce((a, b) => a.map((value, j) => value.add(b[j]!)))
        const column = firstOutput.add(row)
        const at = column.div(c.aligned && c.outDtype === 'bf16' ? 2 : 1)
        const to = k.offset(k.offset(at, token, p.outTokenStride), head, p.outHeadStride)
        k.when(column.lt(p.outputs), () => store(p.out as Buffer<'f32' | 'bf16' | 'u32'>, c, to, values))
      }
      whole?.barrier()
    },
  ),
)

/** Outputs of a thread: 16 bytes, or one. */
const outputsAtOnce = ({ aligned, outDtype }: LinearFewConfig): 1 | 4 | 8 =>
  aligned ? (outDtype === 'bf16' ? 8 : 4) : 1

/** Sums of a block's own columns of W, for neighbouring outputs. */
function sumsOf(
  cluster: ClusterBlocks | undefined,
  sums: SharedArray<'f32'>,
  token: U32,
  row: U32,
  { unit, block }: { readonly unit: 1 | 4 | 8; readonly block: number },
): readonly Val<'f32'>[] {
  const at = token.mul(sumsPitch).add(row)
  if (cluster !== undefined) return Array.from({ length: unit }, (_, j) => cluster.load(sums, at.add(j), block))
  return unit === 1 ? [sums.load(at)] : Array.from({ length: unit / 4 }, (_, j) => sums.load4(at.add(4 * j))).flat()
}

function store(
  out: Buffer<'f32' | 'bf16' | 'u32'>,
  { aligned, outDtype }: LinearFewConfig,
  at: Val<'offset'>,
  values: readonly Val<'f32'>[],
): void {
  if (!aligned) out.store(at, values[0]!)
  else if (outDtype === 'f32') (out as Buffer<'f32'>).store4(at, values)
  else {
    const word = (j: number): U32 => reinterpret(pack('bf16x2', values[j]!, values[j + 1]!), 'u32')
    ;(out as Buffer<'u32'>).store4(at, [word(0), word(2), word(4), word(6)])
  }
}
