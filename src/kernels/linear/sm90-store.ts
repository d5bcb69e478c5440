/** Outputs of a warpgroup's 64 tokens, from accumulators to memory: rounded through shared memory, or f32 directly. */

import type { Accumulator } from '../../lang/accumulator.ts'
import type { Buffer } from '../../lang/buffer.ts'
import type { KernelBuilder } from '../../lang/builder.ts'
import { pack } from '../../lang/packed.ts'
import type { SmemTile } from '../../lang/smem-tile.ts'
import type { TensorMap } from '../../lang/tensor-map.ts'
import type { Val } from '../../lang/value.ts'

type U32 = Val<'u32'>

/** Where a warpgroup's tile begins. */
export interface Place {
  readonly head: U32
  readonly token: U32
  readonly output: U32
}

/** Outputs that leave at a time: the columns of `leaving`, two boxes. */
const leavingColumns = 128
const boxColumns = 64

/**
 * bf16 outputs, 128 columns at a time: as matrices into the warpgroup's stage of `leaving`, from there by the copy engine,
 * which leaves out what is beyond the tensor. The stage is taken again once the copies before have read it.
 */
export function storeRounded(
  k: KernelBuilder,
  out: TensorMap,
  sums: Accumulator,
  leaving: SmemTile,
  side: 0 | 1,
  { head, token, output }: Place,
): void {
  const thread = k.threadIdx.bitAnd(127)
  const matrix = k.lane.shr(3)
  const row = thread.shr(5).mul(16).add(matrix.bitAnd(1).mul(8)).add(k.lane.bitAnd(7))
  const byte = matrix.shr(1).mul(16)
  const word = (j: number) => pack('bf16x2', sums.get(j), sums.get(j + 1))
  const barrier = 1 + side
  for (let first = 0; first < sums.n; first += leavingColumns) {
    k.when(thread.eq(0), () => k.bulk.waitRead(0))
    k.barrierAmong(barrier, 128)
    for (let column = first; column < first + leavingColumns; column += 16) {
      const j = column / 2
      const words = [word(j), word(j + 2), word(j + 4), word(j + 6)]
      k.storeMatrices(leaving.at(side, row, byte.add(2 * (column - first))), words)
    }
    k.fenceProxyAsync()
    k.barrierAmong(barrier, 128)
    k.when(thread.eq(0), () => {
      for (let panel = 0; panel < leavingColumns / boxColumns; panel++) {
        const from = output.add(first + panel * boxColumns).to('i32')
        out.store(leaving.address(side, panel), [from, head.to('i32'), token.to('i32')])
      }
      k.bulk.commit()
    })
  }
}

interface SumsParams extends Readonly<Record<'tokens' | 'outputs' | 'outTokenStride' | 'outHeadStride', U32>> {
  readonly out: Buffer<'f32'>
}

/**
 * f32 outputs. Of 8 columns a lane holds two of row r and two of row r + 8; even lanes trade the latter for their
 * neighbour's of row r, so that each stores four columns of one row.
 */
export function storeSums(k: KernelBuilder, p: SumsParams, sums: Accumulator, { head, token, output }: Place): void {
  const thread = k.threadIdx.bitAnd(127)
  const odd = k.lane.bitAnd(1)
  const isOdd = odd.ne(0)
  const row = token.add(thread.shr(5).mul(16)).add(k.lane.shr(2)).add(odd.mul(8))
  const column = output.add(k.lane.bitAnd(2).mul(2))
  const base = k.offset(k.offset(column, row, p.outTokenStride), head, p.outHeadStride)
  const exists = row.lt(p.tokens)
  for (let j = 0; j < sums.length; j += 4) {
    const [a, b, c, d] = [sums.get(j), sums.get(j + 1), sums.get(j + 2), sums.get(j + 3)]
    const [x, y] = [k.shuffleXor(isOdd.select(a, c), 1), k.shuffleXor(isOdd.select(b, d), 1)]
    const four = [isOdd.select(x, a), isOdd.select(y, b), isOdd.select(c, x), isOdd.select(d, y)]
    k.when(exists.and(column.add(2 * j).lt(p.outputs)), () => p.out.store4(k.offset(base, 2 * j, 1), four))
  }
}
