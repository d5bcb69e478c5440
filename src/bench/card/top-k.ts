/** Exact selection of 2048 at the shapes torch.topk is measured at. */

import { topK } from '../../ops/top-k.ts'
import type { Bench } from '../bench.ts'
import { repeated } from '../data.ts'
import { cardRunner } from './runner.ts'

const k = 2048

const bench = ([rows, width, torchUs]: readonly [number, number, number?]): Bench => ({
  op: 'topK',
  name: `${rows} × ${width}`,
  shape: `f32, k ${k}`,
  size: 'card',
  flops: 0,
  bytes: 4 * rows * (width + k),
  peer: torchUs === undefined ? undefined : { name: 'torch.topk', us: torchUs },
  prepare(device) {
    const scores = device.upload(repeated('f32', [rows, width], 1))
    return cardRunner(device, [scores], () => Object.values(topK(device, { scores, k })))
  },
})

export const cardTopK: readonly Bench[] = (
  [
    [2048, 8192, 301],
    [4096, 32_768, 1696],
    [2048, 65_536, 1664],
    [64, 131_072],
    [1, 131_072],
  ] as const
).map(bench)
