/**
 * The gathering warps of native fp8 sparse prefill on Blackwell: Q, then the rows of the token's list in blocks of 64 by
 * gather4, 64 bytes of four rows at a time. Warp w brings rows 16w to 16w + 15, one elected lane of it asks. Entries that
 * do not count become row -1, which arrives as zeros; blocks of nothing else are left out. After the last block comes a
 * stage without rows that says so.
 */

import type { KernelBuilder } from '../../lang/builder.ts'
import type { Producer } from '../../lang/pipeline.ts'
import type { Val, Var } from '../../lang/value.ts'
import { entriesOf } from '../list-length.ts'
import { blockKeys, type NativeItem, nowhere } from './native-config.ts'
import {
  gatherWarps,
  headerWords,
  type NativeSm100Config,
  type NativeSm100Params,
  type NativeSm100Shared,
  panel,
  warpRows,
} from './sm100-native-config.ts'

type U32 = Val<'u32'>

/** Arrivals that fill a stage: of each warp one before its gathers, and one after its notes. */
export const keyFills: number = 2 * gatherWarps

export function gatherRole(
  k: KernelBuilder,
  c: NativeSm100Config,
  p: NativeSm100Params,
  s: NativeSm100Shared,
  item: NativeItem,
): void {
  const gather = new Gather(k, c, p, s, item)
  k.whenUniform(gather.warp.eq(0), () => {
    k.when(k.elect(), () => loadQueries(p, s, item))
    k.warpBarrier()
  })
  gather.list()
  gather.end()
}

function loadQueries(p: NativeSm100Params, { queries, queried }: NativeSm100Shared, item: NativeItem): void {
  queried.arriveExpect(0, queries.stageBytes)
  const [head, token] = [item.firstHead.to('i32'), item.token.to('i32')]
  for (let i = 0; i < queries.panels; i++) p.q.load(queries.address(0, i), [panel * i, head, token], queried.address(0))
}

class Gather {
  readonly warp: U32
  private readonly k: KernelBuilder
  private readonly c: NativeSm100Config
  private readonly p: NativeSm100Params
  private readonly s: NativeSm100Shared
  private readonly token: U32
  private readonly ring: Producer
  /** Slots of keys `lane` and `lane + 32` of the next block. */
  private readonly next: readonly [Var<'u32'>, Var<'u32'>]

  constructor(
    k: KernelBuilder,
    c: NativeSm100Config,
    p: NativeSm100Params,
    s: NativeSm100Shared,
    { token }: NativeItem,
  ) {
    this.k = k
    this.c = c
    this.p = p
    this.s = s
    this.token = token
    this.warp = k.threadIdx.shr(5).bitAnd(gatherWarps - 1)
    this.ring = s.rings.keys.producer()
    this.next = [k.var('u32', nowhere), k.var('u32', nowhere)]
  }

  /** The blocks that have a valid key; all warps see the same ones. */
  list(): void {
    const { k, p } = this
    const count = this.count()
    this.prefetch(k.const('u32', 0), count)
    for (const block of k.range(count.add(blockKeys - 1).div(blockKeys))) {
      const slots = this.next.map(slot => slot.add(0)) as [U32, U32]
      this.prefetch(block.add(1), count)
      const valid = slots.map(slot => k.ballot(slot.lt(p.slots))) as [U32, U32]
      k.whenUniform(valid[0].bitOr(valid[1]).ne(0), () => this.bring(slots, valid))
    }
  }

  /** The stage that says that there is no further block. */
  end(): void {
    const { k, ring } = this
    const { index } = ring.vacant()
    this.storeHeader(index, [k.const('u32', 0), k.const('u32', 0), k.const('u32', 1)])
    k.when(k.lane.eq(0), () => {
      ring.fill()
      ring.fill()
    })
    k.warpBarrier()
  }

  private count(): U32 {
    const { k, c, p, token } = this
    return entriesOf(c.lengths, p.topk, () => p.lengths.load(k.offset(0, token, p.lengthsStride)))
  }

  private prefetch(block: U32, count: U32): void {
    const { k, p, token } = this
    const row = k.offset(0, token, p.indicesStride)
    this.next.forEach((slot, half) => {
      const j = block
        .mul(blockKeys)
        .add(k.lane)
        .add(32 * half)
      const inside = j.lt(count)
      slot.set(inside.select(p.indices.loadIf(inside, k.offset(row, j, 1)), nowhere))
    })
  }

  private bring(slots: readonly [U32, U32], valid: readonly [U32, U32]): void {
    const { k, c, p, s, ring, warp } = this
    const within = warp
      .bitAnd(1)
      .mul(warpRows)
      .add(k.lane.bitAnd(warpRows - 1))
    const slot = k.shuffle(warp.ge(2).select(slots[1], slots[0]), within)
    const exists = slot.lt(p.slots)
    const page = slot.div(p.pageSize)
    const offset = slot.sub(page.mul(p.pageSize))
    const row = exists.select(page.mul(p.blockRows).add(offset), nowhere)
    const rows = Array.from({ length: warpRows }, (_, i) => k.shuffle(row, i).to('i32'))
    const scale = c.rowScaled
      ? p.scales.loadIf(exists, k.offset(k.offset(0, page, p.scalesBlockStride), offset, p.scalesRowStride))
      : undefined
    const { index, full } = ring.vacant()
    k.when(k.elect(), () => {
      ring.announce((c.width / panel) * (warpRows / 4) * p.rows.gatherBytes)
      const first = s.keys.address(index).add(warp.mul(warpRows * panel))
      for (const i of k.range(c.width / panel))
        for (let at = 0; at < warpRows; at += 4)
          p.rows.gather(
            first.add(i.mul(s.keys.panelBytes)).add(at * panel),
            i.mul(panel).to('i32'),
            [rows[at]!, rows[at + 1]!, rows[at + 2]!, rows[at + 3]!],
            full,
          )
    })
    k.warpBarrier()
    if (scale !== undefined)
      k.when(k.lane.lt(warpRows), () =>
        s.rowScale.store(index.mul(blockKeys).add(warp.mul(warpRows)).add(k.lane), scale),
      )
    this.storeHeader(index, [valid[0], valid[1], k.const('u32', 0)])
    ring.fill(k.lane.eq(0))
    ring.advance()
  }
  /** Valid keys and whether the list has ended, by the first warp. */
  private storeHeader(index: U32, [low, high, ended]: readonly [U32, U32, U32]): void {
    const { k, s, warp } = this
    const { lane } = k
    k.when(warp.eq(0).and(lane.lt(headerWords)), () => {
      const word = lane.eq(0).select(low, lane.eq(1).select(high, lane.eq(2).select(ended, 0)))
      s.header.store(index.mul(headerWords).add(lane), word)
    })
    k.warpBarrier()
  }
}
