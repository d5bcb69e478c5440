/** A kernel that `sparse-mla emit` writes: one configuration of it, found in the plan of a call that needs it. */

import type { Device, Plan } from '../device.ts'

export interface ListedKernel {
  /** Name on the command line and of the file; unique. */
  readonly name: string
  /** Name in the PTX. */
  readonly entry: string
  /** Which launch of that entry, where the plan has several kernels of it. Default 0. */
  readonly nth?: number
  /** What the text is for: everything that no parameter says. */
  readonly about: string
  /** Blocks of the grid, in terms of the parameters. */
  readonly grid: string
  /** A small call that runs the kernel. */
  plan(device: Device): Plan
}
