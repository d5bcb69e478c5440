/**
 * Loads and stores of one element or four: global memory by buffer and element offset, shared memory by byte address.
 * Codes under 32 bits arrive zero-extended in u32 registers. Source: PTX ISA 9.0, ld and st.
 */

import type { Machine, Space } from '../machine.ts'
import type { InstRecord, OperandSpec } from '../record.ts'

/** An element as memory holds it. */
export type Element = 'u8' | 'u16' | 'u32' | 'i32' | 'f32'

interface ElementForm {
  readonly bytes: 1 | 2 | 4
  readonly ptx: string
  readonly get: (view: DataView, at: number) => number
  readonly set: (view: DataView, at: number, value: number) => void
}

export const elements: Readonly<Record<Element, ElementForm>> = {
  u8: { bytes: 1, ptx: 'u8', get: (v, at) => v.getUint8(at), set: (v, at, x) => v.setUint8(at, x) },
  u16: { bytes: 2, ptx: 'u16', get: (v, at) => v.getUint16(at, true), set: (v, at, x) => v.setUint16(at, x, true) },
  u32: { bytes: 4, ptx: 'u32', get: (v, at) => v.getUint32(at, true), set: (v, at, x) => v.setUint32(at, x, true) },
  i32: { bytes: 4, ptx: 's32', get: (v, at) => v.getInt32(at, true), set: (v, at, x) => v.setInt32(at, x, true) },
  f32: { bytes: 4, ptx: 'f32', get: (v, at) => v.getFloat32(at, true), set: (v, at, x) => v.setFloat32(at, x, true) },
}

const registerType = (element: Element): 'u32' | 'i32' | 'f32' =>
  element === 'f32' || element === 'i32' ? element : 'u32'

/** Values of a vector access, and the braces around them in PTX. */
const names = (count: 1 | 4): readonly string[] => (count === 1 ? ['v'] : ['v0', 'v1', 'v2', 'v3'])
const braces = (count: 1 | 4): string => (count === 1 ? '{v}' : '{{{v0}, {v1}, {v2}, {v3}}}')

type Access = 'ld' | 'st'

const globalAddress = (bytes: number): string =>
  bytes === 1
    ? 'add.u64 {%a:.b64}, {base}, {at};'
    : `shl.b64 {%a:.b64}, {at}, ${Math.log2(bytes)};\nadd.u64 {%a:.b64}, {base}, {%a:.b64};`

/** Byte address of a lane's access. */
const addressOf = (m: Machine, space: Space, lane: number, bytes: number): number | bigint =>
  space === 'global'
    ? (m.operand('base')[lane] as bigint) + (m.operand('at')[lane] as bigint) * BigInt(bytes)
    : (m.operand('address')[lane] as number)

/** A load of one element that happens in the lanes where `p` holds; the others get 0 and touch no memory. */
function guardedLoad(element: Element): InstRecord {
  const { bytes, ptx, get } = elements[element]
  return {
    name: `ld.global.if.${element}`,
    ptx: `${globalAddress(bytes)}\nmov.b32 {v}, 0;\n@{p} ld.global.${ptx} {v}, [{%a:.b64}];`,
    since: 75,
    operands: {
      v: { type: registerType(element), use: 'out' },
      p: { type: 'pred', use: 'in' },
      base: { type: 'u64', use: 'in' },
      at: { type: 'offset', use: 'in' },
    },
    effect: 'read',
    cost: { unit: 'global', cycles: 4 },
    run: m => {
      const [v, p] = [m.operand('v'), m.operand('p')]
      for (let lane = 0; lane < m.width; lane++)
        if (m.active(lane))
          v[lane] = p[lane] ? get(m.read('global', lane, addressOf(m, 'global', lane, bytes), bytes), 0) : 0
    },
    doc: `load one element of ${element}, naturally aligned, where p holds; 0 elsewhere`,
  }
}

function memoryRecord(access: Access, space: 'global' | 'shared', element: Element, count: 1 | 4): InstRecord {
  const { bytes, ptx, get, set } = elements[element]
  const name = `${access}.${space}.${count === 4 ? 'v4.' : ''}${element}`
  const vector = count === 4 ? '.v4' : ''
  const values = Object.fromEntries(
    names(count).map(v => [v, { type: registerType(element), use: access === 'ld' ? 'out' : 'in' } as OperandSpec]),
  )
  const where: Record<string, OperandSpec> =
    space === 'global'
      ? { base: { type: 'u64', use: 'in' }, at: { type: 'offset', use: 'in' } }
      : { address: { type: 'u32', use: 'in' } }
  const target = space === 'global' ? '[{%a:.b64}]' : '[{%a:.b32}]'
  const spelled = `${access}.${space}${vector}.${ptx}`
  const statement =
    access === 'ld' ? `${spelled} ${braces(count)}, ${target};` : `${spelled} ${target}, ${braces(count)};`
  return {
    name,
    ptx: `${space === 'global' ? globalAddress(bytes) : 'add.u32 {%a:.b32}, {smem}, {address};'}\n${statement}`,
    since: 75,
    operands: { ...values, ...where },
    effect: access === 'ld' ? 'read' : 'write',
    cost: { unit: space, cycles: space === 'global' ? 4 : count },
    run: m => {
      const lanes = names(count).map(v => m.operand(v))
      for (let lane = 0; lane < m.width; lane++) {
        if (!m.active(lane)) continue
        const address = addressOf(m, space, lane, bytes)
        const view =
          access === 'ld' ? m.read(space, lane, address, bytes * count) : m.write(space, lane, address, bytes * count)
        lanes.forEach((register, i) => {
          if (access === 'ld') register[lane] = get(view, i * bytes)
          else set(view, i * bytes, register[lane] as number)
        })
      }
    },
    doc: `${access === 'ld' ? 'load' : 'store'} ${count === 4 ? 'four consecutive elements' : 'one element'} of ${element}, naturally aligned`,
  }
}

const spaces = ['global', 'shared'] as const

const records: readonly InstRecord[] = [
  ...(['ld', 'st'] as const).flatMap(access =>
    spaces.flatMap(space =>
      (Object.keys(elements) as Element[]).flatMap(element =>
        ([1, 4] as const)
          .filter(count => count === 1 || elements[element].bytes === 4)
          .map(count => memoryRecord(access, space, element, count)),
      ),
    ),
  ),
  ...(Object.keys(elements) as Element[]).map(guardedLoad),
]

export const memory: Readonly<Record<string, InstRecord>> = Object.fromEntries(
  records.map(record => [record.name, record]),
)
