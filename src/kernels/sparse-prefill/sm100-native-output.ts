/**
 * The end of a token in native fp8 sparse prefill on Blackwell: O from tensor memory, divided by the denominators. bf16
 * goes through shared memory, where the rows were, and tensor stores; f32 straight to global memory, 32 bytes at a time.
 */

import type { KernelBuilder } from '../../lang/builder.ts'
import { pack } from '../../lang/packed.ts'
import type { TensorMemory } from '../../lang/tensor-memory.ts'
import type { Val } from '../../lang/value.ts'
import { storeWords } from '../../lang/wide.ts'
import { storeSharedWords } from '../../lang/words.ts'
import { type NativeItem, weightBias } from './native-config.ts'
import {
  groupHeads,
  type NativeSm100Config,
  type NativeSm100Params,
  type NativeSm100Shared,
  turnOf,
  valueColumns,
  weighBarrier,
  weighThreads,
} from './sm100-native-config.ts'
import { walkColumns, walkPlaces, walkValues } from './sm100-native-walk.ts'

type U32 = Val<'u32'>
type F32 = Val<'f32'>

const log2e = Math.log2(Math.E)
const ln2 = Math.LN2

/** A head's sums over the whole list: log2 units, with the bias of the weights. */
interface HeadResult extends NativeItem {
  readonly m: F32
  readonly top: F32
  readonly l: F32
  readonly most: F32
  readonly blocks: U32
}

export function storeOutput(
  k: KernelBuilder,
  c: NativeSm100Config,
  p: NativeSm100Params,
  s: NativeSm100Shared,
  memory: TensorMemory,
  result: HeadResult,
): void {
  const { token, firstHead, blocks } = result
  const row = k.threadIdx.bitAnd(groupHeads - 1)
  const upper = k.threadIdx.shr(Math.log2(groupHeads))
  const head = firstHead.add(row)
  const exists = head.lt(p.heads)
  const factor = finish(k, c, p, result, head, exists.and(upper.eq(0)))
  k.warpBarrier()
  const put = (column: number, values: readonly F32[]): void => {
    const at = upper.mul(valueColumns / 2).add(column)
    if (s.output !== undefined) {
      const words = Array.from({ length: 4 }, (_, i) => pack('bf16x2', values[2 * i]!, values[2 * i + 1]!))
      storeSharedWords(s.output.at(0, row, at.mul(2)), [words[0]!, words[1]!, words[2]!, words[3]!])
    } else {
      const first = k.offset(k.offset(at, token, p.outTokenStride), head, p.outHeadStride)
      k.when(exists, () => storeWords(p.out!.address(first), values))
    }
  }
  const putAll = (first: number, values: readonly F32[]): void => {
    for (let i = 0; i < values.length; i += 8) put(first + i, values.slice(i, i + 8))
    k.warpBarrier()
  }
  k.whenUniform(
    blocks.gt(0),
    () => {
      const { place, parity } = turnOf(blocks.sub(1))
      s.multiplied.wait(place, parity)
      memory.afterSync()
      walkValues(memory, ({ part, column }, values) =>
        putAll(
          part * valueColumns + column,
          values.map(value => value.mul(factor)),
        ),
      )
    },
    () => {
      const zero = k.var('f32', 0)
      for (const { part, column } of walkPlaces) putAll(part * valueColumns + column, new Array(walkColumns).fill(zero))
    },
  )
  if (s.output !== undefined) storeTiles(k, p, s, result)
}

/** lse and maxLogits by one of a head's two threads; what its O is multiplied by. */
function finish(
  k: KernelBuilder,
  c: NativeSm100Config,
  p: NativeSm100Params,
  { token, m, top, l, most }: HeadResult,
  head: U32,
  stores: Val<'pred'>,
): F32 {
  const some = l.gt(0).or(l.ne(l))
  const base = m.ne(Number.NEGATIVE_INFINITY).select(m, 0).sub(weightBias)
  const total = c.sink ? l.add(k.exp2(p.sink.loadIf(head.lt(p.heads), head).mul(log2e).sub(base))) : l
  const factor = (c.rowScaled ? most : k.const('f32', 1)).div(total)
  k.when(stores, () => {
    const lse = base.add(k.log2(l)).mul(ln2)
    p.lse.store(k.offset(head, token, p.lseStride), some.select(lse, Number.NEGATIVE_INFINITY))
    p.maxLogits.store(k.offset(head, token, p.maxLogitsStride), top.mul(ln2))
  })
  return some.select(factor, 0)
}

/** The bf16 tiles to the output; heads beyond the last are outside it. */
function storeTiles(
  k: KernelBuilder,
  p: NativeSm100Params,
  { output }: NativeSm100Shared,
  { token, firstHead }: NativeItem,
): void {
  k.fenceProxyAsync()
  k.barrierAmong(weighBarrier, weighThreads)
  k.when(k.threadIdx.eq(0), () => {
    for (let i = 0; i < output!.panels; i++)
      p.outTiles!.store(output!.address(0, i), [i * 64, firstHead.to('i32'), token.to('i32')])
    k.bulk.commit()
    k.bulk.waitRead(0)
  })
  k.warpBarrier()
}
