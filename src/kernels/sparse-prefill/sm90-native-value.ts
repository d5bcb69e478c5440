/**
 * A value warpgroup of native fp8 sparse prefill: half of the columns of V, all keys, all heads of the group.
 *
 *   Oᵀ[256 columns, heads] += Vᵀ[256, 64 keys] · P[heads, 64]ᵀ      8 multiplies m64nHk32 a block
 *
 * Hopper multiplies e4m3 along K only, and V lies with its columns along memory. So Vᵀ goes through registers: an ldmatrix
 * that transposes 16-bit elements brings pairs of columns, for keys 2q, 2q + 1 of 8; two `prmt` of the words of 16 keys
 * part the pairs. Row r of a warp's 16 rows of A is then column 2r of its 16 columns of V, row r + 8 column 2r + 1, and
 * the keys are in the order in which P is stored.
 */

import type { Accumulator } from '../../lang/accumulator.ts'
import type { KernelBuilder } from '../../lang/builder.ts'
import { Fragments } from '../../lang/fragments.ts'
import { pack, permuteBytes, reinterpret } from '../../lang/packed.ts'
import type { Consumer } from '../../lang/pipeline.ts'
import type { Val, Var } from '../../lang/value.ts'
import { blockKeys, type NativeItem } from './native-config.ts'
import {
  columnTiles,
  headerWords,
  type NativeSm90Config,
  type NativeSm90Params,
  type NativeSm90Shared,
  nativeItems,
  roleColumns,
  scoreHeads,
  warps,
} from './sm90-native-config.ts'

type U32 = Val<'u32'>
type F32 = Val<'f32'>

/** Keys of one multiply: half a block. */
const stepKeys = blockKeys / 2

export function valueRole(
  k: KernelBuilder,
  c: NativeSm90Config,
  p: NativeSm90Params,
  s: NativeSm90Shared,
  half: 0 | 1,
): void {
  const value = new Value(k, c, p, s, half)
  value.open()
  for (const item of nativeItems(k, p)) value.item(item)
}

class Value {
  private readonly k: KernelBuilder
  private readonly c: NativeSm90Config
  private readonly p: NativeSm90Params
  private readonly s: NativeSm90Shared
  private readonly half: 0 | 1
  private readonly keyRing: Consumer
  private readonly weightRing: Consumer
  /** Oᵀ in tiles of 64 columns. */
  private readonly o: readonly Accumulator[]
  /** Vᵀ of the open block's first keys, as A of a multiply of each tile. */
  private readonly first: readonly (readonly Var<'u32'>[])[]
  /** Stage of the open block, and whether an item ends with it. */
  private readonly stage: Var<'u32'>
  private readonly ends: Var<'u32'>
  private readonly warp: U32
  private readonly leader: Val<'pred'>
  /** Shared byte of this lane's row of the warp's 16 columns in an even tile, stage 0; 64 bytes beside in an odd one. */
  private readonly source: U32

  constructor(k: KernelBuilder, c: NativeSm90Config, p: NativeSm90Params, s: NativeSm90Shared, half: 0 | 1) {
    this.k = k
    this.c = c
    this.p = p
    this.s = s
    this.half = half
    this.keyRing = s.rings.keys.consumer()
    this.weightRing = s.rings.weights.consumer()
    this.o = Array.from({ length: columnTiles }, () => k.accumulator(c.heads))
    this.first = this.o.map(() => k.vars('u32', 4, 0))
    this.stage = k.var('u32', 0)
    this.ends = k.var('u32', 0)
    this.warp = k.threadIdx.shr(5).bitAnd(warps - 1)
    this.leader = k.lane.eq(0)
    this.source = s.keys.nope.at(0, k.lane, this.warp.mul(16))
  }

  item(item: NativeItem): void {
    const { k } = this
    const follows = k.var('u32', 0)
    k.repeat(() => {
      const more = this.block(follows)
      follows.set(1)
      return more
    })
    const { index } = this.weightRing.acquire()
    this.store(item, index)
    this.weightRing.release(this.leader)
  }

  /** Waits for the next block and brings Vᵀ of its first 32 keys to registers. */
  open(): void {
    const { index } = this.keyRing.acquire()
    this.stage.set(index)
    this.ends.set(this.s.header.load(index.mul(headerWords).add(2)))
    this.first.forEach((words, tile) => this.transposed(index, 0, tile).forEach((word, i) => words[i]!.set(word)))
  }

  /** Adds the open block to O where others came before, and opens the next; whether more follow in the item. */
  private block(follows: U32): Val<'pred'> {
    const { k, o, leader } = this
    const [index, ends] = [this.stage.add(0), this.ends.add(0)]
    const weights = this.weightRing.acquire()
    this.rescale(weights.index, follows)
    this.multiply(this.first, weights.index, 0, follows)
    const second = o.map((_, tile) => this.transposed(index, 1, tile))
    this.multiply(second, weights.index, 1, true)
    this.keyRing.release(leader)
    k.warpgroup.wait(1)
    this.open()
    k.warpgroup.wait(0)
    this.weightRing.release(leader)
    return ends.eq(0)
  }

  /** Oᵀ += Vᵀ Pᵀ over 32 keys. */
  private multiply(values: readonly (readonly U32[])[], stage: U32, step: number, accumulate: true | U32): void {
    const { k, s, o } = this
    const weights = { tile: s.weights, stage, column: step * stepKeys }
    k.warpgroup.fence()
    values.forEach((words, tile) => o[tile]!.multiply(new Fragments('e4m3', words), weights, { accumulate }))
    k.warpgroup.commit()
  }

  /** Vᵀ of 64 columns and 32 keys as A. */
  private transposed(index: U32, step: number, tile: number): U32[] {
    const { k, s, half, source } = this
    const { panelBytes, stageBytes } = s.keys.nope
    const panel = (half * columnTiles + tile) >> 1
    const at = (tile & 1 ? source.bitXor(64) : source)
      .add(index.mul(stageBytes))
      .add(panel * panelBytes + step * stepKeys * 128)
    const [a, b, c, d] = k.loadMatrices(at, 4, { transposed: true }) as [U32, U32, U32, U32]
    return [
      permuteBytes(a, b, 0x6420),
      permuteBytes(a, b, 0x7531),
      permuteBytes(c, d, 0x6420),
      permuteBytes(c, d, 0x7531),
    ]
  }

  /** Multiplies O by the factors of its heads, eight at a time, if any of them is not 1 and there is an O. */
  private rescale(index: U32, follows: U32): void {
    const { k, c, s } = this
    const changes = s.changes.load4(index.mul(warps)).reduce((a, b) => a.bitOr(b), follows.mul(0))
    k.whenUniform(changes.ne(0).and(follows.ne(0)), () => {
      for (let n = 0; n < c.heads; n += 8)
        k.whenUniform(changes.bitAnd(1 << (n / 8)).ne(0), () =>
          this.eachHead(index, n, (_, factor, elements) => {
            for (const { o, i } of elements) o.set(i, o.get(i).mul(factor))
          }),
        )
    })
  }

  /** The thread's two of eight heads within the group, their factors, and its elements of O of each: pairs of columns. */
  private eachHead(
    index: U32,
    n: number,
    use: (head: U32, factor: F32, elements: readonly { readonly o: Accumulator; readonly i: number }[]) => void,
  ): void {
    const { k, s, o } = this
    for (const e of [0, 1]) {
      const head = k.lane
        .bitAnd(3)
        .shl(1)
        .add(n + e)
      const factor = s.factors.load(index.mul(scoreHeads).add(head))
      const elements = o.flatMap(tile => [0, 2].map(row => ({ o: tile, i: n / 2 + row + e })))
      use(head, factor, elements)
    }
  }

  /** out = O times the factors, straight to memory: 32 bytes of each of four heads a warp and store of bf16. */
  private store({ token, firstHead }: NativeItem, index: U32): void {
    const { k, c, p, half } = this
    const first = this.warp
      .mul(16)
      .add(k.lane.shr(2).shl(1))
      .add(half * roleColumns)
    const row = k.offset(0, token, p.outTokenStride)
    const storeHead = (
      within: U32,
      factor: F32,
      elements: readonly { readonly o: Accumulator; readonly i: number }[],
    ) => {
      const head = firstHead.add(within)
      k.when(within.lt(p.groupHeads).and(head.lt(p.heads)), () => {
        const at = k.offset(row, head, p.outHeadStride)
        for (let tile = 0; tile < columnTiles; tile++) {
          const [even, odd] = elements.slice(2 * tile, 2 * tile + 2).map(({ o, i }) => o.get(i).mul(factor)) as [
            F32,
            F32,
          ]
          const column = first.add(64 * tile)
          if (c.out === 'bf16') {
            const pair = reinterpret(pack('bf16x2', even, odd), 'u32')
            p.out.store(k.offset(at, column.shr(1), 1), pair as never)
          } else [even, odd].forEach((value, i) => p.out.store(k.offset(at, column.add(i), 1), value as never))
        }
      })
    }
    for (let n = 0; n < c.heads; n += 8) this.eachHead(index, n, storeHead)
  }
}
