import { describe, expect, test } from 'vitest'
import { here, runKernel } from '../../test/sim-kernel.ts'
import type { KernelBuilder } from '../lang/builder.ts'
import type { TensorCopyShape } from '../lang/isa/tensor-memory.ts'
import { type TensorShape, tensorShapes } from '../lang/isa/tensor-shape.ts'
import { type Bound, type Kernel, kernel } from '../lang/kernel.ts'
import { input, output } from '../lang/params.ts'
import type { TensorMemory } from '../lang/tensor-memory.ts'

const params = { x: input('u32', 'x'), out: output('u32', 'out') }
type P = { readonly [K in keyof typeof params]: Bound<(typeof params)[K]> }

const inMemory = (use: (k: KernelBuilder, p: P, memory: TensorMemory) => void): Kernel =>
  kernel({ name: 'probe', target: 'sm_100a', threads: 128, params }, (k, p) => {
    const memory = k.tensorMemory({ columns: 64 })
    k.whenUniform(k.threadIdx.lt(32), () => memory.allocate())
    memory.beforeSync()
    k.barrier()
    memory.afterSync()
    memory.open()
    use(k, p, memory)
    memory.beforeSync()
    k.barrier()
    k.whenUniform(k.threadIdx.lt(32), () => {
      memory.afterSync()
      memory.free()
    })
  })

/** Words that tell lane and column. */
const word = (lane: number, column: number): number => (lane << 9) | column

describe('a load and a store of one shape meet a load of another', () => {
  test.each([
    ['16x64b', 8],
    ['16x128b', 4],
    ['16x256b', 2],
    ['16x32bx2', 8],
  ] as const)('%s', (shape: TensorShape, times) => {
    const { registers, lane, column } = tensorShapes[shape]
    const second = shape === '16x32bx2' ? { second: 16 } : {}
    const count = registers * times
    const traced = inMemory((k, { x, out }, memory) => {
      memory.store(
        '32x32b',
        Array.from({ length: 32 }, (_, j) => x.load(k.threadIdx.mul(32).add(j))),
      )
      memory.waitStores()
      const halves = [0, 16].flatMap(half => memory.load('u32', shape, times, { lane: half as 0 | 16, ...second }))
      memory.waitLoads()
      // Back through the same shape, 32 columns on, and out row by row.
      for (const half of [0, 1] as const)
        memory.store(shape, halves.slice(half * count, (half + 1) * count), {
          column: 32,
          lane: (16 * half) as 0 | 16,
          ...second,
        })
      memory.waitStores()
      halves.forEach((value, j) => out.store(k.threadIdx.mul(2 * count).add(j), value))
    })
    const x = Uint32Array.from({ length: 128 * 32 }, (_, i) => word(i >> 5, i & 31))
    const out = new Uint32Array(128 * 2 * count)
    for (const landing of ['early', 'late'] as const) {
      expect(runKernel(traced, { buffers: { x, out }, landing }).findings).toEqual([])
      out.forEach((value, i) => {
        const [thread, j] = [Math.floor(i / (2 * count)), i % (2 * count)]
        const [half, own, t] = [Math.floor(j / count), j % count, thread & 31]
        const moved = shape === '16x32bx2' && t >= 16 ? 16 : 0
        expect(value).toBe(word(32 * (thread >> 5) + 16 * half + lane(t, own), column(t, own) + moved))
      })
    }
  })
})

describe('copies from shared memory', () => {
  test.each([
    ['128x256b', 8, (l: number) => l],
    ['128x128b', 4, (l: number) => l],
    ['64x128b.warpx2::02_13', 4, (l: number) => l % 64],
    ['64x128b.warpx2::01_23', 4, (l: number) => (l % 32) + 32 * (l >> 6)],
    ['32x128b.warpx4', 4, (l: number) => l % 32],
  ] as const)('%s', (shape: TensorCopyShape, columns, row) => {
    const traced = inMemory((k, { x, out }, memory) => {
      const tile = k.tile({ dtype: 'bf16', rows: 128, columns: 16 })
      const done = k.barriers(1)
      k.when(k.threadIdx.eq(0), () => {
        done.init(1)
        k.fenceBarrierInit()
      })
      for (let w = 0; w < 8; w++) tile.storeWord(tile.at(0, k.threadIdx, 4 * w), x.load(k.threadIdx.mul(8).add(w)))
      k.fenceProxyAsync()
      k.barrier()
      k.when(k.threadIdx.eq(0), () => {
        memory.copy(shape, 8, tile.descriptors(0)(0, 0))
        memory.commit(done.address(0))
      })
      k.warpBarrier()
      done.wait(0, 0)
      memory.afterSync()
      const words = memory.load('u32', '32x32b', columns, { column: 8 })
      memory.waitLoads()
      words.forEach((value, j) => out.store(k.threadIdx.mul(columns).add(j), value))
    })
    const x = Uint32Array.from({ length: 128 * 8 }, (_, i) => word(i >> 3, i & 7))
    const out = new Uint32Array(128 * columns)
    expect(runKernel(traced, { buffers: { x, out } }).findings).toEqual([])
    out.forEach((value, i) => expect(value).toBe(word(row(Math.floor(i / columns)), i % columns)))
  })

  test('a copy whose place no source tells is reported', () => {
    const traced = inMemory((k, _, memory) => {
      const tile = k.tile({ dtype: 'bf16', rows: 8, columns: 16 })
      k.when(k.threadIdx.eq(0), () => memory.copy('4x256b', 0, tile.descriptors(0)(0, 0)))
    })
    const { findings } = runKernel(traced, { buffers: { x: new Uint32Array(1), out: new Uint32Array(1) } })
    expect(findings).toContainEqual(
      expect.objectContaining({ rule: 'descriptor', message: expect.stringMatching(/4x256b/) }),
    )
  })
})

describe('A by a copy, multiplied by another thread', () => {
  /** D[128][16] = A B with A copied to tensor memory by warp 0 and multiplied by warp 1. */
  const copied = (fences: { readonly before: boolean; readonly after: boolean }): Kernel =>
    inMemory((k, { x, out }, memory) => {
      const a = k.tile({ dtype: 'bf16', rows: 128, columns: 16 })
      const b = k.tile({ dtype: 'bf16', rows: 16, columns: 16 })
      const done = k.barriers(1)
      k.when(k.threadIdx.eq(0), () => {
        done.init(1)
        k.fenceBarrierInit()
      })
      for (let w = 0; w < 8; w++) a.storeWord(a.at(0, k.threadIdx, 4 * w), x.load(k.threadIdx.mul(8).add(w)))
      k.when(k.threadIdx.lt(16), () => {
        for (let w = 0; w < 8; w++) b.storeWord(b.at(0, k.threadIdx, 4 * w), x.load(k.threadIdx.mul(8).add(w)))
      })
      k.fenceProxyAsync()
      k.barrier()
      k.when(k.threadIdx.eq(0), () => {
        memory.copy('128x256b', 32, a.descriptors(0)(0, 0))
        if (fences.before) memory.beforeSync()
      })
      k.barrier()
      k.when(k.threadIdx.eq(32), () => {
        if (fences.after) memory.afterSync()
        const [d, left] = [
          memory.accumulator({ m: 128, n: 16 }),
          memory.operand({ dtype: 'bf16', depth: 16, column: 32 }),
        ]
        bug = here(1)
        d.multiply(left, { tile: b })
        memory.commit(done.address(0))
      })
      k.warpBarrier()
      done.wait(0, 0)
      memory.afterSync()
      const values = memory.load('f32', '32x32b', 16)
      memory.waitLoads()
      values.forEach((value, j) => out.store(k.threadIdx.mul(16).add(j), value.to('u32')))
    })
  let bug = ''
  // Of each row one element is 1, the others 0.
  const x = Uint32Array.from({ length: 128 * 8 }, (_, i) => ((i >> 3) % 8 === i % 8 ? 0x3f80 : 0))
  const out = new Uint32Array(128 * 16)

  test('with fences around the barrier it is in order, and over when the multiply is', () => {
    const { findings } = runKernel(copied({ before: true, after: true }), { buffers: { x, out } })
    expect(findings).toEqual([])
    out.forEach((value, i) => expect(value).toBe((i >> 4) % 8 === i % 8 ? 1 : 0))
  })

  test.each([
    [{ before: false, after: true }, 'race'],
    [{ before: true, after: false }, 'tensor-fence'],
  ] as const)('%o is not', (fences, rule) => {
    const { findings } = runKernel(copied(fences), { buffers: { x, out } })
    expect(findings).toContainEqual(
      expect.objectContaining({ rule, at: bug, message: expect.stringMatching(/a copy of warp 0/) }),
    )
  })
})

test('planted bug: columns beyond a small allocation', () => {
  let bug = ''
  const traced = inMemory((k, _, memory) => {
    k.whenUniform(k.threadIdx.lt(32), () => {
      bug = here(1)
      memory.load('u32', '32x32b', 4, { column: 62 })
      memory.waitLoads()
    })
  })
  const { findings } = runKernel(traced, { buffers: { x: new Uint32Array(1), out: new Uint32Array(1) } })
  expect(findings).toMatchObject([
    { rule: 'tensor-memory', at: bug, message: expect.stringMatching(/column 64 is not allocated/) },
  ])
})
