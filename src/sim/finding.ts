/** What the simulator reports: a broken rule, where the author wrote it, and the access or wait it conflicts with. */

import type { Site } from '../lang/ir.ts'
import { lineOf } from '../lang/site.ts'

export type Rule =
  | 'race'
  | 'missing-proxy-fence'
  | 'uninitialized-read'
  | 'out-of-bounds'
  | 'misaligned'
  | 'divergence'
  | 'deadlock'
  | 'barrier'
  | 'matrix-registers'
  | 'tensor-memory'
  | 'tensor-fence'
  | 'descriptor'
  | 'in-flight'
  | 'remote-access'
  | 'copy'

export interface Finding {
  readonly rule: Rule
  readonly message: string
  /** `file:line` of the instruction. */
  readonly at: string
  /** `file:line` of the earlier access it conflicts with. */
  readonly against?: string
}

/** Findings of one run; repeated ones are kept once. A warning is a broken rule that the hardware is known to forgive. */
export class Findings {
  readonly list: Finding[] = []
  readonly warnings: Finding[] = []
  private readonly known = new Set<string>()

  report(
    rule: Rule,
    message: string,
    site: Site | undefined,
    against?: Site,
    severity: 'error' | 'warning' = 'error',
  ): void {
    const at = lineOf(site)
    const other = against === undefined ? undefined : lineOf(against)
    const key = `${rule} ${at} ${other}`
    if (this.known.has(key)) return
    this.known.add(key)
    const list = severity === 'error' ? this.list : this.warnings
    list.push({ rule, message, at, ...(other === undefined ? {} : { against: other }) })
  }
}
