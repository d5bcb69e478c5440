/**
 * Atomic read-modify-write of shared memory, relaxed: atomics of different warps never race with each other, but say
 * nothing about other memory. Lanes of a warp that name the same word take turns in an order that the hardware chooses;
 * the simulator takes the lowest lane first. Source: PTX ISA 9.0, atom.
 */

import type { InstRecord } from '../record.ts'

const sharedAtomic = (
  name: 'add',
  wgsl: string,
  combine: (old: number, operand: number) => number,
  doc: string,
): InstRecord => ({
  name: `atomic.${name}.shared.u32`,
  ptx: `add.u32 {%a:.b32}, {smem}, {address};\natom.shared.${name}.u32 {d}, [{%a:.b32}], {v};`,
  wgsl: `${wgsl}(&{address}, {v})`,
  since: 75,
  operands: {
    d: { type: 'u32', use: 'out' },
    address: { type: 'u32', use: 'in' },
    v: { type: 'u32', use: 'in' },
  },
  effect: 'write',
  cost: { unit: 'shared', cycles: 2 },
  run: m => {
    const [d, address, v] = [m.operand('d'), m.operand('address').slice(), m.operand('v').slice()]
    m.eachLane(lane => {
      const word = m.update('shared', lane, address[lane] as number, 4)
      const old = word.getUint32(0, true)
      word.setUint32(0, combine(old, v[lane] as number), true)
      d[lane] = old
    })
  },
  doc,
})

export const atomics: Readonly<Record<string, InstRecord>> = {
  'atomic.add.shared.u32': sharedAtomic(
    'add',
    'atomicAdd',
    (old, operand) => old + operand,
    'adds v to the word at a byte address, wrapping; d is what was there before',
  ),
}
