/** The block's copy engine (TMA) as one warp uses it: boxes and consecutive bytes between global and shared memory. */

import { dtypeInfo } from '../dtypes/dtype.ts'
import type { CopyEngine, TensorCopy, TensorStore } from '../lang/machine.ts'
import { swizzled, swizzleRepeat } from '../lang/swizzle.ts'
import type { Block } from './block.ts'
import { Clock } from './clock.ts'
import { byteOf, rankOf } from './cluster-address.ts'
import { LaneGroups } from './lane-groups.ts'
import type { Accessor } from './shadow.ts'
import { type BoxRow, boxRows, checkMap, type TensorMapEntry } from './tensor-copy.ts'
import type { Warp } from './warp.ts'

/** Consecutive bytes to bring: where from (undefined: zeros) and where to, already swizzled, 16 at a time. */
interface Chunk {
  readonly from: Uint8Array | undefined
  readonly to: number
  readonly bytes: number
}

/** A store: its reads of shared memory and its writes of global memory end apart. */
interface Store {
  readonly read: number
  readonly written: number
  land(): void
}

type Load = Pick<TensorCopy, 'target' | 'barrier' | 'multicast' | 'pair'>

export class SimCopyEngine implements CopyEngine {
  private readonly warp: Warp
  private readonly block: Block
  private readonly groups = new LaneGroups<Store>()

  constructor(warp: Warp, block: Block) {
    this.warp = warp
    this.block = block
  }

  private get context() {
    return this.block.cluster.context
  }

  tensorLoad({ map, coordinates, ...load }: TensorCopy): void {
    const entry = this.entry(map, load.target)
    const reader = this.warp.asyncAccessor()
    const rows = [...boxRows(entry, coordinates, load.target)]
    const chunks = rows.flatMap(row => this.chunksOf(row, this.globalRow(row, reader), entry))
    this.bring(chunks, load)
  }

  gatherRows({ map, column, rows, ...load }: Parameters<CopyEngine['gatherRows']>[0]): void {
    const entry = this.entry(map, load.target, 128)
    if (entry.param.box.length !== 2 || entry.param.box[1] !== 1)
      this.warp.report('copy', `a gather with boxes of [${entry.param.box}]; expected one row of a matrix`)
    const reader = this.warp.asyncAccessor()
    const pitch = entry.param.box[0] * dtypeInfo[entry.param.dtype].bytes
    const chunks = rows.flatMap((row, i) =>
      [...boxRows(entry, [column, row], load.target + i * pitch)].flatMap(r =>
        this.chunksOf(r, this.globalRow(r, reader), entry),
      ),
    )
    this.block.counters.bytes.gathered += rows.length * pitch
    this.bring(chunks, load, true)
  }

  bulkLoad({ source, bytes, ...load }: Parameters<CopyEngine['bulkLoad']>[0]): void {
    this.checkBulk(bytes, load.target, source)
    const reader = this.warp.asyncAccessor()
    this.bring([{ from: this.globalBytes(source, bytes, reader, 'read'), to: load.target, bytes }], load)
  }

  /** Starts a copy into the shared memory of each receiving block; its bytes are signalled there later. */
  private bring(chunks: readonly Chunk[], { target, barrier, multicast, pair = false }: Load, isGather = false): void {
    const { warp, block, context } = this
    const ranks = multicast === undefined ? [block.rank] : [...Array(16).keys()].filter(r => (multicast >> r) & 1)
    const total = chunks.reduce((sum, { bytes }) => sum + bytes, 0)
    this.block.counters.bytes.copied += total
    const before = warp.clock.before()
    for (const rank of ranks) {
      const into = block.cluster.blockOf(rank, warp)
      if (into === undefined) continue
      const by = warp.asyncAccessor()
      block.cluster.remoteAccess(into, by, warp)
      block.cluster.mustEnd(by, `the copy to shared byte ${target}`)
      const allowed = chunks.filter(({ to, bytes }) => into.asyncWrite(by, to, bytes))
      const land = (): void => {
        for (const { from, to, bytes } of allowed) into.place(to, from?.slice() ?? new Uint8Array(bytes))
      }
      const counting = pair ? block.cluster.blocks[rank & ~1]! : into
      if (counting !== into) block.cluster.remoteAccess(counting, by, warp)
      const state = counting.mbarrier(warp, barrier)
      state.checkVisible(warp.clock, warp.site)
      if (context.landing === 'early') land()
      const signal = (): void => {
        if (context.landing === 'late') land()
        state.complete(total, this.ended(by, before))
      }
      block.cluster.inFlight.push({ at: this.arrival(total, isGather), signal })
    }
  }

  tensorStore(lane: number, { map, coordinates, source }: TensorStore): void {
    const entry = this.entry(map, source)
    if (coordinates.some(c => c < 0))
      this.warp.report('copy', `a tensor store at [${coordinates}]; coordinates of stores are not negative`)
    const [reader, writer] = [this.warp.asyncAccessor(), this.warp.asyncAccessor()]
    const moves = [...boxRows(entry, coordinates, source)].map(row => {
      const chunks = this.chunksOf(row, undefined, entry)
      for (const { to } of chunks) this.block.asyncRead(reader, to, 16)
      const into = row.valid === 0 ? undefined : this.globalBytes(row.source, row.valid, writer, 'write', 1)
      return { row, chunks, into }
    })
    const bytes = moves.reduce((sum, { row }) => sum + row.valid, 0)
    this.keep(lane, bytes, reader, writer, () => {
      for (const { row, chunks, into } of moves) {
        const image = new Uint8Array(row.bytes)
        chunks.forEach(({ to }, i) => image.set(this.block.shared.bytes.subarray(to, to + 16), 16 * i))
        into?.set(image.subarray(row.skip, row.skip + row.valid))
      }
    })
  }

  bulkStore(lane: number, { source, target, bytes }: Parameters<CopyEngine['bulkStore']>[1]): void {
    this.checkBulk(bytes, source, target)
    const [reader, writer] = [this.warp.asyncAccessor(), this.warp.asyncAccessor()]
    const from = this.block.asyncRead(reader, source, bytes)
    const into = this.globalBytes(target, bytes, writer, 'write')
    this.keep(lane, bytes, reader, writer, () => into?.set(from))
  }

  push({ source, target, bytes, barrier }: Parameters<CopyEngine['push']>[0]): void {
    const { warp, block } = this
    this.checkBulk(bytes, source, BigInt(byteOf(target)))
    if (rankOf(target) !== rankOf(barrier))
      warp.report('copy', `a copy to block ${rankOf(target)} signals a barrier of block ${rankOf(barrier)}`)
    const into = block.cluster.blockOf(rankOf(target), warp)
    if (into === undefined) return
    const by = warp.asyncAccessor()
    const from = block.asyncRead(by, source, bytes)
    this.block.counters.bytes.copied += bytes
    this.arriveWithBytes(into, byteOf(target), () => from, bytes, byteOf(barrier), by)
  }

  storeAsync(target: number, bytes: Uint8Array, barrier: number): void {
    const { warp, block } = this
    if (rankOf(target) !== rankOf(barrier))
      warp.report('copy', `a store to block ${rankOf(target)} signals a barrier of block ${rankOf(barrier)}`)
    const into = block.cluster.blockOf(rankOf(target), warp)
    if (into === undefined) return
    const by: Accessor = { ...warp.asyncAccessor(), proxy: 'generic' }
    this.arriveWithBytes(into, byteOf(target), () => bytes, bytes.length, byteOf(barrier), by)
  }

  commit(lane: number): void {
    this.groups.commit(lane)
  }

  wait(lane: number, pending: number, until: 'read' | 'written'): void {
    const { clock, actor } = this.warp
    for (const store of this.groups.waited(lane, pending, until === 'written')) {
      store.land()
      clock.complete(actor, store.read)
      if (until === 'written') clock.complete(actor, store.written)
    }
  }

  /** Bytes for another block, signalled on its barrier. */
  private arriveWithBytes(
    into: Block,
    target: number,
    from: () => Uint8Array,
    bytes: number,
    barrier: number,
    by: Accessor,
  ): void {
    const { warp, block, context } = this
    block.cluster.remoteAccess(into, by, warp)
    block.cluster.mustEnd(by, `the copy to shared byte ${target} of block ${into.number}`)
    const allowed = into.asyncWrite(by, target, bytes)
    const land = (): void => {
      if (allowed) into.place(target, from())
    }
    const state = into.mbarrier(warp, barrier)
    state.checkVisible(warp.clock, warp.site)
    if (context.landing === 'early') land()
    const before = warp.clock.before()
    const signal = (): void => {
      if (context.landing === 'late') land()
      state.complete(bytes, this.ended(by, before))
    }
    block.cluster.inFlight.push({ at: this.arrival(bytes), signal })
  }

  /** When a copy that is issued now arrives, in a timeline. */
  private arrival(bytes: number, isGather = false): number {
    const { block, warp } = this
    return block.cluster.timing?.copy(block.number, warp.timer!.time, bytes, isGather) ?? 0
  }

  /** @param before the steps before it was issued */
  private ended(by: Accessor, before: Int32Array): Clock {
    const done = new Clock(this.block.cluster.actors)
    done.past.set(before)
    done.complete(by.warp, by.stamp)
    return done
  }

  /** A store into the lane's open group; it lands when waited for, or at the end. */
  private keep(lane: number, bytes: number, reader: Accessor, writer: Accessor, move: () => void): void {
    let landed = false
    const land = (): void => {
      if (!landed) move()
      landed = true
    }
    const { cluster } = this.block
    this.block.counters.bytes.copied += bytes
    cluster.mustEnd(reader, 'a store that reads shared memory')
    if (this.context.landing === 'early') land()
    else cluster.atEnd(land)
    this.groups.add(lane, { read: reader.stamp, written: writer.stamp, land })
  }

  /** What a map describes; a whole box begins where its swizzle repeats. */
  private entry(map: bigint, shared: number, least?: number): TensorMapEntry {
    const entry = this.context.maps.get(map)!
    const problem = checkMap(entry)
    if (problem !== undefined) this.warp.report('copy', problem)
    const alignment = least ?? Math.max(128, swizzleRepeat(entry.param.swizzle))
    if (shared % alignment !== 0)
      this.warp.report('misaligned', `tensor copy at shared byte ${shared}; expected a multiple of ${alignment}`)
    return entry
  }

  private checkBulk(bytes: number, shared: number, other: bigint): void {
    if (bytes % 16 !== 0 || bytes === 0)
      this.warp.report('copy', `a bulk copy of ${bytes} bytes; expected a multiple of 16`)
    if (shared % 16 !== 0 || other % 16n !== 0n)
      this.warp.report('misaligned', `a bulk copy between shared byte ${shared} and ${other}; expected multiples of 16`)
  }

  /** Pieces of 16 bytes of one row, through the swizzle. */
  private chunksOf(row: BoxRow, from: Uint8Array | undefined, { param }: TensorMapEntry): Chunk[] {
    return Array.from({ length: row.bytes / 16 }, (_, i) => ({
      from: from?.subarray(16 * i, 16 * i + 16),
      to: swizzled(row.target + 16 * i, param.swizzle),
      bytes: 16,
    }))
  }

  /** The bytes of a row, in a buffer that follows global memory until the copy lands; undefined for zeros. */
  private globalRow(row: BoxRow, by: Accessor): Uint8Array | undefined {
    if (row.valid === 0) return undefined
    const found = this.globalBytes(row.source, row.valid, by, 'read', 1)
    if (found === undefined || row.valid === row.bytes) return found
    const padded = new Uint8Array(row.bytes)
    padded.set(found, row.skip)
    return padded
  }

  private globalBytes(
    address: bigint,
    bytes: number,
    by: Accessor,
    kind: 'read' | 'write',
    alignment = 16,
  ): Uint8Array | undefined {
    const found = this.context.global.find(address, bytes, by.site, alignment)
    if (found === undefined) return undefined
    found.buffer.shadow[kind](by, found.offset, bytes)
    return found.buffer.bytes.subarray(found.offset, found.offset + bytes)
  }
}
