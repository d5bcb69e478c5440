/** What the warps and engines of one cluster did when, in cycles: estimated, not measured. */

export interface Track {
  readonly block: number
  readonly kind: 'warp' | 'engine'
  /** Number of the warp in its block; engines come after. */
  readonly index: number
  /** The role of a warp, or what the engine is. */
  name: string
}

export interface Span {
  readonly track: Track
  /** What was done, or waited for. */
  readonly name: string
  readonly kind: 'work' | 'wait'
  readonly start: number
  end: number
  /** `file:line` of what is waited at, or of the first instruction. */
  readonly at?: string
}

/** Spans closer than this are one. */
const gap = 4

export class Timeline {
  readonly kernel: string
  readonly cluster: number
  readonly tracks: Track[] = []
  readonly spans: Span[] = []
  private readonly latest = new Map<Track, Span>()

  constructor(kernel: string, cluster: number) {
    this.kernel = kernel
    this.cluster = cluster
  }

  track(block: number, kind: Track['kind'], index: number, name: string): Track {
    const track = { block, kind, index, name }
    this.tracks.push(track)
    return track
  }

  /** Adds a span; one that continues the track's latest becomes part of it. */
  add(track: Track, name: string, kind: Span['kind'], start: number, end: number, at?: string): void {
    const last = this.latest.get(track)
    if (last !== undefined && last.name === name && last.kind === kind && last.at === at && start - last.end <= gap) {
      last.end = Math.max(last.end, end)
      return
    }
    const span: Span = { track, name, kind, start, end, ...(at === undefined ? {} : { at }) }
    this.spans.push(span)
    this.latest.set(track, span)
  }

  /** Cycles from the start to the end. */
  get end(): number {
    return this.spans.reduce((latest, { end }) => Math.max(latest, end), 0)
  }
}
