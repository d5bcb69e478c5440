/** Comparisons, selection and conditions. f32 comparisons are ordered: false when either side is NaN, except `ne`. */

import { type InstRecord, pure } from '../record.ts'
import { type Type, typeInfo } from '../types.ts'

const alu = { unit: 'alu', cycles: 0.5 } as const

type Comparison = { readonly wgsl: string; readonly lane: (a: number, b: number) => boolean }

export type Relation = 'eq' | 'ne' | 'lt' | 'le' | 'gt' | 'ge'

const relations: Readonly<Record<Relation, Comparison>> = {
  eq: { wgsl: '==', lane: (a, b) => a === b },
  ne: { wgsl: '!=', lane: (a, b) => a !== b },
  lt: { wgsl: '<', lane: (a, b) => a < b },
  le: { wgsl: '<=', lane: (a, b) => a <= b },
  gt: { wgsl: '>', lane: (a, b) => a > b },
  ge: { wgsl: '>=', lane: (a, b) => a >= b },
}

const compare = (relation: Relation, type: Type): InstRecord =>
  pure({
    name: `${relation}.${type}`,
    out: 'pred',
    in: { a: type, b: type },
    ptx: `setp.${relation === 'ne' && type === 'f32' ? 'neu' : relation}.${typeInfo(type).suffix} {d}, {a}, {b};`,
    ...(type === 'u64' ? {} : { wgsl: `{a} ${relations[relation].wgsl} {b}` }),
    cost: alu,
    lane: relations[relation].lane as never,
    doc: `whether a ${relations[relation].wgsl} b`,
  })

const select = (type: Type): InstRecord =>
  pure({
    name: `select.${type}`,
    out: type,
    in: { p: 'pred', a: type, b: type },
    ptx: `selp.${typeInfo(type).register === '.f32' ? 'f32' : `b${typeInfo(type).bits}`} {d}, {a}, {b}, {p};`,
    ...(typeInfo(type).wgsl === undefined ? {} : { wgsl: 'select({b}, {a}, {p})' }),
    cost: alu,
    lane: ((p: number, a: number, b: number) => (p ? a : b)) as never,
    doc: 'a where p holds, else b',
  })

const compared: readonly Type[] = ['u32', 'i32', 'u64', 'f32']

export const comparisons: Readonly<Record<string, InstRecord>> = Object.fromEntries([
  ...compared.flatMap(type =>
    (Object.keys(relations) as Relation[]).map(relation => [`${relation}.${type}`, compare(relation, type)]),
  ),
  ...(['u32', 'i32', 'u64', 'f32', 'b16', 'f16x2', 'bf16x2', 'e4m3x4'] as const).map(type => [
    `select.${type}`,
    select(type),
  ]),
])

const logic = (name: string, ptx: string, wgsl: string, lane: (a: number, b: number) => boolean): InstRecord =>
  pure({
    name,
    out: 'pred',
    in: { a: 'pred', b: 'pred' },
    ptx: `${ptx} {d}, {a}, {b};`,
    wgsl,
    cost: alu,
    lane,
    doc: `${wgsl} of two conditions`,
  })

export const conditions: Readonly<Record<string, InstRecord>> = {
  'and.pred': logic('and.pred', 'and.pred', '{a} && {b}', (a, b) => a !== 0 && b !== 0),
  'or.pred': logic('or.pred', 'or.pred', '{a} || {b}', (a, b) => a !== 0 || b !== 0),
  'not.pred': pure({
    name: 'not.pred',
    out: 'pred',
    in: { a: 'pred' },
    ptx: 'not.pred {d}, {a};',
    wgsl: '!{a}',
    cost: alu,
    lane: a => a === 0,
    doc: 'negation of a condition',
  }),
}
