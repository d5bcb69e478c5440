/** Element offsets into buffers: row * stride + column in 64 bits (WGSL: 32), so that large pools never wrap. */

import { type InstRecord, pure } from '../record.ts'

const cost = { unit: 'fma', cycles: 1 } as const

export const offsets: Readonly<Record<string, InstRecord>> = {
  'offset.of.u32': pure({
    name: 'offset.of.u32',
    out: 'offset',
    in: { a: 'u32' },
    ptx: 'cvt.u64.u32 {d}, {a};',
    wgsl: '{a}',
    cost,
    lane: a => BigInt(a),
    doc: 'an element offset from a u32 index',
  }),
  'offset.row': pure({
    name: 'offset.row',
    out: 'offset',
    in: { base: 'offset', row: 'u32', stride: 'u32' },
    ptx: 'mad.wide.u32 {d}, {row}, {stride}, {base};',
    wgsl: '{base} + {row} * {stride}',
    cost,
    lane: ((base: bigint, row: number, stride: number) => base + BigInt(row) * BigInt(stride)) as never,
    doc: 'base + row * stride elements, in 64 bits',
  }),
}

/** The byte address of an element, as copies take it. */
export const elementAddress: Readonly<Record<1 | 2 | 4, InstRecord>> = { 1: address(1), 2: address(2), 4: address(4) }

function address(bytes: 1 | 2 | 4): InstRecord {
  return pure({
    name: `address.b${8 * bytes}`,
    out: 'u64',
    in: { base: 'u64', at: 'offset' },
    ptx: `shl.b64 {%a:.b64}, {at}, ${Math.log2(bytes)};\nadd.u64 {d}, {base}, {%a:.b64};`,
    cost,
    lane: (base, at) => base + at * BigInt(bytes),
    doc: `base plus the offset of an element of ${bytes} bytes`,
  })
}
