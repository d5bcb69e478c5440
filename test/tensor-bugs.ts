/** Bugs planted in the kernel of `tensor-kernel.ts`: what a run must report, and where. */

import { expect } from 'vitest'
import { here } from './sim-kernel.ts'
import { type Bench, runTensor, type Steps, type TensorCase, tensorKernel } from './tensor-kernel.ts'

/** Line of the bug, set where it is planted. */
export const planted = { at: '' }

const plain: TensorCase = { dtype: 'bf16', m: 128, n: 32, depth: 32 }

export const findingsOf = (replaced: Partial<Steps>): ReturnType<typeof runTensor>['findings'] =>
  runTensor(plain, tensorKernel(plain, replaced)).findings

/** The rule is broken at the planted line, whenever data lands. */
export function expectBug(rule: string, message: RegExp, replaced: Partial<Steps>, c: TensorCase = plain): void {
  const traced = tensorKernel(c, replaced)
  for (const landing of ['early', 'late'] as const)
    expect(runTensor(c, traced, { landing }).findings).toContainEqual(
      expect.objectContaining({ rule, at: planted.at, message: expect.stringMatching(message) }),
    )
}

/** One thread of the first warp issues. */
export const issuing =
  (issue: (x: Bench) => void): Steps['issue'] =>
  x => {
    x.k.whenUniform(x.first, () => {
      x.k.when(x.k.elect(), () => issue(x))
      x.k.warpBarrier()
    })
  }

export const loading: Steps['read'] = x => {
  const registers = x.d.load('32x32b', 32)
  x.memory.waitLoads()
  x.keep(registers)
}

/** The same where something before it is missing. */
export const loadingTooEarly: Steps['read'] = x => {
  planted.at = here(1)
  const registers = x.d.load('32x32b', 32)
  x.memory.waitLoads()
  x.keep(registers)
}
