import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import type { KernelBuilder } from '../lang/builder.ts'
import { type Kernel, kernel } from '../lang/kernel.ts'
import { input, output, u32 } from '../lang/params.ts'
import { lineOf } from '../lang/site.ts'
import { type Target, targets } from '../lang/types.ts'
import { printPtx, printPtxWithSites } from './print.ts'

/** The statements between the register declarations and the final `ret`. */
const bodyOf = (define: (k: KernelBuilder) => void): string => {
  const text = printPtx(kernel({ name: 'probe', target: 'sm_90a', threads: 32, params: {} }, define))
  return text.slice(text.lastIndexOf('.reg ')).split('\n').slice(1, -3).join('\n')
}

test('a run-time loop is a counted block', () => {
  expect(
    bodyOf(k => {
      const sum = k.var('u32', 0)
      for (const i of k.range(10, { step: 2 })) sum.set(sum.add(i))
    }),
  ).toMatchInlineSnapshot(`
    "  mov.b32 %u32_0, 0;
      mov.b32 %i_1, 0;
    LOOP_0:
      setp.ge.u32 %t0, %i_1, 10;
      @%t0 bra END_1;
      add.u32 %u32_2, %u32_0, %i_1;
      mov.b32 %u32_0, %u32_2;
      add.u32 %i_1, %i_1, 2;
      bra LOOP_0;
    END_1:"
  `)
})

test('a role is entered by the number of the warp, which all its lanes agree on', () => {
  expect(bodyOf(k => k.role('some', { warps: [1, 3] }, () => {}))).toMatchInlineSnapshot(`
    "  mov.u32 %t0, %tid.x;
      shr.u32 %t0, %t0, 5;
      shfl.sync.idx.b32 %t0, %t0, 0, 31, -1;
      sub.u32 %t0, %t0, 1;
      setp.ge.u32 %t1, %t0, 2;
      @%t1 bra.uni AFTER_SOME_0;
    AFTER_SOME_0:"
  `)
})

test('a branch with two sides', () => {
  expect(
    bodyOf(k => {
      const x = k.var('f32', 0)
      k.when(
        k.lane.lt(16),
        () => x.set(1),
        () => x.set(-0.5),
      )
    }),
  ).toMatchInlineSnapshot(`
    "  mov.f32 %f32_0, 0f00000000;
      mov.u32 %u32_1, %laneid;
      setp.lt.u32 %pred_2, %u32_1, 16;
      @!%pred_2 bra ELSE_0;
      mov.f32 %f32_0, 0f3F800000;
      bra END_1;
    ELSE_0:
      mov.f32 %f32_0, 0fBF000000;
    END_1:"
  `)
})

test('shared memory is addressed from its start', () => {
  expect(
    bodyOf(k => {
      const tile = k.shared('f32', 64)
      tile.store(k.lane, 1)
      k.barrier()
      tile.load(3)
    }),
  ).toMatchInlineSnapshot(`
    "  mov.u32 %smem, smem;
      mov.u32 %u32_0, %laneid;
      mul.lo.u32 %u32_1, %u32_0, 4;
      add.u32 %u32_2, %u32_1, 0;
      add.u32 %t0, %smem, %u32_2;
      st.shared.f32 [%t0], 0f3F800000;
      bar.sync 0;
      add.u32 %t1, %smem, 12;
      ld.shared.f32 %f32_3, [%t1];"
  `)
})

test('every line of an instruction knows who wrote it', () => {
  const traced = kernel({ name: 'probe', target: 'sm_90a', threads: 32, params: { n: u32('n') } }, (k, { n }) => {
    const sum = k.var('f32', 0)
    for (const i of k.range(n)) sum.set(sum.add(i.to('f32')))
  })
  const { text, siteOf } = printPtxWithSites(traced)
  const lines = text.split('\n').map((line, i) => [line.trim(), siteOf(i + 1)] as const)
  const authorOf = (start: string): string => lineOf(lines.find(([line]) => line.startsWith(start))![1])
  const [first, second] = [authorOf('mov.f32'), authorOf('add.rn.f32')].map(at => /print\.test\.ts:(\d+)$/.exec(at)![1])
  expect(Number(second) - Number(first)).toBe(1)
  expect(authorOf('setp.ge.u32')).toBe(authorOf('add.rn.f32'))
  expect(lines.find(([line]) => line.startsWith('ld.param'))![1]).toBeUndefined()
  expect(lines.find(([line]) => line === 'ret;')![1]).toBeUndefined()
})

/** A kernel that uses every portable construct. */
const everything = (target: Target): Kernel =>
  kernel(
    {
      name: 'everything',
      target,
      threads: 64,
      params: {
        q: input('e4m3', 'q'),
        w: input('bf16', 'w'),
        h: input('f16', 'h'),
        out: output('bf16', 'out'),
        n: u32('n'),
      },
    },
    (k, { q, w, h, out, n }) => {
      const sum = k.var('f32', 0)
      const row = k.offset(0, k.blockIdx.x, n)
      for (const i of k.range(n, { start: k.threadIdx, step: 64 })) {
        const x = q.load(k.offset(row, i, 1)).fma(w.load(i), h.load(i))
        sum.set(x.max(0).add(sum))
      }
      const tile = k.shared('f32', 2)
      const total = k.warpSum(k.exp2(sum.sub(k.warpMax(sum))))
      k.when(k.lane.eq(0), () => tile.store(k.threadIdx.shr(5), total))
      k.barrier()
      k.when(k.threadIdx.eq(0).and(n.gt(0)), () => out.store(row, k.rcp(tile.load(0).add(tile.load(1)))))
    },
  )

const hasPtxas = ((): boolean => {
  try {
    execFileSync('ptxas', ['--version'], { stdio: 'ignore' })
    return true
  } catch {
    return false
  }
})()

describe.runIf(hasPtxas)('ptxas accepts what is printed', () => {
  test.each(targets)('for %s, without spills', target => {
    const folder = mkdtempSync(join(tmpdir(), 'ptx-'))
    try {
      const file = join(folder, 'kernel.ptx')
      writeFileSync(file, printPtx(everything(target)))
      const log = execFileSync('bash', ['-c', `ptxas -arch=${target} -v ${file} -o /dev/null 2>&1`], {
        encoding: 'utf8',
      })
      expect(log).toContain('0 bytes spill stores')
      expect(log).not.toMatch(/C75\d\d/)
    } finally {
      rmSync(folder, { recursive: true })
    }
  })
})
