import { expect, test } from 'vitest'
import { here, runKernel } from '../../test/sim-kernel.ts'
import { encodeArray } from '../dtypes/convert.ts'
import { type Kernel, kernel } from '../lang/kernel.ts'
import { output, tensorMap } from '../lang/params.ts'
import { printPtx } from '../ptx/print.ts'

const [m, n, depth, steps] = [256, 32, 64, 3]

interface Plan {
  /** The even block's barrier counts the bytes of both. */
  readonly pair?: boolean
  /** Who waits before the operands are overwritten. */
  readonly multicast?: number
  /** The copying warps wait for the last commit. */
  readonly tail?: boolean
}

let bug = ''

/** D[256][32] = Σ A_s B_sᵀ on two blocks, each with half of both operands in one stage. */
const multiplyOnPair = ({ pair = true, multicast = 3, tail = true }: Plan = {}): Kernel =>
  kernel(
    {
      name: 'pair',
      target: 'sm_100a',
      threads: 128,
      cluster: 2,
      params: {
        a: tensorMap({ dtype: 'bf16', box: [depth, m / 2], swizzle: 128 }, 'A [steps · 256, 64]'),
        b: tensorMap({ dtype: 'bf16', box: [depth, n / 2], swizzle: 128 }, 'B [steps · 32, 64]'),
        out: output('f32', '[256, 32]'),
      },
    },
    (k, { a, b, out }) => {
      const memory = k.tensorMemory({ columns: 32, pair: true })
      const tileA = k.tile({ dtype: 'bf16', rows: m / 2, columns: depth })
      const tileB = k.tile({ dtype: 'bf16', rows: n / 2, columns: depth })
      const [full, empty, done] = [k.barriers(1), k.barriers(1), k.barriers(1)]
      const { rank } = k.cluster
      k.when(k.threadIdx.eq(0), () => {
        full.init(1)
        empty.init(1)
        done.init(1)
        k.fenceBarrierInit()
      })
      const first = k.threadIdx.lt(32)
      k.whenUniform(first, () => {
        memory.allocate()
        memory.relinquish()
      })
      memory.beforeSync()
      k.cluster.barrier()
      memory.afterSync()
      memory.open()
      const d = memory.accumulator({ m, n })
      k.role('copy', { warps: [1, 2] }, () =>
        k.when(k.lane.eq(0), () => {
          for (const step of k.range(steps)) {
            empty.wait(0, step.add(1).bitAnd(1))
            k.when(rank.eq(0), () => full.arriveExpect(0, 2 * (a.boxBytes + b.boxBytes)))
            const row = (height: number) => step.mul(2).add(rank).mul(height).to('i32')
            bug = here(1)
            a.load(tileA.address(), [0, row(m / 2)], full.address(0), { pair })
            b.load(tileB.address(), [0, row(n / 2)], full.address(0), { pair })
          }
          // The last commit arrives in this block too, which must still be there.
          if (tail) empty.wait(0, (steps - 1) & 1)
        }),
      )
      k.role('multiply', { warps: [0, 1] }, () =>
        k.when(k.lane.eq(0).and(rank.eq(0)), () => {
          for (const step of k.range(steps)) {
            full.wait(0, step.bitAnd(1))
            memory.afterSync()
            d.multiply({ tile: tileA }, { tile: tileB }, { accumulate: step })
            memory.commit(empty.address(0), { multicast })
          }
          memory.commit(done.address(0), { multicast: 3 })
        }),
      )
      k.warpBarrier()
      done.wait(0, 0)
      memory.afterSync()
      const values = d.load('32x32b', n)
      memory.waitLoads()
      const row = rank.mul(m / 2).add(k.threadIdx)
      values.forEach((value, j) => out.store(row.mul(n).add(j), value))
      memory.beforeSync()
      k.cluster.barrier()
      k.whenUniform(first, () => {
        memory.afterSync()
        memory.free()
      })
    },
  )

function run(traced: Kernel, landing: 'early' | 'late' = 'late', seed = 1) {
  let state = 7
  const values = (count: number): Float32Array =>
    Float32Array.from({ length: count }, () => (((state = (Math.imul(state, 48271) + 11) >>> 0) >>> 16) % 9) - 4)
  const [a, b] = [values(steps * m * depth), values(steps * n * depth)]
  const out = new Float32Array(m * n)
  const codes = (x: Float32Array) => encodeArray('bf16', x) as Uint16Array
  const result = runKernel(traced, {
    buffers: { x: codes(a), y: codes(b), out },
    maps: {
      a: { buffer: 'x', extents: [depth, steps * m] },
      b: { buffer: 'y', extents: [depth, steps * n] },
    },
    blocks: 2,
    landing,
    seed,
  })
  const expected = new Float32Array(m * n)
  for (let s = 0; s < steps; s++)
    for (let i = 0; i < m; i++)
      for (let j = 0; j < n; j++)
        for (let x = 0; x < depth; x++)
          expected[i * n + j]! += a[(s * m + i) * depth + x]! * b[(s * n + j) * depth + x]!
  return { ...result, out, expected }
}

test.each(['early', 'late'] as const)('a pair of blocks with copies counted at the even one, landing %s', landing => {
  for (const seed of [1, 2]) {
    const { findings, out, expected } = run(multiplyOnPair(), landing, seed)
    expect(findings).toEqual([])
    expect(out).toEqual(expected)
  }
})

test('planted bug: copies count at each block’s own barrier', () => {
  const { findings } = run(multiplyOnPair({ pair: false }))
  expect(findings).toContainEqual(expect.objectContaining({ rule: 'deadlock' }))
})

test('planted bug: the commit tells one block only', () => {
  const { findings } = run(multiplyOnPair({ multicast: 1 }))
  expect(findings).toContainEqual(expect.objectContaining({ rule: 'deadlock' }))
})

test('planted bug: nobody in the other block waits for the last commit to it', () => {
  const { findings } = run(multiplyOnPair({ tail: false }))
  expect(findings).toMatchObject([{ rule: 'remote-access' }])
})

test('the address of the even block’s barrier is in the text', () => {
  expect(bug).toMatch(/tensor-pair\.test\.ts/)
  const text = printPtx(multiplyOnPair())
  expect(text).toMatch(/and\.b32 %t\d+, %t\d+, 14;\n {2}mapa\.shared::cluster\.u32/)
  expect(text).toContain('.mbarrier::complete_tx::bytes.cta_group::2 [')
})
