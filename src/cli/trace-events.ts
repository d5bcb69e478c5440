/** A timeline in the format of chrome://tracing and ui.perfetto.dev ("Trace Event Format", complete events). */

import type { Card, Timeline, Track } from '../emit/example-run.ts'

export interface TraceEvents {
  readonly displayTimeUnit: 'ns'
  readonly traceEvents: readonly object[]
}

/** Engines are listed after the warps. */
const firstEngine = 1000

const threadOf = ({ kind, index }: Track): number => (kind === 'engine' ? firstEngine + index : index)

/** One process a block, one thread a warp or engine; times in microseconds of the card's clock, cycles beside them. */
export function traceEvents({ kernel, tracks, spans }: Timeline, { clockHz }: Card): TraceEvents {
  const micro = (cycles: number): number => Math.round((cycles / clockHz) * 1e9) / 1e3
  const meta = (name: string, pid: number, tid: number, args: object): object => ({ ph: 'M', name, pid, tid, args })
  const blocks = [...new Set(tracks.map(({ block }) => block))]
  return {
    displayTimeUnit: 'ns',
    traceEvents: [
      ...blocks.map(block => meta('process_name', block, 0, { name: `${kernel}, block ${block}` })),
      ...tracks.flatMap(track => [
        meta('thread_name', track.block, threadOf(track), { name: track.name }),
        meta('thread_sort_index', track.block, threadOf(track), { sort_index: threadOf(track) }),
      ]),
      ...spans.map(({ track, name, kind, start, end, at }) => ({
        ph: 'X',
        name: kind === 'wait' ? `wait: ${name}` : name,
        cat: kind,
        pid: track.block,
        tid: threadOf(track),
        ts: micro(start),
        dur: micro(end - start),
        args: { cycles: Math.round(end - start), from: Math.round(start), ...(at === undefined ? {} : { at }) },
      })),
    ],
  }
}
