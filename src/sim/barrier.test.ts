import { describe, expect, test } from 'vitest'
import { type RingPlan, ring, rounds } from '../../test/ring-kernel.ts'
import { here, type RunOptions, runKernel } from '../../test/sim-kernel.ts'
import type { KernelBuilder } from '../lang/builder.ts'
import { type Kernel, kernel } from '../lang/kernel.ts'
import type { Barriers } from '../lang/mbarrier.ts'

const landings = ['early', 'late'] as const

function run(traced: Kernel, options: RunOptions = {}) {
  const buffers = { x: Float32Array.from({ length: 32 * rounds }, (_, i) => i), y: new Float32Array(rounds) }
  return { ...runKernel(traced, { buffers, ...options }), y: buffers.y }
}

const rulesOf = (plan: RingPlan, options?: RunOptions): string[] =>
  run(ring(plan).traced, options).findings.map(({ rule }) => rule)

test.each(landings)('a ring of stages is clean, data landing %s', landing => {
  for (const seed of [1, 2, 3, 4]) {
    const { findings, y } = run(ring().traced, { landing, seed })
    expect(findings).toEqual([])
    expect(Array.from(y)).toEqual(Array.from({ length: rounds }, (_, r) => 32 * 32 * r + 496))
  }
})

test('refilling what ordinary loads have read is a warning without a proxy fence on either side', () => {
  const { traced, lines } = ring()
  expect(run(traced).warnings).toMatchObject([{ rule: 'missing-proxy-fence', at: lines.load }])
  for (const fence of ['consumer', 'producer'] as const) expect(run(ring({ fence }).traced).warnings).toEqual([])
})

describe('planted bugs', () => {
  test.each(landings)('a stage is released before it is read, data landing %s', landing => {
    expect(rulesOf({ releaseFirst: true }, { landing })).toContain('race')
  })

  test.each(landings)('a stage is refilled without waiting for its release, data landing %s', landing => {
    const { traced, lines } = ring({ skipEmptyWait: true })
    const { findings } = run(traced, { landing })
    expect(findings).toContainEqual(expect.objectContaining({ rule: 'race', at: lines.load }))
  })

  test.each([1, -1])('a barrier expects %i byte too many', off => {
    const { traced, lines } = ring({ expectBytes: 128 + off })
    const { findings } = run(traced)
    expect(findings).toContainEqual(
      expect.objectContaining({ rule: 'deadlock', at: lines.wait, message: expect.stringContaining(`${off} bytes`) }),
    )
  })

  test('the consumer starts with the wrong parity', () => {
    expect(rulesOf({ consumerParity: 1 }).some(rule => rule === 'race' || rule === 'uninitialized-read')).toBe(true)
  })

  test('the consumer never flips its parity', () => {
    const found = [1, 2, 3, 4].flatMap(seed => rulesOf({ flip: false }, { seed }))
    expect(found).toContain('race')
  })

  test('an arrival is lost', () => {
    const { findings } = run(ring({ lostArrival: true }).traced)
    expect(findings).toContainEqual(
      expect.objectContaining({ rule: 'deadlock', message: expect.stringContaining('1 of 32 arrivals') }),
    )
  })

  test('a phase gets too many arrivals', () => {
    const { traced, lines } = ring({ extraArrival: true })
    const { findings } = run(traced)
    expect(findings[0]).toMatchObject({ rule: 'barrier', at: expect.stringMatching(/ring-kernel\.ts/) })
    expect(findings.some(({ at }) => at === lines.arrive)).toBe(true)
  })

  test('a copy reads past the end of its buffer', () => {
    const { traced, lines } = ring({ sourceShift: 4 })
    expect(run(traced).findings).toContainEqual(expect.objectContaining({ rule: 'out-of-bounds', at: lines.load }))
  })

  test('a copy lands beside its stage', () => {
    const { traced, lines } = ring({ targetShift: 16 })
    expect(run(traced).findings.map(({ rule }) => rule)).toContain('race')
    expect(run(traced).findings.some(({ at, against }) => at === lines.load || against === lines.load)).toBe(true)
  })

  test('a copy lands where it must not be aligned', () => {
    const { traced, lines } = ring({ targetShift: 8 })
    expect(run(traced).findings).toContainEqual(expect.objectContaining({ rule: 'misaligned', at: lines.load }))
  })

  test('barriers are used before their initialisation is known', () => {
    const found = [1, 2, 3, 4].flatMap(seed => rulesOf({ skipInitBarrier: true }, { seed }))
    expect(found).toContain('race')
  })

  /** One warp and one barrier. */
  const alone = (define: (k: KernelBuilder, bar: Barriers) => void): Kernel =>
    kernel({ name: 'alone', target: 'sm_90a', threads: 32, params: {} }, k => {
      const bar = k.barriers(1)
      k.when(k.lane.eq(0), () => define(k, bar))
    })
  const found = (traced: Kernel) => runKernel(traced, {}).findings

  test('a barrier that nobody initialised', () => {
    let bug = ''
    const traced = alone((_, bar) => {
      bug = here(1)
      bar.arrive(0)
    })
    expect(found(traced)).toMatchObject([{ rule: 'barrier', at: bug }])
  })

  test('an arrival without a wait in the phase before', () => {
    let bug = ''
    const traced = alone((_, bar) => {
      bar.init(1)
      bar.arrive(0)
      bug = here(1)
      bar.arrive(0)
    })
    expect(found(traced)).toMatchObject([
      { rule: 'barrier', at: bug, message: expect.stringContaining('nobody waited for the phase before') },
    ])
  })

  test('a barrier between two words', () => {
    let bug = ''
    const traced = alone((k, bar) => {
      const shifted: Barriers = Object.create(bar, { address: { value: () => k.const('u32', bar.startByte + 4) } })
      bug = here(1)
      shifted.arrive(0)
    })
    expect(found(traced)).toContainEqual(expect.objectContaining({ rule: 'misaligned', at: bug }))
  })

  test('an ordinary store to a barrier', () => {
    let bug = ''
    const traced = kernel({ name: 'alone', target: 'sm_90a', threads: 32, params: {} }, k => {
      const words = k.shared('u32', 4)
      const bar = k.barriers(1)
      k.when(k.lane.eq(0), () => {
        bar.init(1)
        bug = here(1)
        words.store(k.lane.add(4), 0)
      })
    })
    expect(found(traced)).toMatchObject([{ rule: 'barrier', at: bug }])
  })

  test('more bytes than a barrier can count', () => {
    let bug = ''
    const traced = alone((_, bar) => {
      bar.init(2)
      bar.expect(0, 1_048_000)
      bug = here(1)
      bar.expect(0, 1000)
    })
    expect(found(traced)).toMatchObject([{ rule: 'barrier', at: bug }])
  })

  test('a warp that misses two phases of a barrier waits for the wrong one', () => {
    const traced = kernel({ name: 'lag', target: 'sm_90a', threads: 64, params: {} }, k => {
      const bars = k.barriers(2)
      k.when(k.threadIdx.eq(0), () => bars.init(1))
      k.barrier()
      k.role('ahead', { warps: [0, 1] }, () =>
        k.when(k.lane.eq(0), () => {
          for (const phase of k.range(4)) {
            bars.arrive(0)
            bars.wait(0, phase.bitAnd(1))
          }
          bars.arrive(1)
        }),
      )
      k.role('behind', { warps: [1, 2] }, () => {
        bars.wait(0, 0)
        bars.wait(1, 0)
        bars.wait(0, 1)
      })
    })
    const all = [1, 2, 3, 4, 5, 6].flatMap(seed => runKernel(traced, { seed }).findings)
    expect(all.some(({ rule, message }) => rule === 'barrier' && /missed 2 phases/.test(message))).toBe(true)
  })
})
