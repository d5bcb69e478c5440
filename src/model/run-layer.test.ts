import { readFileSync } from 'node:fs'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type CpuDevice, openCpuDevice } from '../cpu/device.ts'
import { FormatError, OptionError, ValueError } from '../errors.ts'
import type { LatentLayoutName } from '../tensor/cache-layout.ts'
import { parseSafetensors, type SafetensorsFile, writeSafetensors } from '../tensor/safetensors.ts'
import { type RunLayerOptions, runLayer } from './run-layer.ts'
import { dsaStages } from './step-args.ts'

const golden = new URL('../../test/golden/hf_dsv32_layer.safetensors', import.meta.url)
const rows = 160

let device: CpuDevice
let file: SafetensorsFile
beforeAll(async () => {
  device = await openCpuDevice({ threads: 1 })
  file = parseSafetensors(new Uint8Array(readFileSync(golden)), 'golden')
})
afterAll(() => device.dispose())

const run = (options: RunLayerOptions = {}) => runLayer(device, file, options)

describe('the layer of Hugging Face transformers', () => {
  test('f32: the same keys for every token, the same output', async () => {
    const report = await run()
    expect(report.selection).toEqual({ rows, identicalRows: rows, tiedRows: 0, overlap: 1 })
    expect(report.out.maxRelToPeak).toBeLessThan(1e-5)
    expect(report.tokens).toBe(rows)
    expect(report.stages.map(({ name }) => name)).toEqual(dsaStages)
    expect(report.device).toContain('cpu')
    expect(report.selected.map(keys => keys.length)).toEqual(
      Array.from({ length: rows }, (_, t) => Math.min(48, t + 1)),
    )
  })

  test('on two threads the same bits', async () => {
    const two = await openCpuDevice({ threads: 2 })
    const { device: _, stages: __, ...expected } = await run({ scores: true })
    expect(await runLayer(two, file, { scores: true })).toMatchObject(expected)
    await two.dispose()
  })

  test('bf16 cache', async () => {
    const { selection, out } = await run({ cache: 'bf16' })
    expect(selection.identicalRows).toBe(rows)
    expect(out.cosine).toBeGreaterThan(0.9999)
  })

  test.each<LatentLayoutName>(['fp8', 'fp8-token', 'fp8-block128', 'packed656'])(
    '%s, keys of the file',
    async cache => {
      const { out, selection } = await run({ cache, selection: 'file' })
      expect(out.cosine).toBeGreaterThan(0.9985)
      expect(selection.overlap).toBe(1)
    },
  )

  test.each([false, true])('f32 indexer, Hadamard %s, selects the same keys', async hadamard => {
    expect((await run({ hadamard })).selection.identicalRows).toBe(rows)
  })

  test.each([false, true])('fp8 indexer, Hadamard %s, selects nearly the same keys', async hadamard => {
    const { selection } = await run({ indexer: 'fp8', hadamard })
    expect(selection.overlap).toBeGreaterThan(0.97)
    expect(await run({ indexer: 'fp8-planar', hadamard })).toMatchObject({ selection })
  })

  test('cut into chunks: the same keys, the same output', async () => {
    const whole = await run()
    for (const chunk of [160, 64, 16, 7, 1]) {
      const { out, selected, selection } = await run({ chunk, pageSize: 16 })
      expect(selected).toEqual(whole.selected)
      expect(selection.identicalRows).toBe(rows)
      expect(out.maxRelToPeak).toBeLessThan(1e-5)
    }
  })

  test('fewer keys: the best of the file', async () => {
    const { selection } = await run({ topk: 16 })
    expect(selection).toEqual({ rows, identicalRows: rows, tiedRows: 0, overlap: 1 })
  })

  test('scores say why keys were selected', async () => {
    const { scores, selected } = await run({ scores: true, topk: 8, chunk: 50 })
    for (const [t, row] of scores!.entries()) {
      expect(row.length).toBe(t + 1)
      const taken = new Set(selected[t])
      const worst = Math.min(...selected[t]!.map(key => row[key]!))
      expect([...row].every((score, key) => taken.has(key) || score <= worst)).toBe(true)
    }
  })
})

test('the device is left as it was', async () => {
  await device.sync()
  const before = device.bytesInUse
  await run({ indexer: 'fp8', cache: 'packed656' })
  await device.sync()
  expect(device.bytesInUse).toBe(before)
})

describe('refusals', () => {
  const changed = (metadata: Record<string, string>, leaveOut = ''): SafetensorsFile =>
    parseSafetensors(
      writeSafetensors(
        [...file].filter(([name]) => name !== leaveOut),
        { ...file.metadata, ...metadata },
      ),
    )

  test('options', async () => {
    await expect(run({ cache: 'fp4' as never })).rejects.toThrow(OptionError)
    await expect(run({ indexer: 'int8' as never })).rejects.toThrow(OptionError)
    await expect(run({ selection: 'random' as never })).rejects.toThrow(OptionError)
    await expect(run({ cach: 'f32' } as never)).rejects.toThrow('cach is an unknown option')
    for (const chunk of [0, 1.5]) await expect(run({ chunk })).rejects.toThrow(ValueError)
    for (const topk of [0, 8193]) await expect(run({ topk })).rejects.toThrow('indexTopk')
  })

  test('files of another form', async () => {
    const runOn = (other: SafetensorsFile) => runLayer(device, other)
    await expect(runOn(changed({ heads: '' }))).rejects.toThrow(FormatError)
    await expect(runOn(changed({ scaling: '0.0417' }))).rejects.toThrow('metadata scaling is 0.0417')
    await expect(runOn(changed({ heads: '8' }))).rejects.toThrow('metadata scaling')
    await expect(runOn(changed({}, 'x'))).rejects.toThrow(ValueError)
    await expect(runOn(changed({}, 'w.o_proj.weight'))).rejects.toThrow('without w.o_proj.weight')
  })
})
