/**
 * The copying warpgroup of native fp8 sparse prefill: Q of each item by the copy engine, then the rows of its list in
 * blocks of 64, by 16-byte copies of the threads. Warp w copies rows 16w to 16w + 15; eight lanes share 128 bytes of a
 * row. Entries that do not count become zeros, their memory is not read; blocks of nothing else are left out.
 */

import type { KernelBuilder } from '../../lang/builder.ts'
import type { Producer } from '../../lang/pipeline.ts'
import type { Val, Var } from '../../lang/value.ts'
import { entriesOf } from '../list-length.ts'
import { blockKeys, type NativeItem, nope, nowhere } from './native-config.ts'
import {
  headerWords,
  type NativeSm90Config,
  type NativeSm90Params,
  type NativeSm90Shared,
  nativeItems,
  warps,
} from './sm90-native-config.ts'
import { RowScales } from './sm90-native-row-scales.ts'

type U32 = Val<'u32'>

/** What starts at multiples of 16 bytes. */
const unitMask = 0xffff_ffff_ffff_fff0n

export function copyRole(k: KernelBuilder, c: NativeSm90Config, p: NativeSm90Params, s: NativeSm90Shared): void {
  const queryRing = s.rings.queries.producer()
  const gather = new Gather(k, c, p, s)
  for (const item of nativeItems(k, p)) {
    k.when(k.threadIdx.eq(0), () => loadQueries(p, s, queryRing, item))
    k.when(k.threadIdx.eq(32).and(item.more), () => gather.foresee(item.next()))
    gather.list(item.token)
  }
  gather.stop()
}

function loadQueries(
  p: NativeSm90Params,
  { queries }: NativeSm90Shared,
  ring: Producer,
  { token, firstHead }: NativeItem,
): void {
  const panels = nope / 128
  const { index, full } = ring.acquire(panels * p.q.boxBytes + (p.qRope?.boxBytes ?? 0))
  const [head, row] = [firstHead.to('i32'), token.to('i32')]
  for (let panel = 0; panel < panels; panel++)
    p.q.load(queries.nope.address(index, panel), [128 * panel, head, row], full)
  p.qRope?.load(queries.rope.address(index), [nope, head, row], full)
  ring.advance()
}

/** Rows of lists into the ring of keys. */
class Gather {
  private readonly k: KernelBuilder
  private readonly c: NativeSm90Config
  private readonly p: NativeSm90Params
  private readonly s: NativeSm90Shared
  private readonly ring: Producer
  private readonly warp: U32
  /** Shared bytes of this lane's first copies in stage 0, of nope and of rope. */
  private readonly target: U32
  private readonly ropeTarget: U32
  /** The block that is known but not yet copied: valid keys, this lane's rows in units of 16 bytes. */
  private readonly valid: readonly [Var<'u32'>, Var<'u32'>]
  private readonly units: readonly Var<'u32'>[]
  /** Slots of keys `lane` and `lane + 32` of the next block. */
  private readonly next: readonly [Var<'u32'>, Var<'u32'>]
  private readonly scales: RowScales | undefined

  constructor(k: KernelBuilder, c: NativeSm90Config, p: NativeSm90Params, s: NativeSm90Shared) {
    this.k = k
    this.c = c
    this.p = p
    this.s = s
    this.ring = s.rings.keys.producer()
    this.warp = k.threadIdx.shr(5)
    const row = this.warp.mul(16).add(k.lane.shr(3))
    const byte = k.lane.bitAnd(7).shl(4)
    this.target = s.keys.nope.at(0, row, byte)
    this.ropeTarget = s.keys.rope.at(0, row.add(k.lane.bitAnd(4).shl(1)), k.lane.bitAnd(3).shl(4))
    this.valid = [k.var('u32', 0), k.var('u32', 0)]
    this.units = k.vars('u32', 4, 0)
    this.next = [k.var('u32', nowhere), k.var('u32', nowhere)]
    this.scales = c.rowScaled ? new RowScales(k, p, s) : undefined
  }

  /** All blocks of a token's list that have a valid key; one without any if none has. */
  list(token: U32): void {
    const { k, p } = this
    const count = this.count(token)
    const blocks = count.add(blockKeys - 1).shr(6)
    this.clear()
    this.prefetch(token, k.const('u32', 0), count)
    for (const block of k.range(blocks.add(1))) {
      const slots = this.next.map((slot, half) => this.inside(block, half, count).select(slot, nowhere)) as [U32, U32]
      this.prefetch(token, block.add(1), count)
      const found = slots.map(slot => k.ballot(slot.lt(p.slots))) as [U32, U32]
      const some = found[0].bitOr(found[1]).ne(0)
      const ends = block.eq(blocks)
      const units = this.unitsOf(slots)
      const taken = this.valid[0].bitOr(this.valid[1]).ne(0)
      k.whenUniform(ends.or(some.and(taken)), () => this.copy(ends))
      k.whenUniform(some, () => this.take(slots, units, found))
    }
  }

  /** Brings the list of a token to L2, by one thread. */
  foresee(token: U32): void {
    const { k, p } = this
    const row = k.offset(0, token, p.indicesStride)
    const [first, end] = [p.indices.address(row), p.indices.address(k.offset(row, p.topk, 1))]
    const from = first.bitAnd(unitMask)
    k.when(p.topk.gt(0), () => k.bulk.prefetch(from, end.add(15n).bitAnd(unitMask).sub(from).to('u32')))
  }

  /** A last block of zeros: the value roles open a block ahead, and stop before this one. */
  stop(): void {
    this.clear()
    this.copy(this.k.const('u32', 0).eq(0))
  }

  private clear(): void {
    for (const unit of this.units) unit.set(0)
    for (const valid of this.valid) valid.set(0)
    this.scales?.clear()
  }

  private count(token: U32): U32 {
    const { k, c, p } = this
    return entriesOf(c.lengths, p.topk, () => p.lengths.load(k.offset(0, token, p.lengthsStride)))
  }

  private entry(block: U32, half: number): U32 {
    return block
      .mul(blockKeys)
      .add(this.k.lane)
      .add(32 * half)
  }

  /** Whether this lane's entry of a half of a block is one of the list. */
  private inside(block: U32, half: number, count: U32): Val<'pred'> {
    return this.entry(block, half).lt(count)
  }

  /** Starts loads of a block's entries; nothing here may wait for them. */
  private prefetch(token: U32, block: U32, count: U32): void {
    const { k, p } = this
    const row = k.offset(0, token, p.indicesStride)
    this.next.forEach((slot, half) =>
      slot.set(p.indices.loadIf(this.inside(block, half, count), k.offset(row, this.entry(block, half), 1))),
    )
  }

  /** Where this lane's four rows of a block are. Exchanges wait for copies that were asked for before them. */
  private unitsOf(slots: readonly [U32, U32]): U32[] {
    const { k, p, warp } = this
    const within = warp.bitAnd(1).shl(4).add(k.lane.bitAnd(15))
    const slot = k.shuffle(warp.ge(2).select(slots[1], slots[0]), within)
    const page = slot.div(p.pageSize)
    const unit = page.mul(p.blockUnits).add(slot.sub(page.mul(p.pageSize)).mul(p.rowUnits))
    const own = slot.lt(p.slots).select(unit, 0)
    return this.units.map((_, i) => k.shuffle(own, k.lane.shr(3).add(4 * i)))
  }

  /** Makes a block the one to copy next. */
  private take(slots: readonly [U32, U32], units: readonly U32[], found: readonly [U32, U32]): void {
    const { k, warp } = this
    this.units.forEach((unit, i) => unit.set(units[i]!))
    this.valid.forEach((valid, half) => valid.set(found[half]!))
    k.whenUniform(warp.eq(0), () => this.scales?.take(slots))
  }

  /** Copies the block taken last. */
  private copy(ends: Val<'pred'>): void {
    const { k, p, s, ring, warp, units } = this
    const { index } = ring.vacant()
    k.whenUniform(warp.eq(0), () => {
      this.scales?.store(index)
      k.when(k.lane.eq(0), () => this.storeHeader(index, ends))
      k.warpBarrier()
      ring.fill(k.lane.eq(0))
    })
    const own = warp.ge(2).select(this.valid[1], this.valid[0]).shr(warp.bitAnd(1).shl(4))
    const sourceOf = (unit: U32, byte: U32): Val<'u64'> => p.values.address(byte).add(unit.mulWide(16))
    const validOf = (row: U32): U32 => own.shr(row).bitAnd(1).shl(4)
    const stage = index.mul(s.keys.nope.stageBytes)
    for (let i = 0; i < 4; i++) {
      const row = k.lane.shr(3).add(4 * i)
      const source = sourceOf(units[i]!, k.lane.bitAnd(7).shl(4))
      // Four rows on, the swizzle turns the pieces by four.
      const target = (i & 1 ? this.target.bitXor(64) : this.target).add(stage).add(4 * i * 128)
      for (let panel = 0; panel < nope / 128; panel++)
        k.threadCopies.load(target.add(panel * s.keys.nope.panelBytes), source.add(BigInt(128 * panel)), {
          valid: validOf(row),
        })
    }
    if (this.c.width > nope) {
      const ropeStage = index.mul(s.keys.rope.stageBytes)
      // Of eight lanes the second four take the rows of the last two units.
      const upper = k.lane.bitAnd(4).ne(0)
      for (let i = 0; i < 2; i++) {
        const row = k.lane
          .shr(3)
          .add(upper.select(k.const('u32', 8), 0))
          .add(4 * i)
        const source = sourceOf(upper.select(units[i + 2]!, units[i]!), k.lane.bitAnd(3).shl(4).add(nope))
        const target = (i === 1 ? this.ropeTarget.bitXor(32) : this.ropeTarget).add(ropeStage).add(i * 4 * 64)
        k.threadCopies.load(target, source, { valid: validOf(row) })
      }
    }
    ring.fillAfterCopies()
    ring.advance()
  }

  private storeHeader(index: U32, ends: Val<'pred'>): void {
    const { header } = this.s
    const at = index.mul(headerWords)
    this.valid.forEach((valid, half) => header.store(at.add(half), valid))
    header.store(at.add(2), ends.select(this.k.const('u32', 1), 0))
    header.store(at.add(3), this.scales?.most.bits() ?? 0)
  }
}

/** Arrivals that fill a stage of keys: each thread's copies, and the header. */
export const keyFills: number = 32 * warps + 1
