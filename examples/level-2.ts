/**
 * Level 2: tiles in shared memory. A block of 128 threads takes 128 keys of one token. It brings 32 columns of the keys
 * and of 8 heads into shared memory, decoded once, and every thread (one key) forms 8 dot products in registers: an
 * element of the keys is now read from global memory once for 8 heads, a query element once for 128 keys.
 *
 * npx tsx examples/level-2.ts [sim:sm_90a|cuda]
 */

import { kernel } from '../src/lang/kernel.ts'
import { input, output, u32 } from '../src/lang/params.ts'
import { depth, type Level, runAsMain } from './indexer.ts'

const threads = 128
const columns = 32
const headTile = 8
/** One word more than the keys: the columns of one key then lie in different banks. */
const pitch = threads + 1

export const level: Level = {
  name: 'level_2',
  small: { tokens: 2, heads: 8, keys: 150 },
  grid: ({ tokens, keys }) => [Math.ceil(keys / threads), tokens],
  trace: target =>
    kernel(
      {
        name: 'level_2',
        target,
        threads,
        params: {
          q: input('e4m3', '[tokens, heads, 128]'),
          weights: input('f32', '[tokens, heads]'),
          keys: input('e4m3', '[keys, 128]'),
          kScale: input('f32', '[keys]'),
          scores: output('f32', '[tokens, keys]'),
          keyCount: u32('keys'),
          heads: u32('heads, a multiple of 8'),
        },
      },
      (k, p) => {
        const keyTile = k.shared('f32', columns * pitch)
        const queryTile = k.shared('f32', headTile * columns)
        const token = k.blockIdx.y
        const firstKey = k.blockIdx.x.mul(threads)
        const key = firstKey.add(k.threadIdx)
        // Lane l loads column l of a row: the 32 lanes of a warp read consecutive bytes.
        const column = k.threadIdx.rem(columns)
        const rowOfWarp = k.threadIdx.div(columns)
        const sum = k.var('f32', 0)

        for (const firstHead of k.range(p.heads, { step: headTile })) {
          // A plain JavaScript array of variables: eight registers, since indices are known while tracing.
          const dots = k.vars('f32', headTile, 0)
          for (const firstColumn of k.range(depth, { step: columns })) {
            // Nobody may still be reading the tile before.
            k.barrier()
            for (const row of k.range(threads, { start: rowOfWarp, step: threads / columns })) {
              // Rows beyond the last key are never read: `loadIf` gives 0 there.
              const at = k.offset(firstColumn.add(column), firstKey.add(row), depth)
              const element = p.keys.loadIf(firstKey.add(row).lt(p.keyCount), at)
              keyTile.store(column.mul(pitch).add(row), element)
            }
            for (const row of k.range(headTile, { start: rowOfWarp, step: threads / columns })) {
              const tokenHead = token.mul(p.heads).add(firstHead).add(row)
              const at = k.offset(firstColumn.add(column), tokenHead, depth)
              queryTile.store(row.mul(columns).add(column), p.q.load(at))
            }
            k.barrier()
            for (const d of k.range(columns)) {
              const element = keyTile.load(d.mul(pitch).add(k.threadIdx))
              // A JavaScript loop unrolls.
              dots.forEach((dot, h) => dot.set(element.fma(queryTile.load(d.add(h * columns)), dot)))
            }
          }
          dots.forEach((dot, h) => {
            const weight = p.weights.load(token.mul(p.heads).add(firstHead).add(h))
            sum.set(dot.max(0).fma(weight, sum))
          })
        }
        k.when(key.lt(p.keyCount), () =>
          p.scores.store(k.offset(k.offset(0, key, 1), token, p.keyCount), sum.mul(p.kScale.load(key))),
        )
      },
    ),
}

await runAsMain(level, import.meta.url)
