import { copyFileSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { publint } from 'publint'
import { formatMessage } from 'publint/utils'
import ts from 'typescript'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Packed, packAndInstall, root, runNode } from './packed.ts'

let packed: Packed
beforeAll(() => {
  packed = packAndInstall()
})
afterAll(() => packed?.[Symbol.dispose]())

const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
const paths = (): string[] => packed.files.map(({ path }) => path)

/** Modules that `entry` reaches, and what they import from elsewhere. */
function graph(entry: string): { modules: Set<string>; outside: Set<string> } {
  const modules = new Set<string>()
  const outside = new Set<string>()
  const visit = (file: string): void => {
    if (modules.has(file)) return
    modules.add(file)
    const text = readFileSync(join(packed.installed, file), 'utf8')
    for (const { fileName } of ts.preProcessFile(text).importedFiles)
      if (fileName.startsWith('.')) visit(join(dirname(file), fileName))
      else outside.add(fileName)
  }
  visit(entry)
  return { modules, outside }
}

describe('contents', () => {
  test('the built library, its licence and its documents; nothing else', () => {
    const others = paths().filter(path => !/^dist\/[\w/-]+\.(js|d\.ts)$/.test(path))
    expect(others.sort()).toEqual(['CHANGELOG.md', 'LICENSE', 'README.md', 'package.json'])
  })

  test('no tests, no AssemblyScript, no sources', () => {
    expect(paths().filter(path => /test|\.as\.|(?<!\.d)\.ts$/.test(path))).toEqual([])
  })

  test('entry points, worker and both builds of the kernels', () => {
    const { exports, bin } = manifest
    const targets = [...Object.values<string>(exports), ...Object.values<string>(bin)].map(path => relative('.', path))
    const wasm = ['dist/cpu/worker.js', 'dist/cpu/generated/relaxed.js', 'dist/cpu/generated/simd128.js']
    expect(paths()).toEqual(expect.arrayContaining([...targets, ...wasm]))
  })

  test('stays small', () => {
    const unpacked = packed.files.reduce((sum, { size }) => sum + size, 0)
    expect(packed.size).toBeLessThan(900_000)
    expect(unpacked).toBeLessThan(3_200_000)
  })

  test('every module is reached from an entry point, or is the worker', () => {
    const entries = ['dist/index.js', 'dist/node.js', 'dist/cli/main.js']
    const reached = new Set(entries.flatMap(entry => [...graph(entry).modules]))
    const modules = paths().filter(path => path.endsWith('.js') && path !== 'dist/cpu/worker.js')
    // A module of types alone compiles to an empty one.
    const unreached = modules.filter(path => !reached.has(path))
    for (const path of unreached)
      expect(
        readFileSync(join(packed.installed, path), 'utf8')
          .replaceAll(/\/\*[^]*?\*\/|\/\/.*/g, '')
          .trim(),
      ).toBe('export {};')
  })
})

describe('the browser entry', () => {
  test('imports nothing from outside the package', () => {
    expect([...graph('dist/index.js').outside]).toEqual([])
  })

  test('spawns its worker in the form that bundlers follow', () => {
    const text = readFileSync(join(packed.installed, 'dist/cpu/worker-executor.js'), 'utf8')
    expect(text).toContain(`new Worker(new URL('./worker.js', import.meta.url), { type: 'module' })`)
  })
})

describe('manifest', () => {
  test('no install scripts', () => {
    for (const name of ['preinstall', 'install', 'postinstall', 'prepare'])
      expect(manifest.scripts).not.toHaveProperty(name)
  })

  test('publint finds nothing', async () => {
    const { messages } = await publint({ pkgDir: packed.installed, strict: true })
    expect(messages.map(message => formatMessage(message, manifest))).toEqual([])
  })

  test('are the types wrong? no', () => {
    const { status, output } = runNode(
      root,
      ...['node_modules/@arethetypeswrong/cli/dist/index.js', packed.tarball],
      ...['--profile', 'esm-only', '--no-definitely-typed', '--no-color', '--no-emoji'],
    )
    expect({ status, output }).toMatchObject({ status: 0, output: expect.stringContaining('OK (ESM)') })
  })

  test('the lock file names no download addresses', () => {
    expect(readFileSync(join(root, 'package-lock.json'), 'utf8')).not.toMatch(/"resolved"|https?:\/\/registry/)
  })
})

describe('installed', () => {
  test('import', () => {
    const program = `import { openDevice } from 'sparse-mla'; console.log((await openDevice('cpu', { threads: 2 })).explain())`
    expect(runNode(packed.project, '--input-type=module', '--eval', program)).toMatchObject({
      status: 0,
      output: expect.stringContaining('2 threads'),
    })
  })

  test('require', () => {
    const program = `console.log(typeof require('sparse-mla').openDevice, typeof require('sparse-mla/node').openSafetensors)`
    const { status, output } = runNode(packed.project, '--no-warnings', '--input-type=commonjs', '--eval', program)
    expect({ status, output }).toEqual({ status: 0, output: 'function function\n' })
  })

  test('the command', () => {
    const { status, output } = runNode(packed.project, 'node_modules/sparse-mla/dist/cli/main.js', '--version')
    expect({ status, output }).toEqual({ status: 0, output: `${manifest.version}\n` })
  })

  test('the demo: the golden layer, by the installed command', () => {
    const golden = join(root, 'test/golden/hf_dsv32_layer.safetensors')
    const main = 'node_modules/sparse-mla/dist/cli/main.js'
    const { status, output } = runNode(packed.project, main, 'run', golden, '--device', 'cpu')
    expect({ status, output }).toMatchObject({ status: 0, output: expect.stringContaining('agrees with the file') })
  })

  test.each(['nodenext', 'bundler'])('types, with module resolution %s', resolution => {
    copyFileSync(join(root, 'test/package/consumer/types.ts'), join(packed.project, 'types.ts'))
    const compilerOptions = {
      ...{ target: 'es2023', lib: ['es2023', 'esnext.disposable', 'dom'], types: ['node'] },
      ...{ strict: true, skipLibCheck: resolution === 'bundler', noEmit: true, exactOptionalPropertyTypes: true },
      ...{ module: resolution === 'bundler' ? 'preserve' : resolution, moduleResolution: resolution },
    }
    writeFileSync(join(packed.project, 'tsconfig.json'), JSON.stringify({ compilerOptions, files: ['types.ts'] }))
    const { status, output } = runNode(packed.project, join(root, 'node_modules/typescript/bin/tsc'))
    expect({ status, output }).toEqual({ status: 0, output: '' })
  })
})
