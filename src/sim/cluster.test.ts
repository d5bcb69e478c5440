import { describe, expect, test } from 'vitest'
import { here, type RunOptions, runKernel } from '../../test/sim-kernel.ts'
import type { KernelBuilder } from '../lang/builder.ts'
import { type Bound, type Kernel, kernel } from '../lang/kernel.ts'
import type { Barriers } from '../lang/mbarrier.ts'
import { type BufferParam, output, type TensorMapParam, tensorMap } from '../lang/params.ts'
import type { SharedArray } from '../lang/shared.ts'

type U32 = Bound<BufferParam<'u32'>>

interface Parts {
  readonly out: U32
  readonly box: SharedArray<'u32'>
  readonly bars: Barriers
}

/** Clusters of blocks of one warp with a box of 32 words and two barriers of `arrivals`. */
const probe = (cluster: number, define: (k: KernelBuilder, parts: Parts) => void, arrivals = 1): Kernel =>
  kernel(
    { name: 'probe', target: 'sm_90a', threads: 32, cluster, params: { out: output('u32', 'out') } },
    (k, { out }) => {
      const box = k.shared('u32', 32)
      const bars = k.barriers(2)
      k.when(k.lane.eq(0), () => {
        bars.init(arrivals)
        k.fenceBarrierInit()
      })
      define(k, { out, box, bars })
    },
  )

const at = (k: KernelBuilder) => k.blockIdx.x.mul(32).add(k.lane)
const next = (k: KernelBuilder) => k.cluster.rank.add(1).rem(k.cluster.size)

function run(traced: Kernel, blocks: number, options: RunOptions = {}) {
  const out = new Uint32Array(32 * blocks)
  return { ...runKernel(traced, { buffers: { out }, blocks, ...options }), out }
}

const rules = (traced: Kernel, blocks = 2, options: RunOptions = {}): Set<string> =>
  new Set(run(traced, blocks, options).findings.map(({ rule }) => rule))

/** Every lane's word of the next block: block number · 100 + lane. */
const fromNext = (blocks: number, size: number): number[] =>
  Array.from({ length: 32 * blocks }, (_, i) => {
    const block = Math.floor(i / 32)
    const peer = block - (block % size) + ((block + 1) % size)
    return peer * 100 + (i % 32)
  })

const own = (k: KernelBuilder) => k.blockIdx.x.mul(100).add(k.lane)

describe('blocks of a cluster', () => {
  test.each([2, 4, 16])('%i blocks read each other’s shared memory between two cluster barriers', size => {
    const traced = probe(size, (k, { out, box }) => {
      box.store(k.lane, own(k))
      k.cluster.barrier()
      out.store(at(k), k.cluster.load(box, k.lane, next(k)))
      k.cluster.barrier()
    })
    const { out, findings } = run(traced, 2 * size)
    expect(findings).toEqual([])
    expect(Array.from(out)).toEqual(fromNext(2 * size, size))
  })

  test('remote stores and a remote arrival hand a value over', () => {
    const traced = probe(
      2,
      (k, { out, box, bars }) => {
        k.cluster.barrier()
        k.cluster.store(box, k.lane, k.cluster.index.mul(2).add(next(k)).mul(100).add(k.lane), next(k))
        bars.arriveAt(0, next(k))
        bars.wait(0, 0)
        out.store(at(k), box.load(k.lane))
        k.cluster.barrier()
      },
      32,
    )
    const { out, findings } = run(traced, 4)
    expect(findings).toEqual([])
    expect(out[37]).toBe(105)
  })

  test.each(['early', 'late'] as const)(
    'asynchronous stores and pushed bytes count on the receiver’s barrier, %s',
    landing => {
      const traced = probe(2, (k, { out, box, bars }) => {
        const source = k.shared('u32', 32)
        const pushed = k.shared('u32', 32)
        source.store(k.lane, own(k))
        k.fenceProxyAsync()
        k.cluster.barrier()
        k.when(k.lane.eq(0), () => {
          bars.arriveExpect(0, 128)
          bars.arriveExpect(1, 128)
          const [from, to] = [source.byteAt(), pushed.byteAt()]
          k.cluster.push({ source: from, target: to, bytes: 128, barrier: bars.address(1) }, next(k))
        })
        k.cluster.storeAsync(box, k.lane, [own(k)], bars.address(0), next(k))
        bars.wait(0, 0)
        bars.wait(1, 0)
        out.store(at(k), box.load(k.lane).add(pushed.load(k.lane)))
        k.cluster.barrier()
      })
      const { out, findings } = run(traced, 2, { landing })
      expect(findings).toEqual([])
      expect(Array.from(out)).toEqual(fromNext(2, 2).map(x => 2 * x))
    },
  )

  test.each(['early', 'late'] as const)('a box goes to several blocks at once, data landing %s', landing => {
    const traced = kernel(
      {
        name: 'probe',
        target: 'sm_90a',
        threads: 32,
        cluster: 4,
        params: {
          x: tensorMap({ dtype: 'f32', box: [32, 1], swizzle: 0 }, 'x') as TensorMapParam,
          out: output('f32', 'out'),
        },
      },
      (k, { x, out }) => {
        const tile = k.shared('f32', 32)
        const full = k.barriers(1)
        k.when(k.lane.eq(0), () => {
          full.init(1)
          k.fenceBarrierInit()
          full.arriveExpect(0, x.boxBytes)
        })
        k.cluster.barrier()
        k.when(k.lane.eq(0).and(k.cluster.rank.eq(1)), () =>
          x.load(tile.byteAt(), [0, 2], full.address(0), { multicast: 0b1010 }),
        )
        k.whenUniform(k.cluster.rank.bitAnd(1).eq(1), () => {
          full.wait(0, 0)
          out.store(at(k), tile.load(k.lane))
        })
        k.cluster.barrier()
      },
    )
    const buffers = { data: Float32Array.from({ length: 128 }, (_, i) => i), out: new Float32Array(128) }
    const maps = { x: { buffer: 'data', extents: [32, 4] } }
    const { findings } = runKernel(traced, { buffers, maps, blocks: 4, landing })
    expect(findings).toEqual([])
    expect(Array.from(buffers.out)).toEqual(
      Array.from({ length: 128 }, (_, i) => (Math.floor(i / 32) % 2 ? 64 + (i % 32) : 0)),
    )
  })
})

describe('planted bugs', () => {
  test('another block is read before it is known to have started', () => {
    let bug = ''
    const traced = probe(2, (k, { out, box }) => {
      box.store(k.lane, own(k))
      bug = here(1)
      out.store(at(k), k.cluster.load(box, k.lane, next(k)))
      k.cluster.barrier()
    })
    expect(run(traced, 2).findings).toContainEqual(expect.objectContaining({ rule: 'remote-access', at: bug }))
  })

  test('another block may have ended when it is read', () => {
    let bug = ''
    const traced = probe(2, (k, { out, box }) => {
      box.store(k.lane, own(k))
      k.cluster.barrier()
      bug = here(1)
      out.store(at(k), k.cluster.load(box, k.lane, next(k)))
    })
    for (const seed of [1, 2, 3])
      expect(run(traced, 2, { seed }).findings).toMatchObject([{ rule: 'remote-access', at: bug }])
  })

  test('the last arrival goes to a block that may have ended', () => {
    let bug = ''
    const traced = probe(2, (k, { bars }) => {
      k.cluster.barrier()
      bug = here(1)
      k.when(k.lane.eq(0), () => bars.arriveAt(0, next(k)))
    })
    expect(run(traced, 2).findings).toMatchObject([{ rule: 'remote-access', at: bug }])
  })

  test('a block’s words are read without a barrier after they are written', () => {
    const traced = probe(2, (k, { out, box }) => {
      k.cluster.barrier()
      box.store(k.lane, own(k))
      out.store(at(k), k.cluster.load(box, k.lane, next(k)))
      k.cluster.barrier()
    })
    const found = [1, 2, 3, 4].map(seed => [...rules(traced, 2, { seed })])
    for (const list of found) expect(list.every(rule => rule === 'race' || rule === 'uninitialized-read')).toBe(true)
    expect(found.flat()).toContain('race')
  })

  test('a rank outside the cluster', () => {
    const traced = probe(2, (k, { out, box }) => {
      box.store(k.lane, own(k))
      k.cluster.barrier()
      out.store(at(k), k.cluster.load(box, k.lane, 2))
      k.cluster.barrier()
    })
    expect(rules(traced)).toEqual(new Set(['out-of-bounds']))
  })

  test('half of the cluster never arrives', () => {
    let bug = ''
    const traced = probe(2, k => {
      k.whenUniform(k.cluster.rank.eq(0), () => {
        bug = here(1)
        k.cluster.barrier()
      })
    })
    expect(run(traced, 2).findings).toMatchObject([{ rule: 'deadlock', at: bug }])
  })

  test.each([
    ['too many', 132, 'deadlock'],
    ['too few', 64, 'in-flight'],
  ] as const)('a receiver expects %s bytes', (_, bytes, rule) => {
    const traced = probe(2, (k, { bars, box }) => {
      k.cluster.barrier()
      k.when(k.lane.eq(0), () => bars.arriveExpect(0, bytes))
      k.cluster.storeAsync(box, k.lane, [own(k)], bars.address(0), next(k))
      bars.wait(0, 0)
      k.cluster.barrier()
    })
    expect(rules(traced)).toContain(rule)
  })

  test('kernels without a cluster have no other blocks', () => {
    expect(() => probe(1, k => k.cluster.barrier())).toThrow(/no cluster/)
    expect(() => probe(17, () => {})).toThrow(/1\.\.16/)
  })
})
