import { describe, expect, test } from 'vitest'
import { seeded } from '../../../test/random.ts'
import { type CpuDevice, openCpuDevice } from '../../cpu/device.ts'
import { topK } from '../../ops/top-k.ts'
import { fromFloats, type Tensor } from '../../tensor/tensor.ts'

const rows = 64
const width = 65_536

const matrix = (score: (i: number) => number): Tensor<'f32'> =>
  fromFloats(
    'f32',
    [rows, width],
    Float32Array.from({ length: rows * width }, (_, i) => score(i % width)),
  )

/** The fastest of a few runs, in milliseconds. */
async function fastest(run: () => Promise<number>, runs = 7): Promise<number> {
  let best = Infinity
  for (let i = 0; i < runs; i++) best = Math.min(best, await run())
  return best
}

const topKTime = (device: CpuDevice, scores: Tensor<'f32'>, k: number): Promise<number> => {
  const uploaded = device.upload(scores)
  return fastest(() => device.time(() => topK(device, { scores: uploaded, k }))).finally(() => uploaded.dispose())
}

function sortTime(scores: Tensor<'f32'>): Promise<number> {
  return fastest(async () => {
    const copy = scores.codes().slice()
    const start = performance.now()
    for (let r = 0; r < rows; r++) copy.subarray(r * width, (r + 1) * width).sort()
    return performance.now() - start
  }, 3)
}

describe('64 rows of 65,536', () => {
  const random = matrix(seeded(1).normal)

  test('k 2048 on two threads takes at most 3 % of sorting the rows', async () => {
    await using device = await openCpuDevice({ threads: 2 })
    const ratio = (await topKTime(device, random, 2048)) / (await sortTime(random))
    expect(ratio).toBeLessThan(0.03)
  })

  test('TK-12: k 2048 takes at most twice as long as k 1024', async () => {
    await using device = await openCpuDevice({ threads: 1 })
    expect(await topKTime(device, random, 2048)).toBeLessThan(2 * (await topKTime(device, random, 1024)))
  })

  const hostile: Record<string, (i: number) => number> = {
    'all equal': () => 1,
    ascending: i => i,
    'one crowded bucket': i => 1 + ((i * 40_503) % width) / 2 ** 20,
    'a plateau of zeros': i => Math.max(0, (i % 1000) - 990),
  }
  test.each(Object.keys(hostile))('%s takes at most 3 times as long as random scores', async kind => {
    await using device = await openCpuDevice({ threads: 1 })
    const time = await topKTime(device, matrix(hostile[kind]!), 2048)
    expect(time).toBeLessThan(3 * (await topKTime(device, random, 2048)))
  })
})
