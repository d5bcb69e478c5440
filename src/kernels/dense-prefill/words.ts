/** The argument words of dense prefill's cpu kernels: the structs of args.as.ts. */

import { dtypeCode } from '../../cpu/dtype-codes.ts'
import { argStruct, type CpuAddresses } from '../../cpu/plan.ts'
import { dtypeInfo } from '../../dtypes/dtype.ts'
import type { PlanRequest } from '../../ops/op.ts'
import { packed656Offsets } from '../../tensor/cache-layout.ts'
import type { DensePrefillProblem, Scheduler } from './problem.ts'

type Request = PlanRequest<DensePrefillProblem>

const denseArgs = argStruct('DenseArgs', {
  qNope: 'ptr',
  qNopeDtype: 'u32',
  qNopeTokenStride: 'u32',
  qNopeHeadStride: 'u32',
  qRope: 'ptr',
  qRopeDtype: 'u32',
  qRopeTokenStride: 'u32',
  qRopeHeadStride: 'u32',
  qScale: 'ptr',
  tokens: 'u32',
  batch: 'u32',
  paddedRows: 'u32',
  rowOffsets: 'ptr',
  validLength: 'ptr',
  cacheLength: 'ptr',
  lengthsIncludeNew: 'u32',
  kvRowOffsets: 'ptr',
  contiguousKeys: 'u32',
  blockTable: 'ptr',
  tableStride: 'u32',
  maxPages: 'u32',
  pageSize: 'u32',
  blocks: 'u32',
  heads: 'u32',
  kvHeads: 'u32',
  nope: 'u32',
  vDim: 'u32',
  ropeScaleBlock: 'u32',
  ropeFirst: 'u32',
  scale: 'f32',
  scoreMod: 'u32',
  cap: 'f32',
  maskSteps: 'u32',
  biases: 'u32',
  scoreUnit: 'f32',
  sink: 'ptr',
  out: 'ptr',
  outDtype: 'u32',
  outTokenStride: 'u32',
  outHeadStride: 'u32',
  lse: 'ptr',
  lseTokenStride: 'u32',
  order: 'u32',
  lanes: 'u32',
  maxBlocks: 'u32',
  work: 'ptr',
  splits: 'u32',
  firstPair: 'u32',
  partial: 'ptr',
})

const denseRows = argStruct('DenseRows', {
  base: 'ptr',
  dtype: 'u32',
  blockBytes: 'u32',
  rowBytes: 'u32',
  headBytes: 'u32',
})

const denseMaskStep = argStruct('DenseMaskStep', {
  kind: 'u32',
  window: 'u32',
  tensor: 'ptr',
  dtype: 'u32',
  batchStride: 'u32',
  headStride: 'u32',
  rowStride: 'u32',
  rows: 'u32',
  columns: 'u32',
})

/** As mask.as.ts numbers them. */
const maskKinds: readonly string[] = [
  'none',
  'causal',
  'slidingWindow',
  'slidingWindowBoth',
  'chunked',
  'chunkedCausal',
  'causalPadding',
  'materialized',
  'and',
  'or',
]
const scoreMods: readonly string[] = ['identity', 'alibi', 'softcap']
const orders: Readonly<Record<Scheduler, number>> = { transient: 0, persistent: 1, queued: 2 }

/** What the planner decides for one launch. */
export interface DenseLaunch {
  /** Lanes of a block: query heads of one kv head at consecutive positions. */
  readonly lanes: number
  /** Most blocks that the schedule can cut. */
  readonly maxBlocks: number
  /** Bytes of the schedule, in front of the partial results. */
  readonly workBytes: number
}

/** The words of one stage, whose first item is the pair `firstPair`. */
export const denseWords = (request: Request, at: CpuAddresses, launch: DenseLaunch, firstPair: number): Uint32Array =>
  Uint32Array.from([
    ...argWords(request, at, launch, firstPair),
    ...rowsWords(request, at),
    ...slopeWords(request.problem),
    ...maskWords(request, at),
  ])

function argWords(
  request: Request,
  at: CpuAddresses,
  { lanes, maxBlocks, workBytes }: DenseLaunch,
  firstPair: number,
): Uint32Array {
  const { problem, outputs } = request
  return denseArgs.pack({
    ...queryFields(request, at),
    ...lengthFields(request, at),
    ...scoreFields(problem),
    heads: problem.heads,
    kvHeads: problem.kvHeads,
    nope: problem.nope,
    vDim: problem.vDim,
    ropeScaleBlock: problem.rope.scaleBlock,
    ropeFirst: problem.rope.first,
    sink: at.input('sink'),
    out: at.output('out'),
    outDtype: dtypeCode(problem.outDtype),
    outTokenStride: outputs.out!.strides[0]!,
    outHeadStride: outputs.out!.strides[1]!,
    lse: at.output('lse'),
    lseTokenStride: outputs.lse!.strides[0]!,
    order: orders[problem.scheduler],
    lanes,
    maxBlocks,
    work: at.shared,
    splits: problem.splits,
    firstPair,
    partial: at.shared + workBytes,
  })
}

function queryFields({ problem, inputs }: Request, at: CpuAddresses) {
  const joined = inputs.q !== undefined
  const nope = inputs[joined ? 'q' : 'qNope']!
  const rope = inputs[joined ? 'q' : 'qRope']!
  return {
    qNope: at.input(joined ? 'q' : 'qNope'),
    qNopeDtype: dtypeCode(nope.dtype),
    qNopeTokenStride: nope.strides[0]!,
    qNopeHeadStride: nope.strides[1]!,
    qRope: joined ? at.input('q') + problem.nope * dtypeInfo[nope.dtype].bytes : at.input('qRope'),
    qRopeDtype: dtypeCode(rope.dtype),
    qRopeTokenStride: rope.strides[0]!,
    qRopeHeadStride: rope.strides[1]!,
    qScale: at.input('qScale'),
  }
}

function lengthFields({ problem, inputs }: Request, at: CpuAddresses) {
  const table = inputs['keys.blockTable']
  return {
    tokens: problem.tokens,
    batch: problem.batch,
    paddedRows: problem.paddedRows,
    rowOffsets: at.input('rowOffsets'),
    validLength: at.input('validLength'),
    cacheLength: at.input('keys.cacheLength'),
    lengthsIncludeNew: problem.lengthsIncludeNew ? 1 : 0,
    kvRowOffsets: at.input('keys.kvRowOffsets'),
    contiguousKeys: problem.keys,
    blockTable: at.input('keys.blockTable'),
    tableStride: table?.strides[0] ?? 0,
    maxPages: table?.shape[1] ?? 0,
    pageSize: problem.pages?.pageSize ?? 1,
    blocks: problem.pages?.blocks ?? 0,
  }
}

function scoreFields({ scale, scoreMod, mask }: DensePrefillProblem) {
  const biases = mask.filter(step => step.kind === 'materialized').length
  return {
    scale,
    scoreMod: scoreMods.indexOf(scoreMod.kind),
    cap: scoreMod.cap,
    maskSteps: mask.length,
    biases,
    scoreUnit: biases === 0 ? 1 : 2 ** Math.ceil(Math.log2(biases + 1)),
  }
}

/** Axis of the heads in each key tensor, counted from the first axis after its rows; -1: one row for all heads. */
const headAxes: Readonly<Record<string, number>> = {
  'keys.nope': 0,
  'keys.v': 0,
  'keys.rope': -1,
  'keys.ropeScales': -1,
  'keys.scale': -1,
}

function rowsWords(request: Request, at: CpuAddresses): number[] {
  const { problem, inputs } = request
  return Object.entries(headAxes).flatMap(([name, headAxis]) => {
    const rows = inputs[name]
    const isRope = name === 'keys.rope'
    if (rows === undefined) return Object.keys(denseRows.fields).map(() => 0)
    const { bytes } = dtypeInfo[rows.dtype]
    const layer = problem.layers[name]
    const paged = layer !== undefined
    const rowAxis = paged ? 2 : 0
    const packed = isRope && problem.rope.packed
    const column = packed ? packed656Offsets.rope : isRope ? problem.rope.first * bytes : 0
    const words = denseRows.pack({
      base: at.input(name) + column + (paged ? layer * rows.strides[1]! * bytes : 0),
      dtype: packed ? dtypeCode('bf16') : dtypeCode(rows.dtype),
      blockBytes: paged ? rows.strides[0]! * bytes : 0,
      rowBytes: rows.strides[rowAxis]! * bytes,
      headBytes: headAxis < 0 ? 0 : rows.strides[rowAxis + 1]! * bytes,
    })
    return [...words]
  })
}

const slopeWords = ({ scoreMod }: DensePrefillProblem): Uint32Array =>
  new Uint32Array(Float32Array.from(scoreMod.slopes).buffer)

function maskWords({ problem, inputs }: Request, at: CpuAddresses): number[] {
  return problem.mask.flatMap(({ kind, window }, i) => {
    const name = `mask.${i}`
    const values = inputs[name]
    const bias = kind === 'materialized' ? values : undefined
    const rank = bias?.shape.length ?? 0
    const words = denseMaskStep.pack({
      kind: maskKinds.indexOf(kind),
      window,
      tensor: at.input(name),
      dtype: bias === undefined ? 0 : dtypeCode(bias.dtype),
      batchStride: bias?.strides[0] ?? 0,
      headStride: rank === 4 ? bias!.strides[1]! : 0,
      rowStride: bias?.strides[rank - 2] ?? 0,
      rows: bias?.shape[rank - 2] ?? 0,
      columns: bias?.shape[rank - 1] ?? 0,
    })
    return [...words]
  })
}
