import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type ConformanceCase, runCase } from '../src/conformance/case.ts'
import { conformanceCases } from '../src/conformance/cases.ts'
import { determinismCases } from '../src/conformance/determinism.ts'
import { goldenCases } from '../src/conformance/golden.ts'
import { type CpuDevice, openCpuDevice } from '../src/cpu/device.ts'
import type { CpuOptions } from '../src/cpu/options.ts'
import { parseSafetensors } from '../src/tensor/safetensors.ts'
import { Tensor } from '../src/tensor/tensor.ts'

const golden = (name: string): string => fileURLToPath(new URL(`golden/${name}`, import.meta.url))
const goldens = ['flashmla.safetensors', 'deepgemm_mqa_logits.safetensors', 'hf_dsv32_layer.safetensors'].flatMap(
  name => goldenCases(parseSafetensors(readFileSync(golden(name))), name),
)
const all = [...conformanceCases, ...goldens]

/** The whole table in both builds and on several threads; how work is spread over threads does not depend on the build. */
const devices: readonly (CpuOptions & { readonly cases: readonly ConformanceCase[] })[] = [
  { threads: 1, build: 'relaxed', cases: all },
  { threads: 2, build: 'relaxed', cases: all },
  { threads: 1, build: 'simd128', cases: all },
  { threads: 2, build: 'simd128', cases: [...determinismCases, ...goldens] },
]

describe.each(devices)('cpu, $threads threads, $build', ({ cases, ...options }) => {
  let device: CpuDevice
  beforeAll(async () => {
    device = await openCpuDevice(options)
  })
  afterAll(() => device.dispose())

  test.each(cases.map(one => [`${one.op}: ${one.name}`, one] as const))('%s', async (_, one) => {
    const { ok, detail, worst } = await runCase(device, one)
    expect(detail).toBeUndefined()
    expect(ok).toBe(true)
    expect(worst).toBeLessThanOrEqual(1)
  })

  test('no case leaves memory behind', async () => {
    await device.sync()
    expect(device.bytesInUse).toBe(0)
  })
})

describe('the table', () => {
  test('names every case once', () => {
    const names = all.map(one => `${one.op}: ${one.name}`)
    expect(names).toEqual([...new Set(names)])
  })

  const computing = conformanceCases.filter(({ name }) => !/^(refuses|takes)/.test(name))

  test('a device that runs nothing fails every case that computes', async () => {
    await using device = await openCpuDevice({ threads: 1 })
    device.submit = () => {}
    const passed: string[] = []
    for (const one of computing) if ((await runCase(device, one)).ok) passed.push(`${one.op}: ${one.name}`)
    expect(passed).toEqual([])
  })

  test('a device whose floats are 10 % too large fails every case that compares with a reference', async () => {
    await using device = await openCpuDevice({ threads: 1 })
    const read = device.read.bind(device)
    device.read = async source => {
      const t = await read(source)
      if (t.dtype !== 'f32' && t.dtype !== 'bf16') return t
      const grown = t.floats().map(x => 1.1 * x)
      const cast = new Tensor({ ...t, dtype: 'f32' }, grown).cast(t.dtype)
      return cast as never
    }
    // Not those whose outputs are integers or codes, whose results are all zero, or that compare two runs of the device.
    const compared = computing.filter(
      ({ op, name }) => !exact.has(op) && !/bit|rounded once|view|no keys|equals/.test(name),
    )
    const passed: string[] = []
    for (const one of compared) if ((await runCase(device, one)).ok) passed.push(`${one.op}: ${one.name}`)
    expect(passed).toEqual([])
  })
})

/** Operations whose outputs are integers, codes or copies. */
const exact = new Set(['topK', 'indexTopK', 'remapIndices', 'quantize', 'appendToCache', 'cast'])
