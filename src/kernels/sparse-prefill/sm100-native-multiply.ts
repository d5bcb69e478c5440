/**
 * The two multiplying threads of native fp8 sparse prefill on Blackwell. Each follows the ring of rows by itself: scores
 * of a block begin when its rows are there, and rows are given back when their block has been weighed and added, however
 * late the rows of the next one are.
 *
 *   S[64 heads, 64 keys] = Q[64, width] · K[64, width]ᵀ            width / 32 multiplies m64n64k32 .ws
 *   O[64 heads, 512] += P[64, 64 keys] · V[64 keys, 512]           2 × 2 multiplies m64n256k32 .ws, V transposed
 */

import type { KernelBuilder } from '../../lang/builder.ts'
import type { Consumer, Stage } from '../../lang/pipeline.ts'
import type { TensorMemory } from '../../lang/tensor-memory.ts'
import type { Val } from '../../lang/value.ts'
import { blockKeys } from './native-config.ts'
import {
  headerWords,
  type NativeSm100Shared,
  scoresAt,
  turnOf,
  valueColumns,
  valueParts,
  valuesAt,
} from './sm100-native-config.ts'

/** S of every block, in turns of four places. */
export function scoreThread(k: KernelBuilder, s: NativeSm100Shared, memory: TensorMemory): void {
  const keyRing = s.rings.keys.consumer()
  const scoreRing = s.rings.scores.producer()
  s.queried.wait(0, 0)
  eachBlock(k, s, keyRing, ({ index }) => {
    const scores = scoreRing.vacant()
    memory.afterSync()
    scoresAt(memory, scores.index).multiply({ tile: s.queries }, { tile: s.keys, stage: index })
    memory.commit(scores.full)
    scoreRing.advance()
  })
}

/** Adds every block to O, once it has been weighed; its rows are free afterwards. */
export function valueThread(k: KernelBuilder, s: NativeSm100Shared, memory: TensorMemory): void {
  const keyRing = s.rings.keys.consumer()
  const blocks = k.var('u32', 0)
  eachBlock(k, s, keyRing, keys => {
    const { place, parity } = turnOf(blocks)
    s.weighed.wait(place, parity)
    memory.afterSync()
    for (let part = 0; part < valueParts; part++)
      valuesAt(memory, part).multiply(
        { tile: s.weights, stage: place },
        { tile: s.keys, stage: keys.index, column: valueColumns * part, transposed: true },
        { accumulate: blocks, depth: blockKeys },
      )
    memory.commit(keyRing.emptied(keys))
    memory.commit(s.multiplied.address(place))
    blocks.set(blocks.add(1))
  })
}

/** Blocks until a header says that the list has ended; an arrival frees the header of each other one. */
function eachBlock(k: KernelBuilder, s: NativeSm100Shared, keyRing: Consumer, use: (keys: Stage) => void): void {
  k.repeat((): Val<'pred'> => {
    const keys = keyRing.acquire()
    const goesOn = s.header.load(keys.index.mul(headerWords).add(2)).eq(0)
    k.when(goesOn, () => {
      keyRing.free(keys)
      use(keys)
    })
    return goesOn
  })
}
