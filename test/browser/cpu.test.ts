import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Browser, Page } from 'playwright-core'
import { build as bundle } from 'vite'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { launchChromium, type Site, serve } from './chromium.ts'
import { type PrefillRun, prefillData, type RunOptions, runPrefill } from './prefill.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
const entry = `${root}dist/index.js`
const data = prefillData()

let browser: Browser
let isolated: Site
let plain: Site
let inNode: Record<'relaxed' | 'simd128', PrefillRun>

beforeAll(async () => {
  browser = await launchChromium()
  isolated = await serve(root, true)
  plain = await serve(root, false)
  const library = await import(entry)
  inNode = {
    relaxed: await runPrefill(library, data, { threads: 1, build: 'relaxed' }),
    simd128: await runPrefill(library, data, { threads: 1, build: 'simd128' }),
  }
})

afterAll(async () => {
  await browser?.close()
  await isolated?.[Symbol.asyncDispose]()
  await plain?.[Symbol.asyncDispose]()
})

/** A fresh page of a site. What it logs as an error fails the test that opened it. */
async function open(site: Site): Promise<{ page: Page; errors: string[] }> {
  const page = await browser.newPage()
  const errors: string[] = []
  page.on('pageerror', error => errors.push(String(error)))
  await page.goto(site.origin)
  return { page, errors }
}

/** Runs the prefill in a page that imports a module as it was served. */
const runIn = (page: Page, options: RunOptions, module = '/dist/index.js'): Promise<PrefillRun> =>
  page.evaluate(`import('${module}').then(library =>
    (${runPrefill})(library, ${JSON.stringify(data)}, ${JSON.stringify(options)}))`)

/** The largest difference; NaN anywhere fails every comparison. */
const distance = (a: readonly number[], b: readonly number[]): number =>
  Math.max(...a.map((value, i) => (Object.is(value, b[i]) ? 0 : Math.abs(value - b[i]!))))

function expectSame(run: PrefillRun, build: 'relaxed' | 'simd128'): void {
  expect(run.out.length).toBe(data.tokens * data.heads * 512)
  expect(run.out.some(value => value !== 0)).toBe(true)
  if (build === 'simd128') expect(run.out).toEqual(inNode.simd128.out)
  expect(distance(run.out, inNode[build].out)).toBeLessThan(1e-5)
  expect(distance(run.lse, inNode[build].lse)).toBeLessThan(1e-5)
}

describe('a cross-origin isolated page', () => {
  test.each(['relaxed', 'simd128'] as const)('two threads, %s', async name => {
    const { page, errors } = await open(isolated)
    expect(await page.evaluate('crossOriginIsolated')).toBe(true)
    const run = await runIn(page, { threads: 2, build: name })
    expect(run.explain).toContain('2 threads')
    expectSame(run, name)
    expect(errors).toEqual([])
  })

  test('by default uses every core and relaxed SIMD', async () => {
    const { page } = await open(isolated)
    const cores = await page.evaluate<number>('navigator.hardwareConcurrency')
    const run = await runIn(page, {})
    expect(run.explain).toBe(`cpu: WASM relaxed SIMD, ${cores} thread${cores === 1 ? '' : 's'}`)
    expectSame(run, 'relaxed')
  })

  test('a worker script that does not load is an error at opening', async () => {
    const { page } = await open(isolated)
    await page.route('**/worker.js', route => route.abort())
    await expect(runIn(page, { threads: 2 })).rejects.toThrow('DeviceError')
  })
})

describe('a page that may not share memory', () => {
  test.each(['relaxed', 'simd128'] as const)('one thread by default, %s', async name => {
    const { page, errors } = await open(plain)
    expect(await page.evaluate('crossOriginIsolated')).toBe(false)
    const run = await runIn(page, { build: name })
    expect(run.explain).toContain('1 thread')
    expectSame(run, name)
    expect(errors).toEqual([])
  })

  test('more threads are refused, with what to do', async () => {
    const { page } = await open(plain)
    const refusal = runIn(page, { threads: 2 })
    await expect(refusal).rejects.toThrow('threads is 2; expected 1 where SharedArrayBuffer is missing')
    await expect(refusal).rejects.toThrow('COOP: same-origin')
  })
})

describe('bundled by Vite', () => {
  test('two threads', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'sparse-mla-bundle-'))
    try {
      writeFileSync(join(folder, 'entry.js'), `export * from ${JSON.stringify(entry)}\n`)
      await bundle({
        root: folder,
        logLevel: 'warn',
        configFile: false,
        build: {
          outDir: 'served',
          minify: false,
          rolldownOptions: {
            input: join(folder, 'entry.js'),
            preserveEntrySignatures: 'strict',
            output: { entryFileNames: 'bundle.js' },
          },
        },
      })
      await using site = await serve(join(folder, 'served'), true)
      const { page, errors } = await open(site)
      const run = await runIn(page, { threads: 2 }, '/bundle.js')
      expect(run.explain).toContain('2 threads')
      expectSame(run, 'relaxed')
      expect(errors).toEqual([])
    } finally {
      rmSync(folder, { recursive: true })
    }
  })
})
