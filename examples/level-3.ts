/**
 * Level 3: copies by the copy engine. Tiles of 128 keys go from global to shared memory without passing through
 * registers, and the next one travels while the threads work on this one. An mbarrier counts the bytes of a tile; the
 * threads wait on it. The bytes lie swizzled in shared memory, so that rows do not collide in its banks.
 *
 * npx tsx examples/level-3.ts [sim:sm_90a|cuda]
 */

import { kernel } from '../src/lang/kernel.ts'
import { halvesOf, reinterpret, unpack } from '../src/lang/packed.ts'
import { input, output, tensorMap, u32 } from '../src/lang/params.ts'
import type { Val } from '../src/lang/value.ts'
import { depth, type Level, runAsMain } from './indexer.ts'

const threads = 128
const tileKeys = 128
const stages = 2

/** Four e4m3 bytes of a word as f32. */
const decoded = (word: Val<'u32'>): Val<'f32'>[] =>
  [word, word.shr(16)].flatMap(half => unpack(halvesOf(reinterpret(half.to('b16'), 'e4m3x2'))))

export const level: Level = {
  name: 'level_3',
  small: { tokens: 2, heads: 8, keys: 300 },
  // Up to 32 blocks share the tiles of a token.
  grid: ({ tokens, keys }) => [Math.min(32, Math.ceil(keys / tileKeys / 2)), tokens],
  trace: (target, { heads }) =>
    kernel(
      {
        name: 'level_3',
        target,
        threads,
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
        const arrived = k.barriers(stages)
        const token = k.blockIdx.y
        const first = k.threadIdx.eq(0)
        const firstTile = k.blockIdx.x
        // Tiles blockIdx.x, blockIdx.x + gridDim.x, …
        const tiles = p.keyCount
          .add(tileKeys - 1)
          .div(tileKeys)
          .sub(firstTile)
          .add(k.gridDim.x.sub(1))
          .div(k.gridDim.x)
        const tileAt = (i: Val<'u32'>): Val<'u32'> => firstTile.add(i.mul(k.gridDim.x))

        k.when(first, () => {
          arrived.init(1)
          k.fenceBarrierInit()
        })
        k.barrier()
        // The thread that asks for a copy first announces its bytes: the barrier opens when they have all landed.
        const copyKeys = (i: Val<'u32'>, stage: Val<'u32'>, moreBytes = 0): void => {
          arrived.arriveExpect(stage, p.keys.boxBytes + moreBytes)
          p.keys.load(keys.address(stage), [0, tileAt(i).mul(tileKeys).to('i32')], arrived.address(stage))
        }
        k.when(first.and(tiles.gt(0)), () => {
          const zero = k.const('u32', 0)
          copyKeys(zero, zero, p.q.boxBytes)
          p.q.load(queries.address(), [0, 0, token.to('i32')], arrived.address(zero))
        })

        for (const i of k.range(tiles)) {
          const stage = i.bitAnd(1)
          const next = i.add(1)
          k.when(first.and(next.lt(tiles)), () => copyKeys(next, next.bitAnd(1)))
          // Each use of a stage is one phase of its barrier; their parities alternate.
          arrived.wait(stage, i.shr(1).bitAnd(1))
          const key = tileAt(i).mul(tileKeys).add(k.threadIdx)
          const words = Array.from({ length: depth / 4 }, (_, w) => keys.loadWord(keys.at(stage, k.threadIdx, 4 * w)))
          const row = words.flatMap(decoded)
          const sum = k.var('f32', 0)
          for (const head of k.range(heads)) {
            const dot = k.var('f32', 0)
            for (let w = 0; w < depth / 4; w++)
              decoded(queries.loadWord(queries.at(0, head, 4 * w))).forEach((x, e) =>
                dot.set(x.fma(row[4 * w + e]!, dot)),
              )
            sum.set(dot.max(0).fma(p.weights.load(token.mul(heads).add(head)), sum))
          }
          k.when(key.lt(p.keyCount), () =>
            p.scores.store(k.offset(k.offset(0, key, 1), token, p.keyCount), sum.mul(p.kScale.load(key))),
          )
          // All threads have read this stage; the next round may overwrite it.
          k.barrier()
        }
      },
    ),
}

await runAsMain(level, import.meta.url)
