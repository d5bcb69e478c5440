/**
 * Level 4: tensor cores and roles. One warp copies, four multiply:
 *
 *   S[64 keys, heads] = K[64, 128] · Q[heads, 128]ᵀ            four m64nHk32 multiplies of e4m3 with f32 sums
 *
 * The operands stay in shared memory; S arrives in registers, spread over the 128 threads of the warpgroup: a thread
 * holds two keys (rows r and r + 8) and every fourth pair of heads, so the sum over heads ends with two exchanges
 * between neighbouring lanes. A ring of four stages lets the copies run ahead.
 *
 * npx tsx examples/level-4.ts [sim:sm_90a|cuda]
 */

import { kernel } from '../src/lang/kernel.ts'
import { input, output, tensorMap, u32 } from '../src/lang/params.ts'
import { depth, type Level, runAsMain } from './indexer.ts'

const tileKeys = 64
const stages = 4

export const level: Level = {
  name: 'level_4',
  small: { tokens: 2, heads: 64, keys: 300 },
  grid: ({ tokens, keys }) => [Math.min(8, Math.ceil(keys / tileKeys / 2)), tokens],
  trace: (target, { heads }) =>
    kernel(
      {
        name: 'level_4',
        target,
        threads: 256,
        params: {
          q: tensorMap({ dtype: 'e4m3', box: [depth, heads, 1], swizzle: 128 }, '[tokens, heads, 128]'),
          weights: input('f32', '[tokens, heads]'),
          keys: tensorMap({ dtype: 'e4m3', box: [depth, tileKeys], swizzle: 128 }, '[keys, 128]'),
          kScale: input('f32', '[keys]'),
          scores: output('f32', '[tokens, keys]'),
          keyCount: u32('keys'),
        },
      },
      (k, p) => {
        const queries = k.tile({ dtype: 'e4m3', rows: heads, columns: depth })
        const keys = k.tile({ dtype: 'e4m3', rows: tileKeys, columns: depth, stages })
        const queryArrived = k.barriers(1)
        // A pair of barriers for each stage: full (its bytes have landed), empty (128 threads are done with it).
        const ring = k.pipeline({ stages, producers: 1, consumers: 128 })
        const token = k.blockIdx.y
        const allTiles = p.keyCount.add(tileKeys - 1).div(tileKeys)
        const tiles = allTiles.sub(k.blockIdx.x).add(k.gridDim.x.sub(1)).div(k.gridDim.x)

        k.when(k.threadIdx.eq(0), () => {
          queryArrived.init(1)
          ring.init()
          k.fenceBarrierInit()
        })
        k.barrier()

        k.role('copy', { warps: [0, 1] }, () => {
          const producer = ring.producer()
          k.when(k.lane.eq(0), () => {
            queryArrived.arriveExpect(0, p.q.boxBytes)
            p.q.load(queries.address(), [0, 0, token.to('i32')], queryArrived.address(0))
            const tile = k.var('u32', k.blockIdx.x)
            for (const stage of producer.stages(tiles, p.keys.boxBytes)) {
              p.keys.load(keys.address(stage.index), [0, tile.mul(tileKeys).to('i32')], stage.full)
              tile.set(tile.add(k.gridDim.x))
            }
          })
        })

        k.role('multiply', { warps: [4, 8] }, () => {
          const consumer = ring.consumer()
          const scores = k.accumulator(heads)
          const quadLane = k.lane.bitAnd(3)
          const row = k.threadIdx.sub(128).shr(5).mul(16).add(k.lane.shr(2))
          // Element j of a thread is in row r + 8 · (bit 1 of j) and column 8 · (j / 4) + 2 · quadLane + (bit 0 of j).
          const columnOf = (j: number) => quadLane.mul(2).add(8 * (j >> 2) + (j & 1))
          const weights = Array.from({ length: scores.length }, (_, j) =>
            j & 2 ? undefined : p.weights.load(token.mul(heads).add(columnOf(j))),
          )
          queryArrived.wait(0, 0)
          const tile = k.var('u32', k.blockIdx.x)
          for (const stage of consumer.stages(tiles)) {
            k.warpgroup.fence()
            scores.multiply({ tile: keys, stage: stage.index }, { tile: queries })
            k.warpgroup.commit()
            k.warpgroup.wait(0)
            for (const half of [0, 1]) {
              let sum = k.const('f32', 0)
              for (let j = 0; j < scores.length; j++)
                if (((j >> 1) & 1) === half)
                  sum = scores
                    .get(j)
                    .max(0)
                    .fma(weights[j & ~2]!, sum)
              sum = sum.add(k.shuffleXor(sum, 1))
              sum = sum.add(k.shuffleXor(sum, 2))
              const key = tile
                .mul(tileKeys)
                .add(row)
                .add(8 * half)
              k.when(quadLane.eq(0).and(key.lt(p.keyCount)), () =>
                p.scores.store(k.offset(k.offset(0, key, 1), token, p.keyCount), sum.mul(p.kScale.load(key))),
              )
            }
            tile.set(tile.add(k.gridDim.x))
          }
        })
      },
    ),
}

await runAsMain(level, import.meta.url)
