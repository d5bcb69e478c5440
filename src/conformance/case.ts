/**
 * One conformance case: a call of a public operation on a device, judged against the float64 reference or against bits
 * that are known. The same table runs on every device, so a case knows nothing of the device but its public interface.
 */

import type { Device } from '../device.ts'
import { describeReport, type GateReport } from './gate.ts'

export interface Verdict {
  readonly ok: boolean
  /** The largest error, in units of what its gate allows; 0 where all bits agree. */
  readonly worst: number
  /** The first thing that is wrong, in a line. */
  readonly detail?: string | undefined
}

export interface ConformanceCase {
  readonly op: string
  /** What is special about it; unique among the cases of its operation. */
  readonly name: string
  run(device: Device): Promise<Verdict>
}

export interface CaseOutcome extends Verdict {
  /** `op: name`. */
  readonly name: string
}

/** The verdict of a case that compares several outputs. */
export function judge(...reports: readonly GateReport[]): Verdict {
  const failed = reports.find(report => !report.ok)
  return {
    ok: failed === undefined,
    worst: reports.reduce((most, report) => Math.max(most, worstOf(report)), 0),
    detail: failed && describeReport(failed),
  }
}

/** A verdict on a plain statement. */
export const holds = (ok: boolean, detail: string): Verdict => (ok ? { ok, worst: 0 } : { ok, worst: Infinity, detail })

/** Both verdicts in one. */
export const both = (...verdicts: readonly Verdict[]): Verdict => ({
  ok: verdicts.every(({ ok }) => ok),
  worst: verdicts.reduce((most, { worst }) => Math.max(most, worst), 0),
  detail: verdicts.find(({ ok }) => !ok)?.detail,
})

/** Runs one case; whatever it throws is its failure. */
export async function runCase(device: Device, { op, name, run }: ConformanceCase): Promise<CaseOutcome> {
  try {
    return { name: `${op}: ${name}`, ...(await run(device)) }
  } catch (error) {
    return { name: `${op}: ${name}`, ok: false, worst: Infinity, detail: String(error) }
  }
}

function worstOf({ wrong, unwritten, worst, measures }: GateReport): number {
  const elements = worst === undefined || worst.error === 0 ? 0 : worst.error / worst.bound
  const whole = measures.map(({ value, limit }) => value / limit)
  return Math.max(unwritten > 0 ? Infinity : 0, wrong > 0 && elements <= 1 ? Infinity : elements, ...whole)
}
