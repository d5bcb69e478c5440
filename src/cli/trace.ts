/** `sparse-mla trace`: what the warps and engines of a kernel do when, estimated by the simulator. */

import { writeFileSync } from 'node:fs'
import { type ExampleRun, formatEstimate, runExample } from '../emit/example-run.ts'
import { listedKernels, type Target } from '../emit/kernels.ts'
import type { ListedKernel } from '../emit/listed-kernel.ts'
import { OptionError, UnsupportedError } from '../errors.ts'
import { traceEvents } from './trace-events.ts'
import { timelinePicture } from './trace-svg.ts'

export interface TraceOptions {
  /** Name of a kernel, or a part of one, with hyphens or underscores. */
  readonly kernel: string
  /** `sim:` and a target. */
  readonly device: string
  /** File that receives it: `.json` for Perfetto or chrome://tracing, `.svg` for a picture. */
  readonly out: string
}

export interface TraceReport {
  readonly kernel: string
  readonly card: string
  readonly blocks: number
  /** Cycles of the cluster that took longest. */
  readonly cycles: number
  /** What it is bound by when all multiprocessors are busy with it. */
  readonly bound: string
  readonly file: string
}

/** @throws OptionError for a kernel, device or file that there is not; UnsupportedError where the target lacks the kernel */
export async function trace({ kernel, device, out }: TraceOptions): Promise<{ report: TraceReport; text: string }> {
  const target = targetOf(device)
  const write = writerOf(out)
  const { listed, run } = await firstOf(kernelsLike(kernel, target), target)
  writeFileSync(out, write(listed.name, run))
  const { card, blocks, timeline, estimate, crowded, parts } = run
  const report = {
    kernel: listed.name,
    card: card.name,
    blocks,
    cycles: Math.round(timeline.end),
    bound: crowded.bound,
    file: out,
  }
  const text = [
    `${listed.name}, ${blocks} blocks: the longest takes ${Math.round(timeline.end)} cycles on a ${card.name}, written to ${out}`,
    `this launch: ${formatEstimate(estimate)}`,
    `the same with all multiprocessors busy: ${formatEstimate(crowded)}; bound by ${crowded.bound}`,
    ...(parts.length === 0 ? [] : [`most of ${crowded.bound}: ${parts.slice(0, 5).map(percent).join(', ')}`]),
    'Times are estimated from counted events, not measured.',
  ].join('\n')
  return { report, text }
}

const percent = ({ name, share }: { readonly name: string; readonly share: number }): string =>
  `${name} ${(100 * share).toFixed(0)} %`

function targetOf(device: string): Target {
  const target = /^sim:(sm_90a|sm_100a)$/.exec(device)?.[1]
  if (target !== undefined) return target as Target
  throw new OptionError({
    where: 'trace',
    argument: '--device',
    given: device,
    allowed: "'sim:sm_90a' or 'sim:sm_100a'",
  })
}

function writerOf(out: string): (name: string, run: ExampleRun) => string {
  if (out.endsWith('.json')) return (_, { timeline, card }) => `${JSON.stringify(traceEvents(timeline, card))}\n`
  if (out.endsWith('.svg'))
    return (name, { timeline, card }) => timelinePicture(timeline, card, `${name} on a ${card.name}, estimated`)
  throw new OptionError({ where: 'trace', argument: '--out', given: out, allowed: 'a file that ends in .json or .svg' })
}

/** The kernel of that name; else those whose name contains it, the target's own before others. */
function kernelsLike(given: string, target: Target): readonly ListedKernel[] {
  const name = given.replaceAll('-', '_')
  const exact = listedKernels.filter(listed => listed.name === name)
  const own = target.replace(/^sm_(\d+)a$/, 'sm$1')
  const like = listedKernels
    .filter(listed => listed.name.includes(name) || listed.entry.includes(name))
    .sort((a, b) => Number(b.entry.includes(own)) - Number(a.entry.includes(own)))
  const found = exact.length > 0 ? exact : like
  if (found.length > 0) return found
  const known = listedKernels.map(listed => listed.name).join(', ')
  throw new OptionError({ where: 'trace', argument: 'kernel', given, allowed: `one of ${known}` })
}

async function firstOf(
  candidates: readonly ListedKernel[],
  target: Target,
): Promise<{ readonly listed: ListedKernel; readonly run: ExampleRun }> {
  for (const listed of candidates) {
    const run = await runExample(listed, target)
    if (run !== undefined) return { listed, run }
  }
  throw new UnsupportedError({
    where: 'trace',
    argument: 'kernel',
    given: candidates.map(({ name }) => name).join(', '),
    allowed: `a kernel that ${target} has`,
  })
}
