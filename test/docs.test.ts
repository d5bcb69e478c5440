import { existsSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
import { fullCases } from '../src/conformance/full.ts'
import * as library from '../src/index.ts'
import { traceIndexScoresSm100Resident } from '../src/kernels/index-scores/sm100-resident.ts'
import { bytesPerToken, latentLayouts, packed656Offsets, planarBlock } from '../src/tensor/cache-layout.ts'

const read = (file: string): string => readFileSync(fileURLToPath(new URL(`../${file}`, import.meta.url)), 'utf8')

/** Cells of the table rows of a document, without backticks. */
const rowsOf = (text: string): string[][] =>
  text
    .split('\n')
    .filter(line => line.startsWith('|'))
    .map(line =>
      line
        .slice(1, -1)
        .split('|')
        .map(cell => cell.trim().replaceAll('`', '')),
    )

describe('docs/layouts.md', () => {
  const rows = rowsOf(read('docs/layouts.md'))
  const { packed656, ...plain } = latentLayouts

  test.each(Object.entries(plain))('bytes of %s', (name, layout) => {
    const row = rows.find(([first]) => first === name)!
    expect(Number(row.at(-1))).toBe(bytesPerToken(layout))
  })

  test('the packed row', () => {
    const { nope, scales, rope, bytes } = packed656Offsets
    expect(bytesPerToken(packed656)).toBe(bytes)
    const ranges = rows.map(([first]) => first)
    expect(ranges).toContain(`${nope} .. ${scales - 1}`)
    expect(ranges).toContain(`${scales} .. ${rope - 1}`)
    expect(ranges).toContain(`${rope} .. ${bytes - 1}`)
  })

  test('indexer keys', () => {
    for (const dtype of ['f32', 'bf16', 'e4m3'] as const) {
      const row = rows.find(([first, values]) => first === dtype && values!.endsWith('depth]'))!
      expect(Number(row.at(-1))).toBe(bytesPerToken({ format: 'pools', dtype, depth: 128 }))
    }
    const block = planarBlock(64, 128)
    const ranges = rows.map(([first]) => first)
    expect(ranges).toContain(`${block.bytes}`)
    expect(ranges).toContain(`${block.scaleOffset(0)} + 4 t .. ${block.scaleOffset(0)} + 4 t + 3`)
  })
})

describe('README.md', () => {
  const rows = rowsOf(read('README.md'))
  const start = rows.findIndex(([first]) => first === 'operation')
  const end = rows.findIndex(([first]) => first === 'layout')
  const [, , ...kinds] = rows[start]!
  const operations = Object.entries(library).flatMap(([name, value]) =>
    typeof value === 'function' && 'devices' in value ? [{ name, devices: value.devices }] : [],
  )

  test('its table has the operations that are exported, and no other', () => {
    const listed = rows.slice(start + 2, end).map(([name]) => name!)
    expect(listed.sort()).toEqual(operations.map(({ name }) => name).sort())
  })

  test.each(operations)('the devices of $name', ({ name, devices }) => {
    const [, , ...cells] = rows.find(([first]) => first === name)!
    expect(kinds.filter((_, i) => cells[i] !== '-').sort()).toEqual([...devices].sort())
  })

  test.each(Object.keys(latentLayouts))('lists the layout %s', name => {
    expect(rows.slice(end).flatMap(([names]) => names!.split(', '))).toContain(name)
  })
})

describe('docs/blackwell.md', () => {
  const text = read('docs/blackwell.md')
  const grouped = (bytes: number): string => `${Math.floor(bytes / 1000)} ${String(bytes % 1000).padStart(3, '0')}`

  test('counts the larger shapes', () => {
    expect(text).toContain(`${fullCases.length} larger shapes`)
  })

  test('the shared memory of the resident indexer, with one buffer of Q and with two', () => {
    const bytes = ([1, 2] as const).map(queryStages => {
      const config = { paddedHeads: 64, copyKeys: 64, paged: false, outDtype: 'f32', fill: true, queryStages } as const
      return grouped(traceIndexScoresSm100Resident(config).sharedBytes)
    })
    expect(text).toContain(`${bytes[0]} instead of ${bytes[1]} bytes`)
  })
})

describe('links', () => {
  test.each([
    'README.md',
    'CONTRIBUTING.md',
    'docs/architecture.md',
    'docs/layouts.md',
    'docs/kernel-language.md',
    'docs/blackwell.md',
  ])('of %s lead to files or folders', file => {
    const folder = new URL(`../${file}`, import.meta.url)
    for (const [, target] of read(file).matchAll(/\]\((?!https?:|#)([^)#\s]+)/g))
      expect(existsSync(fileURLToPath(new URL(target!, folder)))).toBe(true)
  })

  test('scripts that the documents name exist', () => {
    const { scripts } = JSON.parse(read('package.json')) as { scripts: Record<string, string> }
    const text = ['README.md', 'CONTRIBUTING.md'].map(read).join('\n')
    const named = [...text.matchAll(/npm (?:run )?(?!ci\b|run\b|pack\b|publish\b)([\w:]+)/g)].map(([, name]) => name!)
    expect(Object.keys(scripts)).toEqual(expect.arrayContaining(named))
    expect(named.length).toBeGreaterThan(5)
  })
})
