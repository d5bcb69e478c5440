/** The start of a kernel that overlaps with the one ahead, and lets the next one do so. */

import type { KernelBuilder } from '../lang/builder.ts'

/** Lets the next kernel start, then waits until those ahead have ended: nothing of theirs is touched before. */
export function startEarly(k: KernelBuilder): void {
  k.launchNext()
  k.waitForPrevious()
}
