/** Every instruction record by name: what the differential test runs and documentation lists. */

import type { InstRecord } from '../record.ts'
import * as arithmetic from './arithmetic.ts'
import * as atomic from './atomic.ts'
import * as bulk from './bulk.ts'
import * as bytes from './bytes.ts'
import * as cluster from './cluster.ts'
import * as compare from './compare.ts'
import * as convert from './convert.ts'
import * as gather from './gather.ts'
import * as grid from './grid.ts'
import * as guardedLoad from './guarded-load.ts'
import * as lanes from './lanes.ts'
import * as ldmatrix from './ldmatrix.ts'
import * as math from './math.ts'
import * as mbarrier from './mbarrier.ts'
import * as memory from './memory.ts'
import * as namedBarrier from './named-barrier.ts'
import * as offset from './offset.ts'
import * as pack from './pack.ts'
import * as packed from './packed.ts'
import * as pairs from './pairs.ts'
import * as special from './special.ts'
import * as tensorMemory from './tensor-memory.ts'
import * as tensorMultiply from './tensor-multiply.ts'
import * as threadCopy from './thread-copy.ts'
import * as tma from './tma.ts'
import * as vote from './vote.ts'
import * as warp from './warp.ts'
import * as wgmma from './wgmma.ts'
import * as wide from './wide.ts'

const isRecord = (value: unknown): value is InstRecord =>
  typeof value === 'object' && value !== null && 'operands' in value && 'ptx' in value

/** A module exports records and tables of records. */
const recordsOf = (module: object): InstRecord[] =>
  Object.values(module).flatMap(value => {
    if (isRecord(value)) return [value]
    return typeof value === 'object' && value !== null ? Object.values(value).filter(isRecord) : []
  })

const modules: readonly object[] = [
  arithmetic,
  atomic,
  bulk,
  bytes,
  cluster,
  compare,
  convert,
  gather,
  grid,
  guardedLoad,
  lanes,
  ldmatrix,
  math,
  mbarrier,
  memory,
  namedBarrier,
  offset,
  pack,
  packed,
  pairs,
  special,
  tensorMemory,
  tensorMultiply,
  threadCopy,
  tma,
  vote,
  warp,
  wgmma,
  wide,
]

/** Functions of three bits that stand for all 256: select, majority, parity, and-or. */
const logicTables = [0xca, 0xe8, 0x96, 0xea] as const

/** Records by name. Of families made on demand (lop3, wgmma) it has the members that are tables, or a few. */
export const records: ReadonlyMap<string, InstRecord> = new Map(
  [...modules.flatMap(recordsOf), ...logicTables.map(bytes.logic3)].map(record => [record.name, record]),
)
