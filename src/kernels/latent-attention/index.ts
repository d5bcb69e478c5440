/** Kernels of latent attention by device. */

import type { KernelTable } from '../../ops/op.ts'
import { planLatentAttentionCpu } from './cpu.ts'
import { planLatentAttentionPortable } from './portable.ts'
import type { LatentAttentionProblem } from './problem.ts'

export const latentAttentionKernels: KernelTable<LatentAttentionProblem> = {
  cpu: planLatentAttentionCpu,
  cuda: planLatentAttentionPortable,
  sim: planLatentAttentionPortable,
}
