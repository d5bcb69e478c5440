/**
 * Copies of consecutive bytes by the copy engine (isa.md §3.6), the groups that stores are waited for by (§3.5), and L2
 * policies (§3.8). Ends and sizes are multiples of 16 bytes. One lane issues a copy.
 */

import type { InstRecord, OperandSpec } from '../record.ts'

const cost = { unit: 'tma', cycles: 16 } as const
const u32: OperandSpec = { type: 'u32', use: 'in' }
const u64: OperandSpec = { type: 'u64', use: 'in' }

/** Ways to ask for a load: an L2 policy, several receiving blocks. */
export interface LoadForm {
  readonly hint: boolean
  readonly multicast: boolean
  /** The bytes are counted at the barrier of the pair's even block (`cta_group::2`); tensor copies of sm_100a only. */
  readonly pair?: boolean
}

export const loadForms: readonly LoadForm[] = [false, true].flatMap(hint =>
  [false, true].map(multicast => ({ hint, multicast })),
)

/** The same of tensor copies, alone or of a pair. */
export const tensorForms: readonly LoadForm[] = [false, true].flatMap(pair =>
  loadForms.map(form => ({ ...form, pair })),
)

/** Suffix of a form in record names. */
export const formName = ({ hint, multicast, pair = false }: LoadForm): string =>
  `${pair ? '.pair' : ''}${multicast ? '.multicast' : ''}${hint ? '.hint' : ''}`

/** The address of the even block's barrier, from that of the own. */
const evenBarrier = [
  'mov.u32 {%r:.b32}, %cluster_ctarank;',
  'and.b32 {%r:.b32}, {%r:.b32}, 14;',
  'mapa.shared::cluster.u32 {%b:.b32}, {%b:.b32}, {%r:.b32};\n',
].join('\n')

/** The qualifiers and the operands of a form in PTX, and statements that must come before. */
export const formPtx = ({
  hint,
  multicast,
  pair = false,
}: LoadForm): Readonly<Record<'before' | 'qualifiers' | 'operands', string>> => ({
  before: `${pair ? evenBarrier : ''}${multicast ? 'cvt.u16.u32 {%m:.b16}, {multicast};\n' : ''}`,
  qualifiers: `${multicast ? '.multicast::cluster' : ''}${pair ? '.cta_group::2' : ''}${hint ? '.L2::cache_hint' : ''}`,
  operands: `${multicast ? ', {%m:.b16}' : ''}${hint ? ', {policy}' : ''}`,
})

export const formOperands = ({ hint, multicast }: LoadForm): Record<string, OperandSpec> => ({
  ...(multicast ? { multicast: u32 } : {}),
  ...(hint ? { policy: u64 } : {}),
})

function load(form: LoadForm): InstRecord {
  const { before, qualifiers, operands } = formPtx(form)
  return {
    name: `bulk.load${formName(form)}`,
    ptx: [
      'add.u32 {%d:.b32}, {smem}, {target};',
      'add.u32 {%b:.b32}, {smem}, {barrier};',
      `${before}cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes${qualifiers} [{%d:.b32}], [{source}], {bytes}, [{%b:.b32}]${operands};`,
    ].join('\n'),
    since: 90,
    operands: { target: u32, source: u64, bytes: u32, barrier: u32, ...formOperands(form) },
    effect: 'async',
    cost,
    run: m =>
      m.eachLane(lane =>
        m.copies.bulkLoad({
          source: m.operand('source')[lane] as bigint,
          bytes: m.operand('bytes')[lane] as number,
          target: m.operand('target')[lane] as number,
          barrier: m.operand('barrier')[lane] as number,
          ...(form.multicast ? { multicast: m.operand('multicast')[lane] as number } : {}),
        }),
      ),
    doc: 'copies bytes of global memory to shared memory and completes them on the mbarrier',
  }
}

export const bulkLoads: Readonly<Record<string, InstRecord>> = Object.fromEntries(
  loadForms.map(form => [formName(form), load(form)]),
)

export const bulkStore: InstRecord = {
  name: 'bulk.store',
  ptx: 'add.u32 {%s:.b32}, {smem}, {source};\ncp.async.bulk.global.shared::cta.bulk_group [{target}], [{%s:.b32}], {bytes};',
  since: 90,
  operands: { target: u64, source: u32, bytes: u32 },
  effect: 'async',
  cost,
  run: m =>
    m.eachLane(lane =>
      m.copies.bulkStore(lane, {
        source: m.operand('source')[lane] as number,
        target: m.operand('target')[lane] as bigint,
        bytes: m.operand('bytes')[lane] as number,
      }),
    ),
  doc: 'copies bytes of shared memory to global memory, in the thread’s open group',
}

export const bulkPrefetch: InstRecord = {
  name: 'bulk.prefetch',
  ptx: 'cp.async.bulk.prefetch.L2.global [{source}], {bytes};',
  since: 90,
  operands: { source: u64, bytes: u32 },
  effect: 'async',
  cost,
  run: () => {},
  doc: 'asks for bytes of global memory to be brought to L2',
}

const control = (name: string, ptx: string, run: InstRecord['run'] & {}, doc: string): InstRecord => ({
  name,
  ptx,
  since: 90,
  operands: {},
  effect: 'sync',
  cost: { unit: 'control', cycles: 1 },
  run,
  doc,
})

export const bulkCommit: InstRecord = control(
  'bulk.commit',
  'cp.async.bulk.commit_group;',
  m => m.eachLane(lane => m.copies.commit(lane)),
  'closes a group of the thread’s stores',
)

/** Waits until at most `pending` groups of stores are under way, or not yet `read` from shared memory. */
export const bulkWait = (pending: number, until: 'read' | 'written'): InstRecord =>
  control(
    `bulk.wait.${until}.${pending}`,
    `cp.async.bulk.wait_group${until === 'read' ? '.read' : ''} ${pending};`,
    m => m.eachLane(lane => m.copies.wait(lane, pending, until)),
    until === 'read'
      ? `the shared memory of all but ${pending} groups may be overwritten`
      : `at most ${pending} groups stay under way; the thread sees what the others wrote`,
  )

/** How long lines stay in L2. */
export type Eviction = 'evict_first' | 'evict_normal' | 'evict_last'

const policy = (eviction: Eviction): InstRecord => ({
  name: `policy.${eviction}`,
  ptx: `createpolicy.fractional.L2::${eviction}.b64 {d}, 1.0;`,
  since: 80,
  version: '7.4',
  operands: { d: { type: 'u64', use: 'out' } },
  effect: 'read',
  cost: { unit: 'alu', cycles: 1 },
  run: () => {},
  doc: `an L2 policy (${eviction}) for all lines of a copy; without effect on results`,
})

export const policies: Readonly<Record<Eviction, InstRecord>> = {
  evict_first: policy('evict_first'),
  evict_normal: policy('evict_normal'),
  evict_last: policy('evict_last'),
}
