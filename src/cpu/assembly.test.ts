import { readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
import type { Dtype } from '../dtypes/dtype.ts'
import { dtypeCode } from './dtype-codes.ts'

const src = fileURLToPath(new URL('../', import.meta.url))
const files = readdirSync(src, { recursive: true, encoding: 'utf8' }).filter(file => file.endsWith('.ts'))
const textOf = (file: string): string => readFileSync(src + file, 'utf8').replace(/\/\*[\s\S]*?\*\/|\/\/.*$/gm, '')

interface Struct {
  readonly name: string
  readonly file: string
  /** `name: kind` in order. */
  readonly fields: readonly string[]
}

/** Every match of `pattern` (name, body) in `among`; `field` (name, kind) matches one field of a body. */
const structs = (among: readonly string[], pattern: RegExp, field: RegExp): Struct[] =>
  among.flatMap(file =>
    [...textOf(file).matchAll(pattern)].map(([, name, body]) => {
      const fields = [...body!.matchAll(field)]
      const rest = body!.replaceAll(field, '').trim()
      if (rest !== '') throw new Error(`${file}: ${name} has something that is not a field: ${rest}`)
      return { name: name!, file, fields: fields.map(([, key, kind]) => `${key}: ${kind}`) }
    }),
  )

const argStructs = structs(
  files.filter(file => !/\.(as|test)\.ts$/.test(file)),
  /\bargStruct\('(\w+)', \{([^}]*)\}\)/g,
  /(\w+): '(ptr|u32|i32|f32)',?/g,
)

const classes = structs(
  files.filter(file => file.endsWith('.as.ts')),
  /@unmanaged\s+(?:export )?class (\w+) \{([^}]*)\}/g,
  /(\w+): (usize|u32|i32|f32);/g,
)

const calls = files.filter(file => !/\.(as|test)\.ts$/.test(file) && /\bargStruct\('/.test(textOf(file)))

describe('argument structs and their AssemblyScript classes', () => {
  test('every declaration has been read', () => {
    expect(argStructs.length).toBeGreaterThan(10)
    expect([...new Set(argStructs.map(({ file }) => file))]).toEqual(calls)
    const count = (file: string): number => textOf(file).match(/\bargStruct\('/g)!.length
    expect(argStructs).toHaveLength(calls.reduce((sum, file) => sum + count(file), 0))
  })

  test.each(argStructs)('$name of $file: the same fields in the same order', ({ name, fields }) => {
    const same = classes.filter(other => other.name === name)
    expect(same.map(({ file }) => file)).toHaveLength(1)
    expect(fields).toEqual(same[0]!.fields.map(field => field.replace(/usize$/, 'ptr')))
  })
})

describe('kernels', () => {
  const assembly = files
    .filter(file => file.endsWith('.as.ts'))
    .map(textOf)
    .join('\n')
  const planners = files
    .filter(file => !/\.(as|test)\.ts$/.test(file))
    .map(textOf)
    .join('\n')
  const exported = [...assembly.matchAll(/export function (\w+)\(/g)].map(([, name]) => name!)
  const launched = new Set([...planners.matchAll(/kernel: '(\w+)'/g)].map(([, name]) => name!))

  test('are named once over all files', () => {
    expect(exported).toEqual([...new Set(exported)])
  })

  test.each([...launched])('%s, which a planner launches, is exported with the signature of a kernel', name => {
    expect(assembly).toMatch(new RegExp(`export function ${name}\\(\\w+: usize, \\w+: i32, \\w+: usize\\): void`))
  })
})

test('element types are numbered alike', () => {
  const text = textOf('cpu/as/decode.as.ts')
  const numbers = [...text.matchAll(/export const (F32|BF16|E4M3|F16|E5M2): u32 = (\d+);/g)]
  expect(numbers).toHaveLength(5)
  for (const [, name, number] of numbers) expect(dtypeCode(name!.toLowerCase() as Dtype)).toBe(Number(number))
})
