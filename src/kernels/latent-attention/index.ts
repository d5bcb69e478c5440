/** Kernels of latent attention by device. */

import type { KernelTable } from '../../ops/op.ts'
import { planLatentAttentionCpu } from './cpu.ts'
import { planLatentAttentionGpu } from './gpu.ts'
import type { LatentAttentionProblem } from './problem.ts'

export const latentAttentionKernels: KernelTable<LatentAttentionProblem> = {
  cpu: planLatentAttentionCpu,
  cuda: planLatentAttentionGpu,
  sim: planLatentAttentionGpu,
}
