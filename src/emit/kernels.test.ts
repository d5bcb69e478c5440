import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
import { assemble, hasPtxas, rolesAlone } from '../../test/ptxas.ts'
import { listedKernels, type Target, targets, targetsOf, traceListed } from './kernels.ts'
import type { ListedKernel } from './listed-kernel.ts'
import { emitKernel } from './manifest.ts'

const kernelsFolder = fileURLToPath(new URL('../kernels/', import.meta.url))

/** What the names of the kernels in the sources begin with: all of a plain name, a template up to its first value. */
function namesInSources(): string[] {
  const files = readdirSync(kernelsFolder, { recursive: true, encoding: 'utf8' }).filter(
    file => file.endsWith('.ts') && !/\.(as|test)\.ts$/.test(file),
  )
  return files.flatMap(file => {
    const text = readFileSync(join(kernelsFolder, file), 'utf8')
    return [...text.matchAll(/\bname: ['`](\w+)[^\n]*?['`],\s+target\b/g)].map(match => match[1]!)
  })
}

describe('the list', () => {
  test('has every kernel of the sources', () => {
    const sources = namesInSources()
    expect(sources.length).toBeGreaterThan(20)
    const missing = sources.filter(start => !listedKernels.some(({ entry }) => entry.startsWith(start)))
    expect(missing).toEqual([])
  })

  test('names every kernel once', () => {
    expect(new Set(listedKernels.map(({ name }) => name)).size).toBe(listedKernels.length)
  })

  test.each(['sm_90a', 'sm_100a'] as const)('has no text twice for %s', target => {
    const texts = listedKernels.flatMap(listed => {
      const traced = traceListed(listed, target)
      return traced === undefined ? [] : [{ name: listed.name, ptx: emitKernel(traced).ptx }]
    })
    const twice = texts.filter(({ ptx }, i) => texts.findIndex(other => other.ptx === ptx) !== i)
    expect(twice.map(({ name }) => name)).toEqual([])
  })

  test('only kernels of one generation are missing elsewhere', () => {
    const short = listedKernels
      .map(listed => [listed.name, targetsOf(listed)] as const)
      .filter(([, on]) => on.length < 4)
    expect(short.length).toBeGreaterThan(0)
    // A Hopper kernel takes every call of these.
    const replaced = short.filter(([name]) => name.startsWith('top_k_') && !name.includes('sm90'))
    for (const [name, on] of replaced) expect([name, on]).toEqual([name, ['sm_75', 'sm_80', 'sm_100a']])
    for (const [name, on] of short.filter(one => !replaced.includes(one)))
      expect([name, on]).toEqual([
        expect.stringMatching(/sm90|sm100|index_groups/),
        [name.includes('sm90') ? 'sm_90a' : 'sm_100a'],
      ])
  })
})

describe('the manifest', () => {
  const manifestFor = (name: string, target: Target) =>
    emitKernel(traceListed(listedKernels.find(listed => listed.name === name)!, target)!).manifest

  test('of a kernel on rows', () => {
    expect(manifestFor('rms_norm_bf16', 'sm_75')).toMatchObject({
      file: 'rms_norm_bf16.ptx',
      entry: 'rms_norm',
      target: 'sm_75',
      ptxVersion: '6.4',
      block: [128, 1, 1],
      cluster: null,
      dynamicSharedBytes: 1024,
      grid: 'x = rows = tokens * heads, y = 1',
      example: {
        grid: [4, 1, 1],
        args: { x: { dtype: 'bf16', shape: [4, 512], strides: [512, 1] }, eps: 1e-6, heads: 1, width: 512 },
      },
    })
  })

  test('of a kernel with tensor maps and scratch', () => {
    const { parameters, example } = manifestFor('index_scores_sm90_h64_paged', 'sm_90a')
    expect(parameters[0]).toEqual({
      name: 'q',
      kind: 'tensorMap',
      bytes: 128,
      alignment: 64,
      dtype: 'e4m3',
      dataType: 'CU_TENSOR_MAP_DATA_TYPE_UINT8',
      box: [128, 64, 9],
      swizzle: 'CU_TENSOR_MAP_SWIZZLE_128B',
      elementStrides: [1, 1, 1],
      interleave: 'CU_TENSOR_MAP_INTERLEAVE_NONE',
      l2Promotion: 'CU_TENSOR_MAP_L2_PROMOTION_L2_256B',
      outOfBounds: 'CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE',
      meaning: '[tokens, heads, 128]',
    })
    expect(example.args.windows).toEqual({ scratch: 'windows', bytes: 256, byteOffset: 0 })
  })

  test.each(targets)('has the parameters of the text, in its order, for %s', target => {
    for (const listed of listedKernels) {
      const traced = traceListed(listed, target)
      if (traced === undefined) continue
      const { ptx, manifest } = emitKernel(traced)
      const declared = [...ptx.matchAll(/^ {2}\.param (?:\.align 64 )?\.(\w+) (\w+)/gm)].map(([, type, name]) => [
        name,
        { u64: 8, b32: 4, b8: 128 }[type!],
      ])
      expect(manifest.parameters.map(({ name, bytes }) => [name, bytes])).toEqual(declared)
      expect(ptx).toContain(`.visible .entry ${manifest.entry}(`)
      expect(Object.keys(manifest.example.args)).toEqual(manifest.parameters.map(({ name }) => name))
      for (const { name, meaning } of manifest.parameters) expect([listed.name, name, meaning]).not.toContain('')
    }
  })
})

describe.runIf(hasPtxas)('ptxas accepts every kernel, without spills or lost performance', () => {
  test('and says so where one spills', async () => {
    const { ptx } = emitKernel(traceListed(listedKernels.find(({ name }) => name === 'linear_many_bf16')!, 'sm_80')!)
    const starved = ptx.replace('.maxntid 128, 1, 1', '$&\n.maxnreg 24')
    expect((await assemble(starved, 'sm_80')).spilledBytes).toBeGreaterThan(0)
    await expect(assemble(ptx.replace('.entry', '.entri'), 'sm_80')).rejects.toThrow('ptxas')
  })

  test.each(['sm_90a', 'sm_100a'] as const)(
    'and every role of %s that moves registers alone, under its own',
    { timeout: 300_000 },
    async target => {
      const roles = listedKernels.flatMap(listed => {
        const traced = traceListed(listed, target)
        return traced === undefined ? [] : rolesAlone(traced.kernel).map(alone => ({ name: listed.name, ...alone }))
      })
      expect(roles.length).toBeGreaterThan(0)
      for (const { name, role, registers, ptx } of roles) {
        const { registers: used, ...rest } = await assemble(ptx, target)
        expect([name, role, rest]).toEqual([name, role, { spilledBytes: 0, complaints: [] }])
        expect(used).toBeLessThanOrEqual(registers)
      }
    },
  )

  const textFor = (listed: ListedKernel, target: Target): string | undefined => {
    const traced = traceListed(listed, target)
    return traced && emitKernel(traced).ptx
  }
  const withoutTarget = (ptx: string | undefined): string | undefined => ptx?.replace(/^\.(version|target) .*$/gm, '')

  /** Accepted for an older target, PTX is for every later one; the target that is measured is assembled anyway. */
  const isCovered = (listed: ListedKernel, target: Target, ptx: string): boolean =>
    target !== 'sm_90a' &&
    targets
      .slice(0, targets.indexOf(target))
      .some(older => withoutTarget(textFor(listed, older)) === withoutTarget(ptx))

  test.concurrent.each(targets)('for %s', { timeout: 300_000 }, async target => {
    for (const listed of listedKernels) {
      const ptx = textFor(listed, target)
      if (ptx === undefined || isCovered(listed, target, ptx)) continue
      const { spilledBytes, complaints } = await assemble(ptx, target)
      expect([listed.name, spilledBytes, complaints]).toEqual([listed.name, 0, []])
    }
  })
})
