/** One sparse prefill as plain data, to run in Node and in a page and compare. */

import type * as library from '../../src/index.ts'
import { seeded } from '../random.ts'

/** Names the kernels' build and the threads; either may be left to the device. */
export interface RunOptions {
  readonly threads?: number
  readonly build?: 'relaxed' | 'simd128'
}

export interface PrefillData {
  readonly tokens: number
  readonly heads: number
  readonly width: number
  readonly topk: number
  readonly blocks: number
  readonly pageSize: number
  readonly scale: number
  readonly q: readonly number[]
  readonly cache: readonly number[]
  readonly indices: readonly number[]
}

export interface PrefillRun {
  readonly explain: string
  readonly out: readonly number[]
  readonly lse: readonly number[]
}

/** Signed values; lists with duplicates and invalid entries. */
export function prefillData(): PrefillData {
  const { normal, int } = seeded(7)
  const [tokens, heads, width, topk, blocks, pageSize] = [6, 5, 576, 70, 7, 16]
  const floats = (size: number): number[] => Array.from({ length: size }, () => Math.fround(normal()))
  return {
    ...{ tokens, heads, width, topk, blocks, pageSize },
    scale: 0.07,
    q: floats(tokens * heads * width),
    cache: floats(blocks * pageSize * width),
    indices: Array.from({ length: tokens * topk }, () => int(blocks * pageSize + 20) - 10),
  }
}

/** The package's entry point: `dist/index.js` in Node, the same file by address in a page. */
type Library = typeof library

/** Runs the data. Self-contained, so that a page can be given its text. */
export async function runPrefill(from: Library, data: PrefillData, options: RunOptions): Promise<PrefillRun> {
  const { fromFloats, openDevice, slots, sparsePrefill, tensor } = from
  const { tokens, heads, width, topk, blocks, pageSize, scale } = data
  const device = await openDevice('cpu', options)
  const values = fromFloats('f32', [blocks, 1, pageSize, width], data.cache)
  const { out, lse } = sparsePrefill(device, {
    q: fromFloats('f32', [tokens, heads, width], data.q),
    cache: { format: 'plain', values, scaleBlock: 0, layer: 0 },
    indices: slots(tensor('i32', [tokens, topk], Int32Array.from(data.indices))),
    scale,
  })
  const run = {
    explain: device.explain(),
    out: [...(await out.read()).floats()],
    lse: [...(await lse.read()).floats()],
  }
  await device.dispose()
  return run
}
