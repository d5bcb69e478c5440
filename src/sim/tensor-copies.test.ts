import { describe, expect, test } from 'vitest'
import { runKernel } from '../../test/sim-kernel.ts'
import type { KernelBuilder } from '../lang/builder.ts'
import { type Bound, type Kernel, kernel } from '../lang/kernel.ts'
import { type TensorMapParam, tensorMap } from '../lang/params.ts'

type Map = Bound<TensorMapParam>

const landings = ['early', 'late'] as const

describe('tensor copies', () => {
  const box = [32, 8] as const
  interface Maps {
    readonly from: Map
    readonly to: Map
  }

  /** Brings a box of x [32, 10] at `at` and stores it at the same place of y, through a swizzled tile. */
  const moving = (at: readonly [number, number], plan: (k: KernelBuilder, maps: Maps, tile: number) => void): Kernel =>
    kernel(
      {
        name: 'probe',
        target: 'sm_90a',
        threads: 32,
        params: {
          from: tensorMap({ dtype: 'f32', box, swizzle: 128 }, 'x'),
          to: tensorMap({ dtype: 'f32', box, swizzle: 128 }, 'y'),
        },
      },
      (k, { from, to }) => {
        const tile = k.shared('f32', 512)
        const full = k.barriers(1)
        k.when(k.lane.eq(0), () => {
          full.init(1)
          k.fenceBarrierInit()
          full.arriveExpect(0, from.boxBytes)
          from.prefetchMap()
          from.prefetch(at)
          from.load(tile.byteAt(), at, full.address(0), { policy: k.cachePolicy('evict_first') })
          full.wait(0, 0)
          plan(k, { from, to }, tile.startByte)
        })
      },
    )

  function runMaps(traced: Kernel, landing: 'early' | 'late' = 'late') {
    const buffers = { x: Float32Array.from({ length: 320 }, (_, i) => i + 1), y: new Float32Array(320) }
    const maps = { from: { buffer: 'x', extents: [32, 10] }, to: { buffer: 'y', extents: [32, 10] } }
    return { ...runKernel(traced, { buffers, maps, landing }), ...buffers }
  }

  const storing =
    (at: readonly [number, number], shift = 0) =>
    (k: KernelBuilder, { to }: Maps, tile: number): void => {
      to.store(tile + shift, at)
      k.bulk.commit()
      k.bulk.waitRead(0)
    }

  test.each(landings)('store what is inside the tensor, data landing %s', landing => {
    const { x, y, findings } = runMaps(moving([0, 4], storing([0, 4])), landing)
    expect(findings).toEqual([])
    expect(y).toEqual(x.map((v, i) => (i < 4 * 32 ? 0 : v)))
  })

  test('planted bug: a store at negative coordinates', () => {
    const { findings } = runMaps(moving([0, 0], storing([0, -1])))
    expect(findings).toMatchObject([{ rule: 'copy', message: expect.stringContaining('not negative') }])
  })

  test('planted bug: a box at a place that breaks the swizzle', () => {
    const { findings } = runMaps(moving([0, 0], storing([0, 0], 128)))
    expect(findings).toContainEqual(expect.objectContaining({ rule: 'misaligned' }))
  })
})
