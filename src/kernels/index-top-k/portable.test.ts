import { afterAll, describe, expect, test } from 'vitest'
import { assembles } from '../../../test/gpu-cases.ts'
import { pageKeys, randomScoring, u32 } from '../../../test/index-cases.ts'
import { expectSelection } from '../../../test/selection-cases.ts'
import { expectIndexTopK, fusedOf } from '../../../test/selection-index-cases.ts'
import type { GpuPlan } from '../../lang/launch.ts'
import { indexTopK } from '../../ops/index-top-k.ts'
import { SimDevice } from '../../sim/device.ts'

const device = new SimDevice('sm_90a')
const portable = new SimDevice('sm_80')
afterAll(() => Promise.all([device.dispose(), portable.dispose()]))

describe('is indexScores and then topK', () => {
  test.each(['bf16', 'f32', 'e4m3'] as const)('%s keys on a GPU without Hopper instructions', async dtype => {
    const scoring = randomScoring({ tokens: 3, keys: 90, heads: 2, depth: 32, dtype })
    await expectIndexTopK(portable, { ...scoring, window: 'causal', k: 25 })
  })

  test('paged keys of two sequences, in windows of two rows of scratch', async () => {
    const { q, qScale, keys } = randomScoring({ tokens: 5, keys: 100, heads: 2, depth: 32 })
    const paged = pageKeys(keys, { pageSize: 16, lengths: [60, 40], layers: 2, layer: 1 })
    const args = {
      q,
      qScale,
      keys: { ...paged, cacheLength: u32(58, 37) },
      rowOffsets: u32(0, 2, 5),
      window: 'causal',
      k: 30,
    } as const
    const tight = { ...args, fused: false, budgetBytes: 2 * 4 * 60 }
    const plan = indexTopK.plan(portable, tight) as GpuPlan
    expect(plan.scratch.scores).toBe(2 * 4 * 60)
    expectSelection(await fusedOf(portable, tight), await expectIndexTopK(portable, args))
  })

  test('Hopper kernels in windows of scratch', async () => {
    const { q, qScale, keys } = randomScoring({ tokens: 4, keys: 100, heads: 64 })
    const args = { q, qScale, keys, window: 'causal', k: 20 } as const
    expectSelection(
      await fusedOf(device, { ...args, fused: false, budgetBytes: 400 }),
      await expectIndexTopK(device, args),
    )
  })
})

test('no tokens', async () => {
  const { q, qScale, keys } = randomScoring({ tokens: 1, keys: 20, heads: 2, depth: 32 })
  const none = { q: q.narrow(0, 0, 0), qScale: qScale.narrow(0, 0, 0), keys, window: 'all', k: 3 } as const
  expect((await fusedOf(portable, none)).counts.shape).toEqual([0])
})

assembles({
  'all kernels': d =>
    indexTopK.plan(d, { ...randomScoring({ tokens: 2, keys: 40, heads: 2, depth: 32 }), window: 'causal', k: 5 }),
})
