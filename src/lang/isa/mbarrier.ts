/**
 * mbarriers in shared memory (isa.md §2): a phase completes when all arrivals and all announced bytes are in. A waiter
 * names the parity of the phase it waits for. Addresses are bytes within the block's shared memory.
 */

import type { InstRecord, OperandSpec } from '../record.ts'

const cost = { unit: 'barrier', cycles: 4 } as const
const address: OperandSpec = { type: 'u32', use: 'in' }
const at = 'add.u32 {%b:.b32}, {smem}, {address};'

const record = (spec: Omit<InstRecord, 'since' | 'effect' | 'cost'>): InstRecord => ({
  since: 90,
  effect: 'sync',
  cost,
  ...spec,
})

export const mbarriers: Readonly<Record<'init' | 'arrive' | 'arriveExpect' | 'wait', InstRecord>> = {
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
    operands: { address, bytes: { type: 'u32', use: 'in' } },
    run: m =>
      m.eachLane(lane => {
        const barrier = m.barrier(lane, 'address')
        barrier.expect(Number(m.operand('bytes')[lane]))
        barrier.arrive()
      }),
    doc: 'announces bytes of asynchronous copies, then one arrival of each active lane',
  }),
  wait: record({
    name: 'mbarrier.wait',
    ptx: `${at}\n{label:wait}:\nmbarrier.try_wait.parity.shared::cta.b64 {%p:.pred}, [{%b:.b32}], {parity};\n@!{%p:.pred} bra {label:wait};`,
    operands: { address, parity: { type: 'u32', use: 'in' } },
    run: m => m.barrier(m.firstLane, 'address').passed(Number(m.uniform('parity'))),
    doc: 'waits until the phase of this parity has completed; acquires what the arrivals released',
  }),
}

export const fences: Readonly<Record<'barrierInit' | 'proxyAsync', InstRecord>> = {
  barrierInit: record({
    name: 'fence.mbarrier_init',
    ptx: 'fence.mbarrier_init.release.cluster;',
    operands: {},
    run: () => {},
    doc: 'makes initialised mbarriers visible to asynchronous operations and other blocks of the cluster',
  }),
  proxyAsync: record({
    name: 'fence.proxy.async',
    ptx: 'fence.proxy.async.shared::cta;',
    operands: {},
    run: m => m.fenceProxy(),
    doc: 'makes this warp’s ordinary writes to shared memory visible to asynchronous copies and matrix units',
  }),
}
