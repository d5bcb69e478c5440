/** The conformance table on the simulator of an H200, in shares that run side by side. */

import { afterAll, describe, expect, test } from 'vitest'
import { runCase } from '../../src/conformance/case.ts'
import { conformanceCases } from '../../src/conformance/cases.ts'
import { openDevice } from '../../src/open-device.ts'

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
    test.each(conformanceCases.filter(one => one.op === op))('$name', { timeout: 300_000 }, async one => {
      const { ok, detail, worst } = await runCase(device, one)
      expect([ok, detail]).toEqual([true, undefined])
      expect(worst).toBeLessThanOrEqual(1)
    })
  })
}
