/** The argument structs of score.as.ts and windows.as.ts, packed from a problem and its tensors. */

import { dtypeCode } from '../../cpu/dtype-codes.ts'
import { argStruct, type CpuAddresses } from '../../cpu/plan.ts'
import { dtypeInfo } from '../../dtypes/dtype.ts'
import type { DeviceTable } from '../../ops/op.ts'
import type { ScoringProblem, TokenWindowsProblem } from './problem.ts'

const indexQueries = argStruct('IndexQueries', {
  q: 'ptr',
  dtype: 'u32',
  tokenStride: 'u32',
  headStride: 'u32',
  scale: 'ptr',
  scaleStride: 'u32',
  heads: 'u32',
  depth: 'u32',
})

const indexKeys = argStruct('IndexKeys', {
  values: 'ptr',
  dtype: 'u32',
  blockBytes: 'u32',
  rowBytes: 'u32',
  scales: 'ptr',
  scaleBlockBytes: 'u32',
  pageSize: 'u32',
  blocks: 'u32',
  blockTable: 'ptr',
  tableStride: 'u32',
  maxPages: 'u32',
})

const tokenWindows = argStruct('TokenWindows', {
  tokens: 'u32',
  rowOffsets: 'ptr',
  validLength: 'ptr',
  batch: 'u32',
  rows: 'u32',
  kvRowOffsets: 'ptr',
  cacheLength: 'ptr',
  lengthsIncludeNew: 'u32',
  keys: 'u32',
  pool: 'u32',
  width: 'u32',
  kind: 'u32',
  lo: 'ptr',
  loSigned: 'u32',
  hi: 'ptr',
  hiSigned: 'u32',
})

const windowKinds = ['causal', 'all', 'given']

/** Words of IndexQueries, IndexKeys and TokenWindows, in that order. */
export const scoringWords = (problem: ScoringProblem, inputs: DeviceTable, at: CpuAddresses): number[] => [
  ...queryWords(problem, inputs, at),
  ...keyWords(problem, inputs, at),
  ...windowWords(problem.windows, inputs, at),
]

function queryWords({ heads, depth }: ScoringProblem, { q, qScale }: DeviceTable, at: CpuAddresses): Uint32Array {
  return indexQueries.pack({
    q: at.input('q'),
    dtype: dtypeCode(q!.dtype),
    tokenStride: q!.strides[0]!,
    headStride: q!.strides[1]!,
    scale: at.input('qScale'),
    scaleStride: qScale!.strides[0]!,
    heads,
    depth,
  })
}

function keyWords({ keys }: ScoringProblem, inputs: DeviceTable, at: CpuAddresses): Uint32Array {
  const name = keys.paged ? 'keys.pool' : 'keys'
  const values = inputs[`${name}.values`]!
  const scales = inputs[`${name}.scales`]
  const table = inputs['keys.blockTable']
  const { bytes } = dtypeInfo[keys.dtype]
  const { layer, pageSize, blocks } = keys
  return indexKeys.pack({
    values: at.input(`${name}.values`) + (keys.paged ? layer * values.strides[1]! * bytes : 0),
    dtype: dtypeCode(keys.dtype),
    blockBytes: keys.paged ? values.strides[0]! * bytes : 0,
    rowBytes: values.strides[keys.paged ? 2 : 0]! * bytes,
    scales: scales === undefined ? 0 : at.input(`${name}.scales`) + (keys.paged ? layer * scales.strides[1]! * 4 : 0),
    scaleBlockBytes: keys.paged ? (scales?.strides[0] ?? 0) * 4 : 0,
    pageSize,
    blocks,
    blockTable: at.input('keys.blockTable'),
    tableStride: table?.strides[0] ?? 0,
    maxPages: table?.shape[1] ?? 0,
  })
}

/** Words of TokenWindows alone. */
export function windowWords(problem: TokenWindowsProblem, inputs: DeviceTable, at: CpuAddresses): Uint32Array {
  const signed = (name: string): number => (inputs[name]?.dtype === 'i32' ? 1 : 0)
  return tokenWindows.pack({
    tokens: problem.tokens,
    rowOffsets: at.input('rowOffsets'),
    validLength: at.input('validLength'),
    batch: problem.batch,
    rows: problem.rows,
    kvRowOffsets: at.input('keys.kvRowOffsets'),
    cacheLength: at.input('keys.cacheLength'),
    lengthsIncludeNew: problem.lengthsIncludeNew ? 1 : 0,
    keys: problem.keys,
    pool: problem.pool,
    width: problem.width,
    kind: windowKinds.indexOf(problem.window),
    lo: at.input('window.lo'),
    loSigned: signed('window.lo'),
    hi: at.input('window.hi'),
    hiSigned: signed('window.hi'),
  })
}
