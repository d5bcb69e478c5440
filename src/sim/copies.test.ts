import { describe, expect, test } from 'vitest'
import { here, type RunOptions, runKernel } from '../../test/sim-kernel.ts'
import type { KernelBuilder } from '../lang/builder.ts'
import { type Bound, type Kernel, kernel } from '../lang/kernel.ts'
import { type BufferParam, input, output } from '../lang/params.ts'

type F32 = Bound<BufferParam<'f32'>>

const landings = ['early', 'late'] as const

interface Params {
  readonly x: F32
  readonly y: F32
}

/** One warp or more over x [256] and y [256]. */
const over = (define: (k: KernelBuilder, p: Params) => void, threads = 32): Kernel =>
  kernel(
    { name: 'probe', target: 'sm_90a', threads, params: { x: input('f32', 'x'), y: output('f32', 'y') } },
    (k, p) => define(k, p),
  )

const numbers = (): Float32Array => Float32Array.from({ length: 256 }, (_, i) => i + 1)

function run(traced: Kernel, options: RunOptions = {}) {
  const buffers = { x: numbers(), y: new Float32Array(256) }
  return { ...runKernel(traced, { buffers, ...options }), ...buffers }
}

describe('copies by threads', () => {
  /** y[4 lanes + i] = x, of which each lane brings `valid` bytes. */
  const copying = (valid: number, afterwards: (k: KernelBuilder) => void): Kernel =>
    over((k, { x, y }) => {
      const tile = k.shared('f32', 128)
      k.threadCopies.load(tile.byteAt(k.lane.mul(4)), x.address(k.lane.mul(4)), { valid })
      k.threadCopies.commit()
      afterwards(k)
      for (let i = 0; i < 4; i++) y.store(k.lane.mul(4).add(i), tile.load(k.lane.mul(4).add(i)))
    })

  test.each(landings)('bring what is valid and zero the rest, data landing %s', landing => {
    for (const valid of [16, 8, 4, 0]) {
      const { y, x, findings } = run(
        copying(valid, k => k.threadCopies.wait(0)),
        { landing },
      )
      expect(findings).toEqual([])
      expect(Array.from(y.subarray(0, 128))).toEqual(
        Array.from({ length: 128 }, (_, i) => (i % 4 < valid / 4 ? x[i] : 0)),
      )
    }
  })

  test('an mbarrier counts them for other warps', () => {
    const traced = over((k, { x, y }) => {
      const tile = k.shared('f32', 128)
      const full = k.barriers(1)
      k.when(k.threadIdx.eq(0), () => full.init(32))
      k.barrier()
      k.role('copy', { warps: [0, 1] }, () => {
        k.threadCopies.load(tile.byteAt(k.lane.mul(4)), x.address(k.lane.mul(4)), {
          policy: k.cachePolicy('evict_first'),
        })
        full.arriveAfterCopies(0)
      })
      k.role('use', { warps: [1, 2] }, () => {
        full.wait(0, 0)
        y.store(k.lane, tile.load(k.lane))
      })
    }, 64)
    for (const landing of landings) {
      const { y, x, findings } = run(traced, { landing })
      expect(findings).toEqual([])
      expect(y.subarray(0, 32)).toEqual(x.subarray(0, 32))
    }
  })

  test.each(landings)('planted bug: read before the wait, data landing %s', landing => {
    const { findings } = run(
      copying(16, k => k.threadCopies.wait(1)),
      { landing },
    )
    expect(findings.map(({ rule }) => rule)).toEqual(expect.arrayContaining(['race', 'in-flight']))
  })

  test('planted bug: a source that is not aligned', () => {
    let bug = ''
    const traced = over((k, { x }) => {
      const tile = k.shared('f32', 128)
      bug = here(1)
      k.threadCopies.load(tile.byteAt(k.lane.mul(4)), x.address(k.lane.mul(4).add(1)))
      k.threadCopies.commit()
      k.threadCopies.wait(0)
    })
    expect(run(traced).findings).toMatchObject([{ rule: 'misaligned', at: bug }])
  })
})

describe('bulk copies', () => {
  const back = (k: KernelBuilder, { y }: Params, source: number, until: (k: KernelBuilder) => void): void => {
    k.fenceProxyAsync()
    k.bulk.store(y.address(0), source, 512)
    k.bulk.commit()
    until(k)
  }

  /** y = 2 x through shared memory, both ways by the copy engine, one lane. */
  const doubling = (until: (k: KernelBuilder) => void): Kernel =>
    over((k, p) => {
      const tile = k.shared('f32', 128)
      const full = k.barriers(1)
      k.when(k.lane.eq(0), () => {
        full.init(1)
        k.fenceBarrierInit()
        full.arriveExpect(0, 512)
        k.bulk.prefetch(p.x.address(0), 512)
        k.bulk.load(tile.byteAt(), p.x.address(0), 512, full.address(0), { policy: k.cachePolicy('evict_last') })
        full.wait(0, 0)
        for (const i of k.range(128)) tile.store(i, tile.load(i).mul(2))
        back(k, p, tile.startByte, until)
      })
    })

  test.each(landings)('go both ways, data landing %s', landing => {
    const { y, x, findings, counters } = run(
      doubling(k => k.bulk.wait(0)),
      { landing },
    )
    expect(findings).toEqual([])
    expect(y.subarray(0, 128)).toEqual(x.subarray(0, 128).map(v => 2 * v))
    expect(counters.bytes.copied).toBe(1024)
  })

  test('waiting for the read is enough at the end of a block', () => {
    const { y, findings } = run(doubling(k => k.bulk.waitRead(0)))
    expect(findings).toEqual([])
    expect(y[5]).toBe(12)
  })

  test('planted bug: barriers are not fenced after their initialisation', () => {
    let bug = ''
    const traced = over((k, { x }) => {
      const tile = k.shared('f32', 128)
      const full = k.barriers(1)
      k.when(k.lane.eq(0), () => {
        full.init(1)
        full.arriveExpect(0, 512)
        bug = here(1)
        k.bulk.load(tile.byteAt(), x.address(0), 512, full.address(0))
        full.wait(0, 0)
      })
    })
    expect(run(traced).findings).toMatchObject([{ rule: 'missing-proxy-fence', at: bug }])
  })

  test('planted bug: a store is still reading shared memory at exit', () => {
    const traced = doubling(() => {})
    const { findings } = run(traced)
    expect(findings).toMatchObject([{ rule: 'in-flight', at: expect.stringContaining('copies.test.ts') }])
  })

  test('planted bug: the source is overwritten before it was read', () => {
    let bug = ''
    const traced = over((k, p) => {
      const tile = k.shared('f32', 128)
      k.when(k.lane.eq(0), () => {
        for (const i of k.range(128)) tile.store(i, 1)
        back(k, p, tile.startByte, () => {})
        bug = here(1)
        tile.store(0, 2)
        k.bulk.waitRead(0)
      })
    })
    for (const landing of landings) expect(run(traced, { landing }).findings).toMatchObject([{ rule: 'race', at: bug }])
  })

  test('planted bug: the written bytes are read after waiting for the read only', () => {
    let bug = ''
    const traced = over((k, p) => {
      const tile = k.shared('f32', 128)
      k.when(k.lane.eq(0), () => {
        for (const i of k.range(128)) tile.store(i, 1)
        back(k, p, tile.startByte, () => k.bulk.waitRead(0))
        bug = here(1)
        p.y.load(0)
      })
    })
    expect(run(traced).findings).toMatchObject([{ rule: 'race', at: bug }])
  })

  test('planted bug: stores of another warp without a fence before the copy', () => {
    let bug = ''
    const traced = over((k, p) => {
      const tile = k.shared('f32', 128)
      for (const i of k.range(4)) tile.store(i.mul(32).add(k.lane), 1)
      k.when(k.lane.eq(0), () => {
        bug = here(1)
        k.bulk.store(p.y.address(0), tile.byteAt(), 512)
        k.bulk.commit()
        k.bulk.wait(0)
      })
    })
    expect(run(traced).findings).toMatchObject([{ rule: 'missing-proxy-fence', at: bug }])
  })

  test.each(['global', 'all', 'shared'] as const)(
    'global memory written by the kernel needs a fence too: %s',
    fence => {
      const traced = over((k, { y }) => {
        const tile = k.shared('f32', 128)
        const full = k.barriers(1)
        for (const i of k.range(4)) y.store(i.mul(32).add(k.lane), 1)
        k.fenceProxyAsync(fence)
        k.when(k.lane.eq(0), () => {
          full.init(1)
          k.fenceBarrierInit()
          full.arriveExpect(0, 512)
          k.bulk.load(tile.byteAt(), y.address(0), 512, full.address(0))
          full.wait(0, 0)
        })
      })
      const expected = fence === 'shared' ? [{ rule: 'missing-proxy-fence' }] : []
      expect(run(traced).findings).toMatchObject(expected)
    },
  )

  test.each([
    ['a size that is not a multiple of 16', 24, 0, 'copy'],
    ['a target that is not aligned', 32, 8, 'misaligned'],
  ] as const)('planted bug: %s', (_, bytes, target, rule) => {
    let bug = ''
    const traced = over((k, { x }) => {
      k.shared('f32', 128)
      const full = k.barriers(1)
      k.when(k.lane.eq(0), () => {
        full.init(1)
        k.fenceBarrierInit()
        full.arriveExpect(0, bytes)
        bug = here(1)
        k.bulk.load(target, x.address(0), bytes, full.address(0))
        full.wait(0, 0)
      })
    })
    expect(run(traced).findings).toContainEqual(expect.objectContaining({ rule, at: bug }))
  })
})
