/** Planning of latent attention on the cpu device; the kernels are in cpu.as.ts. */

import { dtypeCode } from '../../cpu/dtype-codes.ts'
import { argStruct, type CpuAddresses, type CpuPlan, type CpuStage, lines } from '../../cpu/plan.ts'
import { dtypeInfo } from '../../dtypes/dtype.ts'
import type { PlanRequest } from '../../ops/op.ts'
import { tokenStrides } from '../token-strides.ts'
import type { KeySourceProblem, LatentAttentionProblem } from './problem.ts'

const nope = 512
const keysPerBlock = 64
/** A split is worth its packing of Q and its merge from this many keys on. */
const minSplitKeys = 512
const maxSplits = 16
/** From this many tokens on there is an item for every worker, of which a device has at most 64. */
const fillTokens = 64

const attendArgs = argStruct('AttendArgs', {
  q: 'ptr',
  qDtype: 'u32',
  qSequenceStride: 'u32',
  qQueryStride: 'u32',
  qHeadStride: 'u32',
  qScale: 'ptr',
  qScaleSequenceStride: 'u32',
  qScaleQueryStride: 'u32',
  heads: 'u32',
  width: 'u32',
  scale: 'f32',
  sink: 'ptr',
  out: 'ptr',
  outDtype: 'u32',
  outSequenceStride: 'u32',
  outQueryStride: 'u32',
  outHeadStride: 'u32',
  lse: 'ptr',
  lseSequenceStride: 'u32',
  lseQueryStride: 'u32',
  maxLogits: 'ptr',
  maxLogitsSequenceStride: 'u32',
  maxLogitsQueryStride: 'u32',
  queries: 'u32',
  validLength: 'ptr',
  firstToken: 'u32',
  splits: 'u32',
  minSplitKeys: 'u32',
  partial: 'ptr',
})

const keySource = argStruct('KeySource', {
  values: 'ptr',
  dtype: 'u32',
  packed: 'u32',
  blockBytes: 'u32',
  rowBytes: 'u32',
  scales: 'ptr',
  scaleBlockBytes: 'u32',
  scaleRowBytes: 'u32',
  scaleBlock: 'u32',
  pageSize: 'u32',
  slots: 'u32',
  topk: 'u32',
  indices: 'ptr',
  indexSequenceStride: 'u32',
  indexQueryStride: 'u32',
  lengths: 'ptr',
  lengthsSigned: 'u32',
  lengthSequenceStride: 'u32',
  lengthQueryStride: 'u32',
  logical: 'ptr',
  logicalSequenceStride: 'u32',
  logicalQueryStride: 'u32',
  blockTable: 'ptr',
  tableStride: 'u32',
  cacheLength: 'ptr',
  newKeys: 'u32',
  causal: 'u32',
})

/** Items per token: the most pieces that any token can have, from shapes alone. */
function splitsFor({ split, sources, sequences, queries }: LatentAttentionProblem): number {
  if (split === 'never' || (split === 'fill' && sequences * queries >= fillTokens)) return 1
  const keys = sources.reduce((most, source) => Math.max(most, source.topk), 0)
  return Math.max(1, Math.min(maxSplits, Math.ceil(keys / minSplitKeys)))
}

/** Worker scratch of `attendLatent`, in bytes; see the map in cpu.as.ts. */
function workerBytes({ heads, width }: LatentAttentionProblem): number {
  const heads8 = Math.ceil(heads / 8) * 8
  return (
    4 * (heads8 * width + keysPerBlock * width + keysPerBlock * heads8 + heads8 * nope + 3 * heads8 + 2 * keysPerBlock)
  )
}

/**
 * One pass per token, or splits of its keys and a merge. With splits, tokens go in windows whose partial results fit
 * the scratch budget.
 */
export function planLatentAttentionCpu(request: PlanRequest<LatentAttentionProblem>): CpuPlan {
  const { problem, limits } = request
  const tokens = problem.sequences * problem.queries
  const splits = splitsFor(problem)
  const partialBytes = splits === 1 ? 0 : 4 * splits * problem.heads * (nope + 2)
  const budget = limits.scratchBytes - limits.workers * lines(workerBytes(problem))
  const window = splits === 1 ? tokens : Math.min(tokens, Math.max(1, Math.floor(budget / partialBytes)))
  const sharedBytes = window * partialBytes
  return {
    kind: 'cpu',
    op: problem.op,
    sharedBytes,
    workerBytes: workerBytes(problem),
    scratchBytes: lines(sharedBytes) + limits.workers * lines(workerBytes(problem)),
    stages: at => stagesOf(request, at, splits, window),
  }
}

function stagesOf(
  request: PlanRequest<LatentAttentionProblem>,
  at: CpuAddresses,
  splits: number,
  window: number,
): CpuStage[] {
  const { sequences, queries, sources } = request.problem
  const sourceArgs = [0, 1].flatMap(i => [...sourceWords(request, at, sources[i])])
  const stages: CpuStage[] = []
  for (let firstToken = 0; firstToken < sequences * queries; firstToken += window) {
    const args = Uint32Array.from([...attendWords(request, at, { firstToken, splits }), ...sourceArgs])
    const tokens = Math.min(window, sequences * queries - firstToken)
    stages.push({ kernel: 'attendLatent', items: tokens * splits, args })
    if (splits > 1) stages.push({ kernel: 'mergeSplits', items: tokens, args })
  }
  return stages
}

function attendWords(
  { problem, inputs, outputs }: PlanRequest<LatentAttentionProblem>,
  at: CpuAddresses,
  launch: { readonly firstToken: number; readonly splits: number },
): Uint32Array {
  const { q, qScale } = inputs
  const { out, lse, maxLogits } = outputs
  return attendArgs.pack({
    ...launch,
    q: at.input('q'),
    qDtype: dtypeCode(problem.qDtype),
    ...tokenStrides('q', q, 2),
    qHeadStride: q!.strides.at(-2)!,
    qScale: at.input('qScale'),
    ...tokenStrides('qScale', qScale, 1),
    heads: problem.heads,
    width: problem.width,
    scale: problem.scale,
    sink: at.input('sink'),
    out: at.output('out'),
    outDtype: dtypeCode(problem.outDtype),
    ...tokenStrides('out', out, 2),
    outHeadStride: out!.strides.at(-2)!,
    lse: at.output('lse'),
    ...tokenStrides('lse', lse, 1),
    maxLogits: at.output('maxLogits'),
    ...tokenStrides('maxLogits', maxLogits, 1),
    queries: problem.queries,
    validLength: at.input('validLength'),
    minSplitKeys,
    partial: at.shared,
  })
}

function sourceWords(
  { problem, inputs }: PlanRequest<LatentAttentionProblem>,
  at: CpuAddresses,
  source: KeySourceProblem | undefined,
): Uint32Array {
  if (source === undefined) return new Uint32Array(Object.keys(keySource.fields).length)
  const { name, layer } = source
  const values = inputs[`${name}.values`]!
  const scales = inputs[`${name}.scales`]
  const lengths = inputs[`${name}.lengths`]
  const bytes = dtypeInfo[values.dtype].bytes
  return keySource.pack({
    values: at.input(`${name}.values`) + layer * values.strides[1]! * bytes,
    dtype: dtypeCode(source.dtype),
    packed: source.format === 'packed656' ? 1 : 0,
    blockBytes: values.strides[0]! * bytes,
    rowBytes: values.strides[2]! * bytes,
    scales: scales === undefined ? 0 : at.input(`${name}.scales`) + layer * scales.strides[1]! * 4,
    scaleBlockBytes: (scales?.strides[0] ?? 0) * 4,
    scaleRowBytes: (scales?.strides[2] ?? 0) * 4,
    scaleBlock: source.scaleBlock,
    pageSize: source.pageSize,
    slots: source.blocks * source.pageSize,
    topk: source.topk,
    indices: at.input(`${name}.indices`),
    ...tokenStrides('index', inputs[`${name}.indices`], 1),
    lengths: at.input(`${name}.lengths`),
    lengthsSigned: lengths?.dtype === 'i32' ? 1 : 0,
    ...tokenStrides('length', lengths, 0),
    logical: at.input(`${name}.logical`),
    ...tokenStrides('logical', inputs[`${name}.logical`], 1),
    blockTable: at.input('blockTable'),
    tableStride: inputs.blockTable?.strides[0] ?? 0,
    cacheLength: at.input('cacheLength'),
    newKeys: problem.lengthsIncludeNew ? 0 : 1,
    causal: problem.causal ? 1 : 0,
  })
}
