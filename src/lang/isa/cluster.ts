/**
 * Clusters (isa.md §7): blocks that run together, synchronise, and reach each other's shared memory. A cluster address
 * is what `mapa` makes of a byte of the own window and a rank.
 */

import { type InstRecord, type OperandSpec, pure } from '../record.ts'
import { elements } from './memory.ts'

const u32: OperandSpec = { type: 'u32', use: 'in' }

const barrier = (name: string, ptx: string, run: InstRecord['run'] & {}, doc: string): InstRecord => ({
  name,
  ptx,
  since: 90,
  operands: {},
  effect: 'sync',
  convergent: 'warp',
  cost: { unit: 'barrier', cycles: 64 },
  run,
  doc,
})

export const clusterBarriers: Readonly<Record<'arrive' | 'wait', InstRecord>> = {
  arrive: barrier(
    'cluster.arrive',
    'barrier.cluster.arrive.release.aligned;',
    m => m.clusterArrive(),
    'arrives at the cluster’s barrier; releases what the warp did before',
  ),
  wait: barrier(
    'cluster.wait',
    'barrier.cluster.wait.acquire.aligned;',
    m => m.clusterWait(),
    'waits until every thread of the cluster has arrived',
  ),
}

export const mapa: InstRecord = pure({
  name: 'mapa',
  out: 'u32',
  in: { address: 'u32', rank: 'u32' },
  ptx: 'add.u32 {%a:.b32}, {smem}, {address};\nmapa.shared::cluster.u32 {d}, {%a:.b32}, {rank};',
  since: 90,
  cost: { unit: 'alu', cycles: 0.5 },
  lane: (address, rank) => ((rank << 24) | address) >>> 0,
  doc: 'the cluster address of a byte of shared memory in the block of a rank',
})

type RemoteElement = 'u32' | 'i32' | 'f32'

function remote(access: 'ld' | 'st', element: RemoteElement): InstRecord {
  const { ptx, get, set } = elements[element]
  return {
    name: `${access}.cluster.${element}`,
    ptx:
      access === 'ld' ? `ld.shared::cluster.${ptx} {v}, [{address}];` : `st.shared::cluster.${ptx} [{address}], {v};`,
    since: 90,
    operands: { v: { type: element, use: access === 'ld' ? 'out' : 'in' }, address: u32 },
    effect: access === 'ld' ? 'read' : 'write',
    cost: { unit: 'shared', cycles: 4 },
    run: m => {
      const [v, address] = [m.operand('v'), m.operand('address')]
      m.eachLane(lane => {
        if (access === 'ld') v[lane] = get(m.read('cluster', lane, address[lane] as number, 4), 0)
        else set(m.write('cluster', lane, address[lane] as number, 4), 0, v[lane] as number)
      })
    },
    doc: `${access === 'ld' ? 'load' : 'store'} one ${element} of another block’s shared memory`,
  }
}

export const remotes: Readonly<Record<string, InstRecord>> = Object.fromEntries(
  (['ld', 'st'] as const).flatMap(access =>
    (['u32', 'i32', 'f32'] as const).map(element => [`${access}.${element}`, remote(access, element)]),
  ),
)

function storeAsync(element: RemoteElement, count: 1 | 4): InstRecord {
  const names = count === 1 ? ['v'] : ['v0', 'v1', 'v2', 'v3']
  const values = count === 1 ? '{v}' : '{{{v0}, {v1}, {v2}, {v3}}}'
  const suffix = `${count === 4 ? '.v4' : ''}.${element === 'f32' ? 'f32' : 'b32'}`
  return {
    name: `st.async.${count}.${element}`,
    ptx: `st.async.shared::cluster.mbarrier::complete_tx::bytes${suffix} [{address}], ${values}, [{barrier}];`,
    since: 90,
    version: '8.1',
    operands: {
      ...Object.fromEntries(names.map(name => [name, { type: element, use: 'in' } as OperandSpec])),
      address: u32,
      barrier: u32,
    },
    effect: 'async',
    cost: { unit: 'shared', cycles: 4 },
    run: m =>
      m.eachLane(lane => {
        const bytes = new Uint8Array(4 * count)
        const view = new DataView(bytes.buffer)
        names.forEach((name, i) => elements[element].set(view, 4 * i, m.operand(name)[lane] as number))
        m.storeAsync(m.operand('address')[lane] as number, bytes, m.operand('barrier')[lane] as number)
      }),
    doc: `stores ${4 * count} bytes in another block and completes them on an mbarrier there; a generic access that ends later`,
  }
}

export const asyncStores: Readonly<Record<string, InstRecord>> = Object.fromEntries(
  (['u32', 'i32', 'f32'] as const).flatMap(element =>
    ([1, 4] as const).map(count => [`${count}.${element}`, storeAsync(element, count)]),
  ),
)

export const push: InstRecord = {
  name: 'bulk.push',
  ptx: 'add.u32 {%s:.b32}, {smem}, {source};\ncp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [{target}], [{%s:.b32}], {bytes}, [{barrier}];',
  since: 90,
  operands: { target: u32, source: u32, bytes: u32, barrier: u32 },
  effect: 'async',
  cost: { unit: 'tma', cycles: 16 },
  run: m => {
    const at = (name: string, lane: number): number => m.operand(name)[lane] as number
    m.eachLane(lane =>
      m.copies.push({
        source: at('source', lane),
        target: at('target', lane),
        bytes: at('bytes', lane),
        barrier: at('barrier', lane),
      }),
    )
  },
  doc: 'copies bytes of shared memory to another block’s and completes them on an mbarrier there',
}
