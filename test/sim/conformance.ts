/**
 * The conformance table on the simulator of an H200, in shares that run side by side. A simulator computes the same bits
 * however often it is asked, so calls that are to have the same bits every time run under several orders of warps instead.
 */

import { afterAll, describe, expect, test } from 'vitest'
import { runCase } from '../../src/conformance/case.ts'
import { conformanceCases } from '../../src/conformance/cases.ts'
import { determinismCases, sameOnAll } from '../../src/conformance/determinism.ts'
import { openDevice } from '../../src/open-device.ts'
import { SimDevice } from '../../src/sim/device.ts'

/** Operations by share; together the whole table. */
export const shares: Readonly<Record<'prefill' | 'decode' | 'others', readonly string[]>> = {
  prefill: ['sparsePrefill'],
  decode: ['sparseDecode', 'denseDecode'],
  others: [
    ...['indexScores', 'topK', 'remapIndices', 'indexTopK', 'mergeStates', 'densePrefill'],
    ...['appendToCache', 'gatherFromCache', 'rmsNorm', 'layerNorm', 'hadamard', 'multiply', 'rope', 'linear'],
    ...['cast', 'quantize'],
  ],
}

/** Every case of the share is a test. */
export async function conformanceShare(share: keyof typeof shares): Promise<void> {
  const device = await openDevice('sim:sm_90a')
  afterAll(() => device.dispose())
  describe.each(shares[share])('%s on sim:sm_90a', op => {
    const own = conformanceCases.filter(one => one.op === op)
    test.each(own.filter(one => !determinismCases.includes(one)))('$name', { timeout: 300_000 }, async one => {
      const { ok, detail, worst } = await runCase(device, one)
      expect([ok, detail]).toEqual([true, undefined])
      expect(worst).toBeLessThanOrEqual(1)
    })
  })

  const repeated = determinismCases.map(one => one.op).filter(op => shares[share].includes(op))
  test.each(repeated)('%s: the same bits in every run, under every schedule', async op => {
    const others = [2, 3].map(seed => new SimDevice('sm_90a', { seed, landing: seed === 2 ? 'early' : 'late' }))
    expect(await sameOnAll(op, [device, device, ...others])).toMatchObject({ ok: true, detail: undefined })
  })
}
