import { expect, test } from 'vitest'
import { decodeArray, encodeArray } from '../dtypes/convert.ts'
import type { Accumulator } from '../lang/accumulator.ts'
import type { KernelBuilder } from '../lang/builder.ts'
import { type Kernel, kernel } from '../lang/kernel.ts'
import { output, tensorMap } from '../lang/params.ts'
import type { Stage } from '../lang/pipeline.ts'
import { type Finding, Findings } from './finding.ts'
import { GlobalMemory } from './memory.ts'
import { simulate } from './simulate.ts'
import type { TensorMapEntry } from './tensor-copy.ts'

const [rows, columns, depth, steps] = [64, 32, 128, 3]

/** Places where a bug can be planted in the kernel below. */
interface Plan {
  readonly expectBytes?: (bytes: number) => number
  readonly beforeWait?: (k: KernelBuilder, d: Accumulator) => void
  readonly waitPending?: number
  readonly releaseEarly?: boolean
  readonly skipFence?: boolean
}

/**
 * out[64][32] = Σ over steps of A_s[64][128] B_s[32][128]ᵀ, e4m3: one producer warp copies tiles through a ring of two
 * stages, one warpgroup multiplies.
 */
const matmul = (plan: Plan = {}): Kernel =>
  kernel(
    {
      name: 'matmul',
      target: 'sm_90a',
      threads: 256,
      params: {
        a: tensorMap({ dtype: 'e4m3', box: [depth, rows], swizzle: 128 }, 'A [steps * 64, 128]'),
        b: tensorMap({ dtype: 'e4m3', box: [depth, columns], swizzle: 128 }, 'B [steps * 32, 128]'),
        out: output('f32', '[64, 32]'),
      },
    },
    (k, { a, b, out }) => {
      const tileA = k.tile({ dtype: 'e4m3', rows, columns: depth, stages: 2 })
      const tileB = k.tile({ dtype: 'e4m3', rows: columns, columns: depth, stages: 2 })
      const pipe = k.pipeline({ stages: 2, producers: 1, consumers: 128 })
      k.when(k.threadIdx.eq(0), () => {
        pipe.init()
        k.fenceBarrierInit()
      })
      k.barrier()
      k.role('produce', { warps: [0, 1] }, () => {
        const ring = pipe.producer()
        k.when(k.lane.eq(0), () => {
          const step = k.var('i32', 0)
          const bytes = a.boxBytes + b.boxBytes
          for (const s of ring.stages(steps, plan.expectBytes?.(bytes) ?? bytes)) {
            a.load(tileA.address(s.index), [0, step.mul(rows)], s.full)
            b.load(tileB.address(s.index), [0, step.mul(columns)], s.full)
            step.set(step.add(1))
          }
        })
      })
      k.role('multiply', { warps: [4, 8] }, () => {
        const d = k.accumulator(columns)
        const sums = k.vars('f32', d.length, 0)
        const ring = pipe.consumer()
        const use = (s: Stage): void => {
          if (!plan.skipFence) k.warpgroup.fence()
          d.multiply({ tile: tileA, stage: s.index }, { tile: tileB, stage: s.index })
          k.warpgroup.commit()
        }
        for (const _ of k.range(steps)) {
          use(ring.acquire())
          if (plan.releaseEarly) ring.release()
          plan.beforeWait?.(k, d)
          k.warpgroup.wait(plan.waitPending ?? 0)
          sums.forEach((sum, j) => sum.set(sum.add(d.get(j))))
          if (!plan.releaseEarly) ring.release()
        }
        const thread = k.threadIdx.sub(128)
        const row = thread.shr(5).mul(16).add(k.lane.shr(2))
        sums.forEach((sum, j) => {
          const at = row
            .add(8 * ((j >> 1) & 1))
            .mul(columns)
            .add(k.lane.bitAnd(3).mul(2))
            .add(8 * (j >> 2) + (j & 1))
          out.store(at, sum)
        })
      })
    },
  )

function run(traced: Kernel, landing: 'early' | 'late' = 'late', seed = 1) {
  const findings = new Findings()
  const global = new GlobalMemory(findings)
  let state = 7
  const codes = (count: number): Uint8Array => {
    const values = Float32Array.from(
      { length: count },
      () => (((state = (Math.imul(state, 48271) + 11) >>> 0) >>> 16) % 17) - 8,
    )
    return encodeArray('e4m3', values)
  }
  const [a, b] = [codes(steps * rows * depth), codes(steps * columns * depth)]
  const written = new Float32Array(rows * columns)
  const inputs = [a, b].map((bytes, i) => {
    const buffer = global.add('ab'[i]!, bytes)
    buffer.initialize(0, bytes.length)
    return buffer
  })
  const out = global.add('out', new Uint8Array(written.buffer))
  const entry = (name: 'a' | 'b', i: number, height: number): TensorMapEntry => ({
    param: traced.params[name] as TensorMapEntry['param'],
    address: inputs[i]!.base,
    extents: [depth, steps * height],
    byteStrides: [1, depth],
  })
  const maps = new Map([
    [1n, entry('a', 0, rows)],
    [2n, entry('b', 1, columns)],
  ])
  simulate(traced, { grid: [1, 1], args: { a: 1n, b: 2n, out: out.base }, maps, global, findings, landing, seed })
  const [x, y] = [decodeArray('e4m3', a), decodeArray('e4m3', b)]
  const expected = new Float32Array(rows * columns)
  for (let s = 0; s < steps; s++)
    for (let i = 0; i < rows; i++)
      for (let j = 0; j < columns; j++)
        for (let d = 0; d < depth; d++)
          expected[i * columns + j]! += x[(s * rows + i) * depth + d]! * y[(s * columns + j) * depth + d]!
  return { findings: findings.list, written, expected }
}

const rules = (plan: Plan, landing?: 'early' | 'late'): Set<Finding['rule']> =>
  new Set(run(matmul(plan), landing).findings.map(({ rule }) => rule))

test.each(['early', 'late'] as const)(
  'copies, barriers and multiplies give the exact product, data landing %s',
  landing => {
    for (const seed of [1, 2, 3, 4]) {
      const { findings, written, expected } = run(matmul(), landing, seed)
      expect(findings).toEqual([])
      expect(Math.max(...written.map((value, i) => Math.abs(value - expected[i]!)))).toBeLessThan(1)
    }
  },
)

test('planted bug: a barrier expects one byte too many', () => {
  expect(rules({ expectBytes: bytes => bytes + 1 })).toContain('deadlock')
})

test('planted bug: an accumulator is read before the wait', () => {
  expect(rules({ beforeWait: (_, d) => void d.get(0).add(1) })).toEqual(new Set(['matrix-registers']))
})

test('planted bug: the wait leaves the group under way', () => {
  expect(rules({ waitPending: 1 })).toContain('matrix-registers')
})

test.each(['early', 'late'] as const)(
  'planted bug: a stage is released while multiplies still read it, data landing %s',
  landing => {
    expect(rules({ releaseEarly: true }, landing)).toContain('race')
  },
)

test('planted bug: multiplies without a fence after the accumulators were zeroed', () => {
  expect(rules({ skipFence: true })).toEqual(new Set(['matrix-registers']))
})
