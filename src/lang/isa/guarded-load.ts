/**
 * Loads of global memory by byte address that happen in some lanes only: through the read-only path, for rows that nothing
 * writes while the kernel runs. Source: PTX ISA 9.0, ld.global.nc.
 */

import type { InstRecord, OperandSpec } from '../record.ts'

const names = ['v0', 'v1', 'v2', 'v3'] as const
const out: OperandSpec = { type: 'u32', use: 'out' }

/** How long the lines stay in L1: `keep` for rows whose sectors several loads share. */
export type L1Use = 'stream' | 'keep'

const qualifier: Readonly<Record<L1Use, string>> = { stream: '.L1::no_allocate', keep: '' }

function guardedLoad(use: L1Use): InstRecord {
  return {
    name: `ld.global.nc.if.v4.${use}`,
    ptx: [
      ...names.map(name => `mov.b32 {${name}}, 0;`),
      `@{p} ld.global.nc${qualifier[use]}.v4.b32 {{${names.map(name => `{${name}}`).join(', ')}}}, [{address}];`,
    ].join('\n'),
    since: 80,
    version: '7.4',
    operands: {
      ...Object.fromEntries(names.map(name => [name, out])),
      p: { type: 'pred', use: 'in' },
      address: { type: 'u64', use: 'in' },
    },
    effect: 'read',
    cost: { unit: 'global', cycles: 4 },
    run: m => {
      const [p, address] = [m.operand('p'), m.operand('address')]
      const words = names.map(name => m.operand(name))
      m.eachLane(lane => {
        const view = p[lane] ? m.read('global', lane, address[lane] as bigint, 16) : undefined
        words.forEach((word, i) => {
          word[lane] = view?.getUint32(4 * i, true) ?? 0
        })
      })
    },
    doc: 'load 16 bytes where p holds, the address a multiple of 16; zeros elsewhere, where memory is not touched',
  }
}

export const guardedLoads: Readonly<Record<L1Use, InstRecord>> = {
  stream: guardedLoad('stream'),
  keep: guardedLoad('keep'),
}

export const guardedWord: InstRecord = {
  name: 'ld.global.nc.if.f32',
  ptx: 'mov.b32 {v}, 0;\n@{p} ld.global.nc.f32 {v}, [{address}];',
  since: 75,
  operands: {
    v: { type: 'f32', use: 'out' },
    p: { type: 'pred', use: 'in' },
    address: { type: 'u64', use: 'in' },
  },
  effect: 'read',
  cost: { unit: 'global', cycles: 4 },
  run: m => {
    const [v, p, address] = [m.operand('v'), m.operand('p'), m.operand('address')]
    m.eachLane(lane => {
      v[lane] = p[lane] ? m.read('global', lane, address[lane] as bigint, 4).getFloat32(0, true) : 0
    })
  },
  doc: 'load an f32 where p holds, the address a multiple of 4; 0 elsewhere, where memory is not touched',
}
