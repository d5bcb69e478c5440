/**
 * Level 1: one thread computes one score. The kernel is the formula with its loops; each thread reads a row of keys and
 * all of a token's queries from global memory, one byte at a time.
 *
 * npx tsx examples/level-1.ts [sim:sm_90a|cuda]
 */

import { kernel } from '../src/lang/kernel.ts'
import { input, output, u32 } from '../src/lang/params.ts'
import { depth, type Level, runAsMain } from './indexer.ts'

const threads = 128

export const level: Level = {
  name: 'level_1',
  small: { tokens: 2, heads: 3, keys: 70 },
  // Tokens go in y: a block belongs to one token.
  grid: ({ tokens, keys }) => [Math.ceil(keys / threads), tokens],
  trace: target =>
    kernel(
      {
        name: 'level_1',
        target,
        threads,
        params: {
          q: input('e4m3', '[tokens, heads, 128]'),
          weights: input('f32', '[tokens, heads]'),
          keys: input('e4m3', '[keys, 128]'),
          kScale: input('f32', '[keys]'),
          scores: output('f32', '[tokens, keys]'),
          keyCount: u32('keys'),
          heads: u32('heads'),
        },
      },
      (k, p) => {
        const token = k.blockIdx.y
        const key = k.blockIdx.x.mul(threads).add(k.threadIdx)
        // Threads beyond the last key have nothing to do; `k.when` switches them off.
        k.when(key.lt(p.keyCount), () => {
          // Offsets count elements in 64 bits: a pool of keys may have more than 2^32.
          const keyRow = k.offset(0, key, depth)
          // A value that changes from one round of a loop to the next is a variable.
          const sum = k.var('f32', 0)
          for (const head of k.range(p.heads)) {
            const tokenHead = token.mul(p.heads).add(head)
            const query = k.offset(0, tokenHead, depth)
            const dot = k.var('f32', 0)
            // Loads of e4m3 arrive as f32.
            for (const d of k.range(depth))
              dot.set(p.q.load(k.offset(query, d, 1)).fma(p.keys.load(k.offset(keyRow, d, 1)), dot))
            sum.set(dot.max(0).fma(p.weights.load(tokenHead), sum))
          }
          p.scores.store(k.offset(k.offset(0, key, 1), token, p.keyCount), sum.mul(p.kScale.load(key)))
        })
      },
    ),
}

await runAsMain(level, import.meta.url)
