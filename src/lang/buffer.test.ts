import { expect, test } from 'vitest'
import { printPtx } from '../ptx/print.ts'
import { Findings } from '../sim/finding.ts'
import { GlobalMemory } from '../sim/memory.ts'
import { simulate } from '../sim/simulate.ts'
import { kernel } from './kernel.ts'
import { input, output, u32 } from './params.ts'

const guarded = kernel(
  {
    name: 'guarded',
    target: 'sm_75',
    threads: 32,
    residentBlocks: 4,
    params: { codes: input('bf16', '[n]'), out: output('f32', '[32]'), n: u32('codes') },
  },
  (k, { codes, out, n }) => out.store(k.threadIdx, codes.loadIf(k.threadIdx.lt(n), k.threadIdx)),
)

test('a guarded load gives the element where the condition holds, 0 elsewhere, and touches nothing there', () => {
  const findings = new Findings()
  const global = new GlobalMemory(findings)
  const codes = global.add('codes', new Uint8Array(Uint16Array.of(0x3f80, 0xc020, 0x4170).buffer))
  codes.initialize(0, 6)
  const out = global.add('out', new Uint8Array(128).fill(0xff))
  simulate(guarded, { grid: [1, 1], args: { codes: codes.base, out: out.base, n: 3 }, global, findings })
  expect(findings.list).toEqual([])
  expect([...new Float32Array(out.bytes.buffer)]).toEqual([1, -2.5, 15, ...new Array<number>(29).fill(0)])
  simulate(guarded, { grid: [1, 1], args: { codes: codes.base, out: out.base, n: 4 }, global, findings })
  expect(findings.list.map(({ rule }) => rule)).toEqual(['out-of-bounds'])
})

test('it is one predicated load', () => {
  const text = printPtx(guarded)
  expect(text).toContain('  mov.b32 %u32_7, 0;\n  @%pred_5 ld.global.u16 %u32_7, [%t0];\n')
  expect(text).toContain('.maxntid 32, 1, 1\n.minnctapersm 4\n')
})
