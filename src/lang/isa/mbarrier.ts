/**
 * mbarriers in shared memory (isa.md §2): a phase completes when all arrivals and all announced bytes are in. A waiter
 * names the parity of the phase it waits for. Addresses are bytes within the block's shared memory.
 */

import type { Machine } from '../machine.ts'
import type { InstRecord, Mods, OperandSpec } from '../record.ts'

const cost = { unit: 'barrier', cycles: 4 } as const
const address: OperandSpec = { type: 'u32', use: 'in' }
const at = 'add.u32 {%b:.b32}, {smem}, {address};'

const record = (spec: Omit<InstRecord, 'since' | 'effect' | 'cost'>): InstRecord => ({
  since: 90,
  effect: 'sync',
  cost,
  ...spec,
})

const bytes: OperandSpec = { type: 'u32', use: 'in' }
/** Waits of a cluster's kernels acquire what other blocks released, and arrivals there release: a fence of all memory. */
const acquire = ({ scope }: Mods): string => (scope === 'cluster' ? '.acquire.cluster' : '')
const release = ({ scope }: Mods): string => (scope === 'block' ? '' : '.release.cluster')

export const mbarriers: Readonly<
  Record<'init' | 'arrive' | 'arriveExpect' | 'expect' | 'wait' | 'arriveRemote' | 'arriveExpectRemote', InstRecord>
> = {
  init: record({
    name: 'mbarrier.init',
    ptx: `${at}\nmbarrier.init.shared::cta.b64 [{%b:.b32}], {count};`,
    operands: { address, count: { type: 'u32', use: 'imm' } },
    run: m => m.eachLane(lane => m.barrier(lane, 'address').init(Number(m.operand('count')[lane]))),
    doc: 'phase 0, `count` arrivals a phase, no bytes announced; one lane',
  }),
  arrive: record({
    name: 'mbarrier.arrive',
    ptx: `${at}\nmbarrier.arrive.shared::cta.b64 _, [{%b:.b32}];`,
    operands: { address },
    run: m => m.eachLane(lane => m.barrier(lane, 'address').arrive()),
    doc: 'one arrival of each active lane; releases what the warp did before',
  }),
  arriveExpect: record({
    name: 'mbarrier.arrive.expect_tx',
    ptx: `${at}\nmbarrier.arrive.expect_tx.shared::cta.b64 _, [{%b:.b32}], {bytes};`,
    operands: { address, bytes },
    run: m => expectAndArrive(m, 'shared'),
    doc: 'announces bytes of asynchronous copies, then one arrival of each active lane',
  }),
  expect: record({
    name: 'mbarrier.expect_tx',
    ptx: `${at}\nmbarrier.expect_tx.relaxed.cta.shared::cta.b64 [{%b:.b32}], {bytes};`,
    operands: { address, bytes },
    run: m => m.eachLane(lane => m.barrier(lane, 'address').expect(Number(m.operand('bytes')[lane]))),
    doc: 'announces bytes of asynchronous copies; an arrival of the same phase must still come',
  }),
  wait: record({
    name: 'mbarrier.wait',
    ptx: mods =>
      `${at}\n{label:wait}:\nmbarrier.try_wait.parity${acquire(mods)}.shared::cta.b64 {%p:.pred}, [{%b:.b32}], {parity};\n@!{%p:.pred} bra {label:wait};`,
    operands: { address, parity: { type: 'u32', use: 'in' } },
    run: m => m.barrier(m.firstLane, 'address').passed(Number(m.uniform('parity'))),
    doc: 'waits until the phase of this parity has completed; acquires what the arrivals released',
  }),
  arriveRemote: record({
    name: 'mbarrier.arrive.cluster',
    ptx: mods => `mbarrier.arrive${release(mods)}.shared::cluster.b64 _, [{address}];`,
    operands: { address },
    run: m => m.eachLane(lane => m.barrier(lane, 'address', 'cluster').arrive()),
    doc: 'one arrival of each active lane at a barrier of another block',
  }),
  arriveExpectRemote: record({
    name: 'mbarrier.arrive.expect_tx.cluster',
    ptx: mods => `mbarrier.arrive.expect_tx${release(mods)}.shared::cluster.b64 _, [{address}], {bytes};`,
    operands: { address, bytes },
    run: m => expectAndArrive(m, 'cluster'),
    doc: 'announces bytes and arrives at a barrier of another block',
  }),
}

function expectAndArrive(m: Machine, space: 'shared' | 'cluster'): void {
  m.eachLane(lane => {
    const barrier = m.barrier(lane, 'address', space)
    barrier.expect(Number(m.operand('bytes')[lane]))
    barrier.arrive()
  })
}

/** Memories whose ordinary writes a proxy fence makes visible to copies and matrix units. */
export type ProxyFence = 'shared' | 'global' | 'all'

const proxyFence = (name: ProxyFence, suffix: string, spaces: readonly ('shared' | 'global')[]): InstRecord =>
  record({
    name: `fence.proxy.async.${name}`,
    ptx: `fence.proxy.async${suffix};`,
    operands: {},
    run: m => m.fenceProxy(...spaces),
    doc: `makes this warp’s ordinary writes (${spaces.join(' and ')} memory) visible to asynchronous copies and matrix units`,
  })

export const fences: Readonly<Record<'barrierInit', InstRecord>> = {
  barrierInit: record({
    name: 'fence.mbarrier_init',
    ptx: 'fence.mbarrier_init.release.cluster;',
    operands: {},
    run: m => m.fenceBarriers(),
    doc: 'makes initialised mbarriers visible to asynchronous operations and other blocks of the cluster',
  }),
}

export const proxyFences: Readonly<Record<ProxyFence, InstRecord>> = {
  shared: proxyFence('shared', '.shared::cta', ['shared']),
  global: proxyFence('global', '.global', ['global']),
  all: proxyFence('all', '', ['shared', 'global']),
}
