/** Keys of the Blackwell indexers: how a tile of them arrives, and each key's scale. */

import type { KernelBuilder } from '../../lang/builder.ts'
import type { Arg, Val } from '../../lang/value.ts'
import { poolRowOf } from '../pool-row.ts'
import { depth, type E4m3Config, type E4m3Params } from './e4m3-config.ts'

type U32 = Val<'u32'>

/** Where the keys of a sequence are. */
export interface KeySequence {
  readonly sequence: U32
  /** Row of key 0 among contiguous keys. */
  readonly firstRow: U32
  /** One past the last key that any token of the work sees; each before it is a row that exists, or has no page. */
  readonly keyEnd: U32
}

/** Asks for the keys from `first` on, a tile of them; pages that do not exist arrive as zeros. One lane calls it. */
export function copyKeyTile(
  k: KernelBuilder,
  c: E4m3Config,
  p: E4m3Params,
  { sequence, firstRow }: KeySequence,
  tile: { readonly first: U32; readonly keys: number; readonly target: U32; readonly barrier: Arg<'u32'> },
): void {
  const { first, keys, target, barrier } = tile
  if (!c.paged) {
    p.keys.load(target, [0, firstRow.add(first).to('i32'), 0], barrier)
    return
  }
  for (let part = 0; part < keys; part += c.copyKeys) {
    const { block, row } = poolRowOf(k, p, sequence, first.add(part))
    p.keys.load(target.add(part * depth), [0, row.to('i32'), block.min(p.blocks).to('i32')], barrier)
  }
}

export interface OwnKey {
  readonly j: U32
  /** False for a key without a page, whose scores are -inf. */
  readonly exists: Val<'pred'>
  readonly scale: Val<'f32'>
}

/** Block of the pool and row in it of a key; a block beyond the pool where it has none. */
export interface KeyPlace {
  readonly block: U32
  readonly row: U32
}

/** Where key `j` lies. The block table is read, without a branch, only where it has the page. */
export function placeOfKey(
  k: KernelBuilder,
  c: E4m3Config,
  p: E4m3Params,
  { sequence, firstRow, keyEnd }: KeySequence,
  j: U32,
): KeyPlace {
  const inside = j.lt(keyEnd)
  if (!c.paged) return { block: inside.select(k.const('u32', 0), missing), row: firstRow.add(j) }
  const page = j.div(p.pageSize)
  const listed = inside.and(page.lt(p.maxPages))
  const block = p.blockTable.loadIf(listed, k.offset(page, sequence, p.tableStride))
  return { block: listed.select(block, missing), row: j.sub(page.mul(p.pageSize)) }
}

/** The scale of a key at its place, 0 where it has none. */
export function scaleAt(k: KernelBuilder, c: E4m3Config, p: E4m3Params, { block, row }: KeyPlace): Omit<OwnKey, 'j'> {
  const exists = block.lt(c.paged ? p.blocks : k.const('u32', 1))
  return { exists, scale: p.kScale.loadIf(exists, k.offset(row, block, p.kScaleStride)) }
}

const missing = 0xffff_ffff
