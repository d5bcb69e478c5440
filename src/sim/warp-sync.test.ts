import { describe, expect, test } from 'vitest'
import { here, runKernel } from '../../test/sim-kernel.ts'
import type { KernelBuilder } from '../lang/builder.ts'
import { type Bound, type Kernel, kernel } from '../lang/kernel.ts'
import { type BufferParam, output } from '../lang/params.ts'

type U32 = Bound<BufferParam<'u32'>>

const probe = (threads: number, define: (k: KernelBuilder, out: U32) => void): Kernel =>
  kernel({ name: 'probe', target: 'sm_90a', threads, params: { out: output('u32', 'out') } }, (k, { out }) =>
    define(k, out),
  )

function run(threads: number, define: (k: KernelBuilder, out: U32) => void) {
  const out = new Uint32Array(threads)
  return { ...runKernel(probe(threads, define), { buffers: { out } }), out }
}

describe('agreement of a warp', () => {
  test('votes', () => {
    const { out } = run(64, (k, o) => {
      const [some, every] = [k.any(k.threadIdx.eq(40)), k.all(k.threadIdx.ge(32))]
      o.store(k.threadIdx, some.select(k.const('u32', 1), 0).add(every.select(k.const('u32', 2), 0)))
    })
    expect(Array.from(out)).toEqual(Array.from({ length: 64 }, (_, i) => (i < 32 ? 0 : 3)))
  })

  test('integer reductions wrap and keep signs', () => {
    const { out } = run(32, (k, o) => {
      const signed = k.lane.to('i32').sub(5)
      const values = [
        k.reduce('add', k.lane.sub(1)),
        k.reduce('min', k.lane.add(3)),
        k.reduce('max', k.lane),
        k.reduce('min', signed).to('u32'),
        k.reduce('max', signed).to('u32'),
        k.reduce('add', signed).to('u32'),
      ]
      k.when(k.lane.eq(0), () => values.forEach((value, i) => o.store(i, value)))
    })
    expect(Array.from(out.subarray(0, 6))).toEqual([464, 3, 31, 2 ** 32 - 5, 26, 496 - 160])
  })

  test('one lane is elected', () => {
    const { out } = run(32, (k, o) => {
      o.store(k.lane, k.elect().select(k.const('u32', 1), 0))
    })
    expect(out.reduce((sum, x) => sum + x)).toBe(1)
  })

  test('clocks go on, and sleeping and overlapping launches change nothing', () => {
    const { out, findings } = run(32, (k, o) => {
      k.waitForPrevious()
      const start = k.clock()
      k.sleep(100)
      k.warpSum(k.lane)
      o.store(k.lane, k.clock().sub(start).to('u32'))
      k.launchNext()
    })
    expect(findings).toEqual([])
    expect(out[0]).toBeGreaterThan(10)
  })
})

describe('named barriers', () => {
  /** Warps 0 and 1 hand a value to each other; warp 2 goes its own way. */
  const handing = (define: (k: KernelBuilder) => void): Kernel =>
    probe(96, (k, out) => {
      const box = k.shared('u32', 64)
      k.role('pair', { warps: [0, 2] }, () => {
        box.store(k.threadIdx, k.threadIdx)
        define(k)
        out.store(k.threadIdx, box.load(k.threadIdx.bitXor(63)))
      })
    })

  const runHanding = (define: (k: KernelBuilder) => void) => {
    const out = new Uint32Array(96)
    return { ...runKernel(handing(define), { buffers: { out } }), out }
  }

  test('some warps wait for each other', () => {
    const { out, findings } = runHanding(k => k.barrierAmong(1, 64))
    expect(findings).toEqual([])
    expect(Array.from(out.subarray(0, 64))).toEqual(Array.from({ length: 64 }, (_, i) => i ^ 63))
  })

  test('a producer arrives without waiting', () => {
    const out = new Uint32Array(32)
    const traced = probe(64, (k, o) => {
      const box = k.shared('u32', 32)
      k.role('produce', { warps: [0, 1] }, () => {
        box.store(k.lane, k.lane.add(7))
        k.arriveAmong(2, 64)
      })
      k.role('consume', { warps: [1, 2] }, () => {
        k.barrierAmong(2, 64)
        o.store(k.lane, box.load(k.lane))
      })
    })
    const { findings } = runKernel(traced, { buffers: { out } })
    expect(findings).toEqual([])
    expect(out[3]).toBe(10)
  })

  test('planted bug: an arrival is lost', () => {
    let bug = ''
    const { findings } = runHanding(k => {
      bug = here(1)
      k.whenUniform(k.threadIdx.lt(32), () => k.barrierAmong(1, 64))
    })
    expect(findings.map(({ rule }) => rule)).toContain('deadlock')
    expect(findings.find(({ rule }) => rule === 'deadlock')).toMatchObject({
      at: bug,
      message: expect.stringContaining('1 of 2 warps'),
    })
  })

  test('planted bug: two places expect different counts', () => {
    const { findings } = run(96, k => {
      k.role('a', { warps: [0, 1] }, () => k.arriveAmong(1, 64))
      k.role('b', { warps: [1, 3] }, () => k.barrierAmong(1, 96))
    })
    expect(findings).toContainEqual(
      expect.objectContaining({ rule: 'barrier', message: expect.stringMatching(/64 threads|96 threads/) }),
    )
  })

  test('planted bug: the barrier of another pair', () => {
    expect(runHanding(k => k.barrierAmong(k.threadIdx.shr(5).add(1), 32)).findings).toContainEqual(
      expect.objectContaining({ rule: 'race' }),
    )
  })

  test('ids and counts outside the hardware’s are refused', () => {
    expect(() => probe(64, k => k.barrierAmong(16, 64))).toThrow(/1\.\.15/)
    expect(() => probe(64, k => k.barrierAmong(1, 48))).toThrow(/multiple of 32/)
  })
})

describe('registers of roles', () => {
  const roles = (threads: number, counts: readonly number[]) => () =>
    probe(threads, k => {
      counts.forEach((registers, i) => k.role(`r${i}`, { warps: [4 * i, 4 * i + 4], registers }, () => {}))
    })

  test('what a producer gives back is enough for the consumers', () => {
    expect(roles(384, [24, 240, 240])).not.toThrow()
    expect(roles(384, [40, 232, 232])).not.toThrow()
  })

  test('planted bug: roles take more than the block enters with', () => {
    expect(roles(384, [40, 240, 240])).toThrow(/520 registers.*504.*warp-sync\.test\.ts:\d+/)
    expect(roles(512, [96, 160, 160, 160])).toThrow(/registers/)
  })
})
