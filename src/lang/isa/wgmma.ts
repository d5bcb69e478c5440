/**
 * Warpgroup matrix multiply-accumulate (isa.md §5): D[64][N] += A[64][K] B[N][K]ᵀ, K = 32 bytes of operand. Both
 * operands come from shared memory through descriptors; D is spread over the 128 threads of a warpgroup.
 */

import type { InstRecord } from '../record.ts'

export type MatrixDtype = 'bf16' | 'e4m3'

/** K of one instruction: 32 bytes. */
export const kStep: Readonly<Record<MatrixDtype, number>> = { bf16: 16, e4m3: 32 }

/** Row of element `j` of thread `t`'s part of D, within the 64 rows; the column is `fragmentColumn`. [isa.md §5.2] */
export const fragmentRow = (t: number, j: number): number => 16 * (t >> 5) + ((t & 31) >> 2) + 8 * ((j >> 1) & 1)
export const fragmentColumn = (t: number, j: number): number => 8 * (j >> 2) + 2 * (t & 3) + (j & 1)

const cost = (n: number) => ({ unit: 'tensor', cycles: n / 2 }) as const

function multiply(dtype: MatrixDtype, n: number): InstRecord {
  const tail = dtype === 'bf16' ? ', 1, 1, 0, 0' : ', 1, 1'
  return {
    name: `wgmma.m64n${n}k${kStep[dtype]}.${dtype}`,
    ptx: [
      'setp.ne.u32 {%p:.pred}, {accumulate}, 0;',
      `wgmma.mma_async.sync.aligned.m64n${n}k${kStep[dtype]}.f32.${dtype}.${dtype} {d}, {a}, {b}, {%p:.pred}${tail};`,
    ].join('\n'),
    since: '90a',
    operands: {
      d: { type: 'f32', use: 'both', list: true },
      a: { type: 'u64', use: 'in' },
      b: { type: 'u64', use: 'in' },
      accumulate: { type: 'u32', use: 'in' },
    },
    effect: 'async',
    convergent: 'warpgroup',
    cost: cost(n),
    run: m =>
      m.warpgroupMultiply({
        dtype,
        n,
        a: m.uniform('a') as bigint,
        b: m.uniform('b') as bigint,
        accumulate: m.uniform('accumulate') !== 0,
      }),
    doc: 'D += A Bᵀ (D = A Bᵀ without accumulate), asynchronous: D and the operands rest untouched until the wait',
  }
}

const records = new Map<string, InstRecord>()

/** The record for N columns. N is a multiple of 8 up to 256. */
export function wgmma(dtype: MatrixDtype, n: number): InstRecord {
  const key = `${dtype} ${n}`
  let record = records.get(key)
  if (record === undefined) {
    record = multiply(dtype, n)
    records.set(key, record)
  }
  return record
}

const control = (name: string, ptx: string, run: InstRecord['run'] & {}, doc: string): InstRecord => ({
  name,
  ptx,
  since: '90a',
  operands: {},
  effect: 'sync',
  convergent: 'warpgroup',
  cost: { unit: 'control', cycles: 1 },
  run,
  doc,
})

export const wgmmaFence: InstRecord = control(
  'wgmma.fence',
  'wgmma.fence.sync.aligned;',
  m => m.warpgroupFence(),
  'orders register accesses before the multiplies that follow',
)
export const wgmmaCommit: InstRecord = control(
  'wgmma.commit',
  'wgmma.commit_group.sync.aligned;',
  m => m.warpgroupCommit(),
  'closes a group of multiplies',
)

/** Waits until at most `pending` groups are under way. */
export const wgmmaWait = (pending: number): InstRecord =>
  control(
    `wgmma.wait.${pending}`,
    `wgmma.wait_group.sync.aligned ${pending};`,
    m => m.warpgroupWait(pending),
    `at most ${pending} groups stay under way; the others' results may be read`,
  )
