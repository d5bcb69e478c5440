/** Misuse of the kernel language, thrown while tracing: the stack's first frame outside `lang/` is the author's line. */

import { SparseMlaError } from '../errors.ts'

export class KernelError extends SparseMlaError {
  readonly code = 'E_KERNEL'

  constructor(kernel: string, message: string) {
    super({ where: `kernel ${kernel}`, allowed: message })
    this.message = `kernel ${kernel}: ${message}`
  }
}
