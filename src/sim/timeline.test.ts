import { describe, expect, test } from 'vitest'
import { multiplying, once } from '../../test/multiply-kernel.ts'
import { runKernel } from '../../test/sim-kernel.ts'
import type { KernelBuilder } from '../lang/builder.ts'
import { type Bound, kernel } from '../lang/kernel.ts'
import { input, output, tensorMap } from '../lang/params.ts'
import { b200, h200 } from './estimate.ts'
import type { Span, Timeline } from './timeline.ts'

const params = {
  map: tensorMap({ dtype: 'bf16', box: [64, 128], swizzle: 128 }, '[128, 64]'),
  x: input('f32', 'x'),
  out: output('f32', 'out'),
}
type P = { readonly [K in keyof typeof params]: Bound<(typeof params)[K]> }

function timed(define: (k: KernelBuilder, p: P) => void): Timeline {
  const traced = kernel({ name: 'probe', target: 'sm_100a', threads: 128, params }, (k, p) => define(k, p))
  const { findings, timelines } = runKernel(traced, {
    buffers: { source: new Uint16Array(128 * 64), x: new Float32Array(4096), out: new Float32Array(4096) },
    maps: { map: { buffer: 'source', extents: [64, 128] } },
    timedFor: b200,
  })
  expect(findings).toEqual([])
  expect(timelines).toHaveLength(1)
  return timelines[0]!
}

const of = ({ spans }: Timeline, track: RegExp, kind: Span['kind'] = 'work'): Span[] =>
  spans.filter(span => track.test(span.track.name) && span.kind === kind)

/** A tile copied by a role, multiplied with itself `times` times by another, loaded by all warps. */
const multiply = (times: number): Timeline =>
  timed((k, { map, out }) => {
    const memory = k.tensorMemory({ columns: 128 })
    const tile = k.tile({ dtype: 'bf16', rows: 128, columns: 64 })
    const [full, done] = [k.barriers(1), k.barriers(1)]
    k.whenUniform(k.threadIdx.lt(32), () => memory.allocate())
    k.when(k.threadIdx.eq(0), () => {
      full.init(1)
      done.init(1)
      k.fenceBarrierInit()
    })
    memory.beforeSync()
    k.barrier()
    memory.afterSync()
    memory.open()
    const d = memory.accumulator({ m: 128, n: 128 })
    k.role('copy', { warps: [1, 2] }, () =>
      k.when(k.lane.eq(0), () => {
        full.arriveExpect(0, map.boxBytes)
        map.load(tile.address(), [0, 0], full.address(0))
      }),
    )
    k.role('multiply', { warps: [0, 1] }, () =>
      k.when(k.lane.eq(0), () => {
        full.wait(0, 0)
        for (const i of k.range(times)) d.multiply({ tile }, { tile }, { accumulate: i })
        memory.commit(done.address(0))
      }),
    )
    k.warpBarrier()
    done.wait(0, 0)
    memory.afterSync()
    const values = d.load('32x32b', 8)
    memory.waitLoads()
    values.forEach((value, j) => out.store(k.threadIdx.mul(8).add(j), value))
    memory.beforeSync()
    k.barrier()
    k.whenUniform(k.threadIdx.lt(32), () => {
      memory.afterSync()
      memory.free()
    })
  })

describe('a copy, multiplies, and who waits for them', () => {
  const timeline = multiply(8)
  const [copy] = of(timeline, /^copies$/)
  const tensor = of(timeline, /^tensor cores$/)

  test('tracks are warps by role, and engines', () => {
    expect(new Set(timeline.tracks.map(({ name }) => name))).toEqual(
      new Set(['multiply (warp 0)', 'copy (warp 1)', 'warp 2', 'warp 3', 'copies', 'tensor cores']),
    )
  })

  test('multiplies begin when the bytes are there, and take N / 2 cycles each', () => {
    expect(tensor).toMatchObject([{ name: 'm128n128k16.bf16' }])
    expect(tensor[0]!.start).toBeGreaterThan(copy!.end + 600)
    const busy = tensor[0]!.end - tensor[0]!.start
    expect(busy).toBeGreaterThanOrEqual(8 * 4 * 64)
    expect(busy).toBeLessThan(8 * 4 * 64 + 100)
  })

  test('waits end with what they wait for, at the author’s line', () => {
    const wait = of(timeline, /^warp 3$/, 'wait').find(({ name }) => name === 'mbarrier.wait')!
    expect(wait.end).toBeGreaterThan(tensor[0]!.end)
    expect(wait.at).toMatch(/timeline\.test\.ts:\d+$/)
  })

  test('twice the multiplies take so much longer', () => {
    expect(multiply(16).end - timeline.end).toBeCloseTo(8 * 4 * 64, -2)
  })
})

test('loads that do not depend on each other wait together, at the next barrier', () => {
  const loads = (count: number): number =>
    timed((k, { x, out }) => {
      const values = Array.from({ length: count }, (_, i) => x.load(k.threadIdx.add(128 * i)))
      const sum = values.reduce((a, b) => a.add(b))
      k.barrier()
      out.store(k.threadIdx, sum)
    }).end
  expect(loads(16) - loads(1)).toBeLessThan(450)
  expect(loads(16)).toBeGreaterThan(450)
})

test('four warps share the special function pipes of a partition each, so they do not slow each other', () => {
  const exponentials = (threads: number): number => {
    const traced = kernel({ name: 'probe', target: 'sm_100a', threads, params }, (k, { x, out }) => {
      let value = x.load(0)
      const others = Array.from({ length: 32 }, (_, i) => k.exp2(value.add(i)))
      value = others.reduce((a, b) => a.add(b))
      out.store(k.threadIdx, value)
    })
    const { timelines } = runKernel(traced, {
      buffers: { source: new Uint16Array(8), x: new Float32Array(4), out: new Float32Array(1024) },
      maps: { map: { buffer: 'source', extents: [64, 1] } },
      timedFor: b200,
    })
    return timelines[0]!.end
  }
  const [one, four, eight] = [32, 128, 256].map(exponentials)
  expect(four).toBeCloseTo(one!, -1)
  expect(eight! - four!).toBeGreaterThanOrEqual(32 * 8)
})

test('warpgroup multiplies of Hopper, and the wait for a group', () => {
  const sizes = { a: { rows: 64, columns: 64 }, b: { rows: 64, columns: 64 }, n: 64 }
  const traced = multiplying('bf16', sizes, (k, d, { a, b }) => once(k, d, { tile: a }, { tile: b }))
  const words = new Uint32Array(64 * 32)
  const { timelines } = runKernel(traced, {
    buffers: { a: words, b: words.slice(), out: new Float32Array(64 * 64) },
    timedFor: h200,
  })
  const [timeline] = timelines
  const busy = of(timeline!, /tensor cores/)
  expect(Math.max(...busy.map(({ end }) => end)) - busy[0]!.start).toBeGreaterThanOrEqual((4 * 64) / 2)
  expect(of(timeline!, /warp 0/, 'wait').map(({ name }) => name)).toContain('wgmma.wait.0')
})
