/**
 * Warpgroup matrix multiply-accumulate (isa.md §5): D[64][N] += A[64][K] B[N][K]ᵀ, K = 32 bytes of operand. B comes
 * from shared memory through a descriptor, A from there or from registers; D is spread over the 128 threads of a
 * warpgroup.
 */

import type { InstRecord, OperandSpec } from '../record.ts'

export type MatrixDtype = 'bf16' | 'f16' | 'e4m3'

/** K of one instruction: 32 bytes. */
export const kStep: Readonly<Record<MatrixDtype, number>> = { bf16: 16, f16: 16, e4m3: 32 }

/** Row of element `j` of thread `t`'s part of D, within the 64 rows; the column is `fragmentColumn`. [isa.md §5.2] */
export const fragmentRow = (t: number, j: number): number => 16 * (t >> 5) + ((t & 31) >> 2) + 8 * ((j >> 1) & 1)
export const fragmentColumn = (t: number, j: number): number => 8 * (j >> 2) + 2 * (t & 3) + (j & 1)

/** A form of the instruction. */
export interface MultiplyForm {
  readonly dtype: MatrixDtype
  /** Columns of D: a multiple of 8 up to 256. */
  readonly n: number
  readonly a: 'shared' | 'registers'
  /** Rows of shared memory are K, not rows of A or B; 16-bit types only. */
  readonly aTransposed: boolean
  readonly bTransposed: boolean
}

const nameOf = ({ dtype, n, a, aTransposed, bTransposed }: MultiplyForm): string =>
  `wgmma.m64n${n}k${kStep[dtype]}.${dtype}${a === 'registers' ? '.rs' : ''}${aTransposed ? '.at' : ''}${bTransposed ? '.bt' : ''}`

/** The factors 1 of both operands, and whether they are transposed where that can be said. */
function tailOf({ dtype, a, aTransposed, bTransposed }: MultiplyForm): string {
  if (dtype === 'e4m3') return ', 1, 1'
  const b = bTransposed ? 1 : 0
  return a === 'registers' ? `, 1, 1, ${b}` : `, 1, 1, ${aTransposed ? 1 : 0}, ${b}`
}

function multiply(form: MultiplyForm): InstRecord {
  const { dtype, n, a, aTransposed, bTransposed } = form
  const operandA: OperandSpec = a === 'registers' ? { type: 'u32', use: 'in', list: true } : { type: 'u64', use: 'in' }
  return {
    name: nameOf(form),
    ptx: [
      'setp.ne.u32 {%p:.pred}, {accumulate}, 0;',
      `wgmma.mma_async.sync.aligned.m64n${n}k${kStep[dtype]}.f32.${dtype}.${dtype} {d}, {a}, {b}, {%p:.pred}${tailOf(form)};`,
    ].join('\n'),
    since: '90a',
    operands: {
      d: { type: 'f32', use: 'both', list: true },
      a: operandA,
      b: { type: 'u64', use: 'in' },
      accumulate: { type: 'u32', use: 'in' },
    },
    effect: 'async',
    convergent: 'warpgroup',
    // N/2 cycles of the multiprocessor for the four warps together.
    cost: { unit: 'tensor', cycles: n / 8 },
    run: m =>
      m.warpgroupMultiply({
        dtype,
        n,
        a: a === 'registers' ? m.list('a') : (m.uniform('a') as bigint),
        b: m.uniform('b') as bigint,
        aTransposed,
        bTransposed,
        accumulate: m.uniform('accumulate') !== 0,
      }),
    doc: 'D += A Bᵀ (D = A Bᵀ without accumulate), asynchronous: D and the operands rest untouched until the wait',
  }
}

const records = new Map<string, InstRecord>()

/** The record of a form. */
export function wgmma(form: MultiplyForm): InstRecord {
  const key = nameOf(form)
  let record = records.get(key)
  if (record === undefined) {
    record = multiply(form)
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
