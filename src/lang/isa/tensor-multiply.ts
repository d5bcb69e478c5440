/**
 * Multiplies of the fifth-generation tensor cores (isa.md §6.4 to §6.9): D[M][N] = A[M][K] B[N][K]ᵀ (+ D), K = 32 bytes of
 * operand. D lies in tensor memory, B in shared memory, A in either. One thread issues; completion is told by a commit to
 * an mbarrier. Shapes and types are said by the bits of the instruction descriptor.
 */

import type { InstRecord, OperandSpec } from '../record.ts'
import type { TensorGroup } from './tensor-memory.ts'
import { kStep, type MatrixDtype } from './wgmma.ts'

const u32: OperandSpec = { type: 'u32', use: 'in' }
const u64: OperandSpec = { type: 'u64', use: 'in' }

/** Which kind multiplies each type. */
export const multiplyKind: Readonly<Record<MatrixDtype, 'f16' | 'f8f6f4'>> = { bf16: 'f16', f16: 'f16', e4m3: 'f8f6f4' }

/** A form of the instruction. */
export interface TensorMultiplyForm {
  readonly dtype: MatrixDtype
  readonly m: number
  readonly n: number
  readonly a: 'shared' | 'tensor'
  readonly stationary: boolean
  readonly group: TensorGroup
}

const nameOf = ({ dtype, m, n, a, stationary, group }: TensorMultiplyForm): string =>
  `tcgen05.mma${stationary ? '.ws' : ''}.cg${group}.m${m}n${n}k${kStep[dtype]}.${dtype}${a === 'tensor' ? '.ts' : ''}`

/**
 * Cycles of the multiprocessors that one instruction takes, summed over a pair: N/2 of one for 128 rows; 64 rows use half
 * of the data path outside `.ws`, and all of it inside [inferred, isa.md §6.5, §10.1].
 */
function cyclesOf({ m, n, stationary, group }: TensorMultiplyForm): number {
  const full = (m / 128) * (n / 2)
  return group === 1 && m === 64 && !stationary ? 2 * full : full
}

function multiply(form: TensorMultiplyForm): InstRecord {
  const { dtype, a, stationary, group } = form
  const kind = multiplyKind[dtype]
  const operandA = a === 'tensor' ? '[{a}]' : '{a}'
  return {
    name: nameOf(form),
    ptx: [
      'setp.ne.u32 {%p:.pred}, {accumulate}, 0;',
      'mov.b32 {%i:.b32}, {descriptor};',
      `tcgen05.mma${stationary ? '.ws' : ''}.cta_group::${group}.kind::${kind} [{d}], ${operandA}, {b}, {%i:.b32}, {%p:.pred};`,
    ].join('\n'),
    since: '100a',
    operands: { d: u32, a: a === 'tensor' ? u32 : u64, b: u64, descriptor: u32, accumulate: u32 },
    effect: 'async',
    cost: { unit: 'tensor', cycles: cyclesOf(form) },
    run: m =>
      m.tensor.multiply({
        kind,
        group,
        stationary,
        d: Number(m.uniform('d')),
        a: a === 'tensor' ? Number(m.uniform('a')) : (m.uniform('a') as bigint),
        b: m.uniform('b') as bigint,
        descriptor: Number(m.uniform('descriptor')),
        accumulate: m.uniform('accumulate') !== 0,
      }),
    doc: 'D = A Bᵀ, added to D with accumulate; asynchronous, in the order of issue with the thread’s other multiplies into the same D',
  }
}

const records = new Map<string, InstRecord>()

/** The record of a form. */
export function tensorMultiply(form: TensorMultiplyForm): InstRecord {
  const name = nameOf(form)
  let record = records.get(name)
  if (record === undefined) {
    record = multiply(form)
    records.set(name, record)
  }
  return record
}

const commit = (group: TensorGroup, multicast: boolean): InstRecord => ({
  name: `tcgen05.commit.cg${group}${multicast ? '.multicast' : ''}`,
  ptx: [
    'add.u32 {%b:.b32}, {smem}, {barrier};',
    ...(multicast ? ['cvt.u16.u32 {%m:.b16}, {multicast};'] : []),
    `tcgen05.commit.cta_group::${group}.mbarrier::arrive::one.shared::cluster${multicast ? '.multicast::cluster' : ''}.b64 [{%b:.b32}]${multicast ? ', {%m:.b16}' : ''};`,
  ].join('\n'),
  since: '100a',
  operands: { barrier: u32, ...(multicast ? { multicast: u32 } : {}) },
  effect: 'async',
  cost: { unit: 'barrier', cycles: 4 },
  run: m =>
    m.tensor.commit(Number(m.uniform('barrier')), group, multicast ? Number(m.uniform('multicast')) : undefined),
  doc: 'one arrival at the mbarrier (of each block of the mask) when all multiplies and copies that this thread has issued are complete',
})

export const tensorCommits: Readonly<Record<string, InstRecord>> = Object.fromEntries(
  ([1, 2] as const).flatMap(group =>
    [false, true].map(multicast => [`${group}${multicast ? '.multicast' : ''}`, commit(group, multicast)]),
  ),
)
