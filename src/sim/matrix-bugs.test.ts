import { describe, expect, test } from 'vitest'
import { multiplying, once, runMultiply as run, type Tiles } from '../../test/multiply-kernel.ts'
import { here, runKernel } from '../../test/sim-kernel.ts'
import type { Accumulator } from '../lang/accumulator.ts'
import type { KernelBuilder } from '../lang/builder.ts'
import { Fragments } from '../lang/fragments.ts'
import { type Kernel, kernel } from '../lang/kernel.ts'
import { input } from '../lang/params.ts'
import type { SmemTile } from '../lang/smem-tile.ts'

describe('planted bugs', () => {
  const sizes = { a: { rows: 64, columns: 64 }, b: { rows: 16, columns: 64 }, n: 16 }

  test('ordinary stores without a proxy fence', () => {
    let bug = ''
    const traced = multiplying(
      'bf16',
      sizes,
      (k, d, { a, b }) => {
        k.warpgroup.fence()
        bug = here(1)
        d.multiply({ tile: a }, { tile: b })
        k.warpgroup.commit()
        k.warpgroup.wait(0)
      },
      () => {},
    )
    const { findings } = run('bf16', sizes, traced)
    expect(findings[0]).toMatchObject({ rule: 'missing-proxy-fence', at: bug })
  })

  test('copies by threads without a proxy fence are a warning', () => {
    const traced = (fence: boolean): Kernel =>
      kernel({ name: 'probe', target: 'sm_90a', threads: 128, params: { a: input('bf16', 'A [64, 64]') } }, (k, p) => {
        const tile = k.tile({ dtype: 'bf16', rows: 64, columns: 64 })
        for (const i of k.range(512, { start: k.threadIdx, step: 128 }))
          k.threadCopies.load(tile.at(0, i.shr(3), i.bitAnd(7).mul(16)), p.a.address(i.mul(8)))
        k.threadCopies.commit()
        k.threadCopies.wait(0)
        if (fence) k.fenceProxyAsync()
        k.barrier()
        once(k, k.accumulator(64), { tile }, { tile })
      })
    const buffers = { a: new Uint16Array(64 * 64) }
    expect(runKernel(traced(true), { buffers })).toMatchObject({ findings: [], warnings: [] })
    expect(runKernel(traced(false), { buffers })).toMatchObject({
      findings: [],
      warnings: [{ rule: 'missing-proxy-fence' }],
    })
  })

  test('registers of A are assigned after the fence', () => {
    let bug = ''
    const traced = multiplying('bf16', sizes, (k, d, { a, b }) => {
      k.warpgroup.fence()
      const words = k.loadMatrices(a.at(0, k.lane.bitAnd(15), k.lane.shr(4).mul(16)), 4)
      bug = here(1)
      d.multiply(new Fragments('bf16', words), { tile: b }, { depth: 16 })
      k.warpgroup.commit()
      k.warpgroup.wait(0)
    })
    expect(run('bf16', sizes, traced).findings).toMatchObject([{ rule: 'matrix-registers', at: bug }])
  })

  test('registers of A are read before the wait', () => {
    let bug = ''
    const traced = multiplying('bf16', sizes, (k, d, { a, b }) => {
      const words = k.loadMatrices(a.at(0, k.lane.bitAnd(15), k.lane.shr(4).mul(16)), 4)
      k.warpgroup.fence()
      d.multiply(new Fragments('bf16', words), { tile: b }, { depth: 16 })
      k.warpgroup.commit()
      bug = here(1)
      words[0]!.add(1)
      k.warpgroup.wait(0)
    })
    expect(run('bf16', sizes, traced).findings).toMatchObject([{ rule: 'matrix-registers', at: bug }])
  })

  test('warps of a warpgroup differ in whether they accumulate', () => {
    let bug = ''
    const traced = multiplying('bf16', sizes, (k, d, { a, b }) => {
      k.warpgroup.fence()
      bug = here(1)
      d.multiply({ tile: a }, { tile: b }, { depth: 16, accumulate: k.threadIdx.shr(6) })
      k.warpgroup.commit()
      k.warpgroup.wait(0)
    })
    expect(run('bf16', sizes, traced).findings).toMatchObject([{ rule: 'divergence', at: bug }])
  })

  test.each([
    ['leaves out where shared memory begins', -64n, /16 bytes at shared byte -/],
    ['starts inside the swizzle pattern', 8n, /inside the 128-byte swizzle/],
    ['has reserved bits set', 1n << 14n, /reserved bits/],
    ['has a base offset', 1n << 49n, /base offset/],
    ['has rows apart that break the swizzle', 8n << 32n, /break the 128-byte swizzle/],
  ])('a descriptor that %s', (_, change, message) => {
    let bug = ''
    const traced = multiplying('bf16', sizes, (k, d, { a, b }) => {
      const moved: SmemTile = Object.create(a, {
        descriptors: {
          value: () => (row: number, byte: number) => a.descriptors(0)(row, byte).add(BigInt.asUintN(64, change)),
        },
      })
      k.warpgroup.fence()
      bug = here(1)
      d.multiply({ tile: moved }, { tile: b }, { depth: 16 })
      k.warpgroup.commit()
      k.warpgroup.wait(0)
    })
    expect(run('bf16', sizes, traced).findings).toContainEqual(
      expect.objectContaining({ at: bug, message: expect.stringMatching(message) }),
    )
  })

  test('a multiply is never waited for', () => {
    let bug = ''
    const traced = kernel({ name: 'probe', target: 'sm_90a', threads: 128, params: {} }, k => {
      const tile = k.tile({ dtype: 'bf16', rows: 64, columns: 16 })
      for (const i of k.range(512, { start: k.threadIdx, step: 128 }))
        tile.storeWord(tile.at(0, i.shr(3), i.bitAnd(7).mul(4)), k.const('u32', 0))
      k.fenceProxyAsync()
      k.barrier()
      const d = k.accumulator(8)
      k.warpgroup.fence()
      bug = here(1)
      d.multiply({ tile }, { tile })
      k.warpgroup.commit()
    })
    expect(runKernel(traced, {}).findings).toMatchObject([{ rule: 'in-flight', at: bug }])
  })

  test('shapes that no multiply has are refused at the author’s line', () => {
    const misuse = (what: (k: KernelBuilder, d: Accumulator, tiles: Tiles) => void) => () =>
      multiplying('bf16', sizes, what)
    expect(misuse((_, d, { a, b }) => d.multiply({ tile: a, column: 8 }, { tile: b }))).toThrow(/multiple/)
    expect(misuse((_, d, { a, b }) => d.multiply({ tile: a, row: 4 }, { tile: b }))).toThrow(/multiples of 8/)
    expect(misuse((_, d, { a, b }) => d.multiply({ tile: a }, { tile: b, row: 8 }))).toThrow(/B has 8 rows/)
    expect(misuse((_, d, { a, b }) => d.multiply({ tile: a }, { tile: b }, { depth: 128 }))).toThrow(/A has 64/)
    expect(() =>
      multiplying('e4m3', { a: { rows: 64, columns: 64 }, b: { rows: 64, columns: 64 }, n: 16 }, (_, d, { a, b }) =>
        d.multiply({ tile: a }, { tile: b, transposed: true }),
      ),
    ).toThrow(/only 16-bit/)
  })
})
