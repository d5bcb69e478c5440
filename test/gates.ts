/** The gates of spec section 9 in tests. */

import { describeReport, type GateReport } from '../src/conformance/gate.ts'

export * from '../src/conformance/gate.ts'
export * from '../src/conformance/gates.ts'
export * from '../src/conformance/measures.ts'
export * from '../src/conformance/peer-gates.ts'
export * from '../src/conformance/poison.ts'

/** @throws Error with the report, its worst element and its counts */
export function expectGate(report: GateReport): void {
  if (!report.ok) throw new Error(describeReport(report))
}
