/**
 * The results of an item of the Hopper sparse kernel for few heads. The score role has l and m of the heads, the value role
 * Oᵀ; between them passes what Oᵀ of each head is multiplied by.
 *
 *   out = O / (l + 2^(sink log2 e - m))      lse = m ln 2 + ln l      maxLogits = scale · max s
 *
 * Of a part of a list: m ln 2 and l, largest logit and O, to be merged with the other parts; without a key that counts,
 * m = top = -inf and l = -1.
 */

import type { Accumulator } from '../../lang/accumulator.ts'
import type { Buffer } from '../../lang/buffer.ts'
import type { KernelBuilder } from '../../lang/builder.ts'
import { pack } from '../../lang/packed.ts'
import type { Val } from '../../lang/value.ts'
import { loadSharedWords } from '../../lang/words.ts'
import { ln } from '../exponential.ts'
import { emptySplit } from '../merge-splits-kernel.ts'
import { nope, panelColumns } from './sm90-config.ts'
import {
  type SparseFewConfig,
  type SparseFewParams,
  type SparseFewShared,
  turnBytes,
  warps,
} from './sm90-few-config.ts'
import type { FewSoftmax } from './sm90-few-softmax.ts'
import { partialRow } from './sm90-partial.ts'
import type { WorkItem } from './sm90-work.ts'

type U32 = Val<'u32'>
type F32 = Val<'f32'>

export class FewScoreOutput {
  private readonly k: KernelBuilder
  private readonly c: SparseFewConfig
  private readonly p: SparseFewParams
  private readonly s: SparseFewShared

  constructor(k: KernelBuilder, c: SparseFewConfig, p: SparseFewParams, s: SparseFewShared) {
    this.k = k
    this.c = c
    this.p = p
    this.s = s
  }

  /** Stores what the score role knows of the item, by its first warp; the factors go to `stage`. */
  finish(softmax: FewSoftmax, item: WorkItem, stage: U32): void {
    const { k, c, p, s } = this
    const within = k.lane
    const head = item.firstHead.add(within)
    const { sum, top, reference } = softmax.totals()
    const some = sum.gt(0).or(sum.ne(sum))
    const own = within.lt(c.heads).and(softmax.warp.eq(0))
    const real = own.and(head.lt(p.heads))
    const leave = (factor: F32): void =>
      k.when(own, () => s.factors.store(stage.mul(c.heads).add(within), some.select(factor, 0)))
    if (c.out === 'partial') {
      leave(k.const('f32', 1))
      k.when(real, () => {
        const row = partialRow(p, item, head)
        p.states.store(k.offset(0, row, 2), some.select(reference.mul(Math.LN2), Number.NEGATIVE_INFINITY))
        p.states.store(k.offset(1, row, 2), some.select(sum, emptySplit))
        p.tops.store(row, some.select(top.mul(p.scale), Number.NEGATIVE_INFINITY))
      })
      return
    }
    const sink = c.sink ? p.sink.loadIf(real, head) : undefined
    const total = sink === undefined ? sum : sum.add(k.exp2(sink.mul(Math.LOG2E).sub(reference)))
    leave(k.const('f32', 1).div(total))
    k.when(real, () => {
      const lse = reference.mul(Math.LN2).add(ln(k, sum))
      const at = (stride: U32) => k.offset(head, item.token, stride)
      p.lse.store(at(p.lseTokenStride), some.select(lse, Number.NEGATIVE_INFINITY))
      p.maxLogits.store(at(p.maxLogitsTokenStride), top.mul(p.scale))
    })
  }
}

/** Oᵀ to memory: element e of a group of eight heads is column g + 8 (e / 2) of the warp's 16, head 2q + e mod 2. */
export class FewValueOutput {
  private readonly k: KernelBuilder
  private readonly c: SparseFewConfig
  private readonly p: SparseFewParams
  private readonly s: SparseFewShared
  private readonly warp: U32

  constructor(k: KernelBuilder, c: SparseFewConfig, p: SparseFewParams, s: SparseFewShared) {
    this.k = k
    this.c = c
    this.p = p
    this.s = s
    this.warp = k.threadIdx.shr(5).bitAnd(warps - 1)
  }

  /** @param factors of the thread's heads, two of each eight */
  store(item: WorkItem, o: readonly Accumulator[], factors: readonly F32[]): void {
    for (let group = 0; group < this.c.heads / 8; group++) {
      const value = (tile: number, e: number): F32 => o[tile]!.get(4 * group + e).mul(factors[2 * group + (e & 1)]!)
      if (this.c.out === 'words') this.storeWords(item, group, o.length, value)
      else this.storeEach(item, group, o.length, value)
    }
  }

  /** One element at a time: those of eight lanes follow each other. */
  private storeEach(item: WorkItem, group: number, tiles: number, value: (tile: number, e: number) => F32): void {
    const { k, c, p, warp } = this
    const out = p.out as Buffer<'f32' | 'bf16'>
    const column = warp.mul(16).add(k.lane.shr(2))
    for (const odd of [0, 1]) {
      const head = item.firstHead.add(k.lane.bitAnd(3).mul(2)).add(8 * group + odd)
      k.when(head.lt(p.heads), () => {
        const row =
          c.out === 'partial'
            ? k.offset(column, partialRow(p, item, head), nope)
            : k.offset(k.offset(column, item.token, p.outTokenStride), head, p.outHeadStride)
        for (let tile = 0; tile < tiles; tile++)
          for (const half of [0, 1])
            out.store(k.offset(row, panelColumns * tile + 8 * half, 1), value(tile, 2 * half + odd))
      })
    }
  }

  /** Two tiles of 64 columns at a time, turned in shared memory: 16 bytes of a head in each lane, two lanes a sector. */
  private storeWords(item: WorkItem, group: number, tiles: number, value: (tile: number, e: number) => F32): void {
    const { k, p, s, warp } = this
    const out = p.out as Buffer<'u32'>
    const first = s.turn.byteAt().add(warp.mul(turnBytes))
    const piece = (head: U32, matrix: U32): U32 =>
      first.add(head.mul(64)).add(matrix.bitXor(head.shr(1).bitAnd(3)).mul(16))
    const [to, from] = [piece(k.lane.bitAnd(7), k.lane.shr(3)), piece(k.lane.shr(2), k.lane.bitAnd(3))]
    const head = item.firstHead.add(k.lane.shr(2)).add(8 * group)
    const matrix = k.lane.bitAnd(3)
    const column = matrix.shr(1).mul(panelColumns).add(warp.mul(16)).add(matrix.bitAnd(1).mul(8))
    for (let tile = 0; tile < tiles; tile += 2) {
      const words = [0, 1, 2, 3].map(i => {
        const [at, half] = [tile + (i >> 1), i & 1]
        return pack('bf16x2', value(at, 2 * half), value(at, 2 * half + 1))
      })
      k.storeMatrices(to, words, { transposed: true })
      k.warpBarrier()
      const turned = loadSharedWords(from)
      k.warpBarrier()
      k.when(head.lt(p.heads), () => {
        const row = k.offset(k.offset(0, item.token, p.outTokenStride), head, p.outHeadStride)
        out.store4(k.offset(row, column.add(panelColumns * tile).shr(1), 1), turned)
      })
    }
  }
}
