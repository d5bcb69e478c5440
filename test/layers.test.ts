import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import ts from 'typescript'
import { describe, expect, test } from 'vitest'

const src = fileURLToPath(new URL('../src/', import.meta.url))
const devices = ['cpu', 'sim', 'cuda', 'webgpu']
const base = ['tensor', 'dtypes', 'errors.ts', 'device.ts']

/** What each folder or file of src/ may import, besides itself. `types:x` stands for types alone. */
const mayImport: Record<string, readonly string[]> = {
  'errors.ts': [],
  dtypes: ['errors.ts'],
  tensor: ['dtypes', 'errors.ts'],
  'device.ts': ['types:tensor', 'types:dtypes'],
  cpu: base,
  lang: [...base, 'types:device.ts'],
  ptx: ['lang', 'errors.ts'],
  wgsl: ['lang', 'errors.ts'],
  sim: ['lang', ...base],
  cuda: ['ptx', 'lang', ...base],
  webgpu: ['wgsl', 'lang', ...base],
  kernels: [...devices, 'lang', 'types:ops', ...base],
  ops: ['kernels', 'types:lang', ...base],
  model: ['ops', ...base],
  'open-device.ts': [...devices, ...base],
  conformance: ['model', 'kernels', 'ops', 'sim', 'lang', ...base],
  bench: ['model', 'ops', 'kernels', ...devices, 'lang', 'conformance', 'open-device.ts', ...base],
  emit: ['ops', 'kernels', 'sim', 'ptx', 'lang', ...base],
  cli: ['model', 'ops', 'bench', 'conformance', 'emit', 'types:sim', 'types:lang', 'open-device.ts', ...base],
  'node.ts': ['model', ...base],
  'index.ts': ['model', 'ops', 'kernels', 'open-device.ts', 'types:cpu', 'types:cuda', ...base],
}

const folderOf = (file: string): string => file.split('/')[0]!

interface Import {
  readonly from: string
  readonly to: string
  readonly typesOnly: boolean
}

/** Imports between folders; `import type` and `export type` statements are of types alone. */
function importsOf(file: string): Import[] {
  const source = ts.createSourceFile(file, readFileSync(src + file, 'utf8'), ts.ScriptTarget.Latest)
  return source.statements.flatMap(statement => {
    if (!ts.isImportDeclaration(statement) && !ts.isExportDeclaration(statement)) return []
    const target = statement.moduleSpecifier
    if (target === undefined || !ts.isStringLiteral(target) || !target.text.startsWith('.')) return []
    const to = join(dirname(file), target.text)
    const typesOnly = /^(import|export) type /.test(statement.getText(source))
    return folderOf(file) === folderOf(to) ? [] : [{ from: file, to, typesOnly }]
  })
}

const files = readdirSync(src, { recursive: true, encoding: 'utf8' }).filter(
  file => file.endsWith('.ts') && !/\.(as|test|test-d|d)\.ts$/.test(file),
)

describe('imports between the folders of src/', () => {
  test.each([...new Set(files.map(folderOf))])('%s', folder => {
    const allowed = mayImport[folder] ?? []
    const astray = files
      .filter(file => folderOf(file) === folder)
      .flatMap(importsOf)
      .filter(({ to, typesOnly }) => {
        const target = folderOf(to)
        return !allowed.includes(target) && !(typesOnly && allowed.includes(`types:${target}`))
      })
      .map(({ from, to }) => `${from} imports ${to}`)
    expect(mayImport).toHaveProperty([folder])
    expect(astray).toEqual([])
  })
})
