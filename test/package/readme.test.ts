import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Packed, packAndInstall, root, runNode } from './packed.ts'

const readme = readFileSync(join(root, 'README.md'), 'utf8')
const example = /```js\n([^]*?)```/.exec(readme)![1]!

let packed: Packed
beforeAll(() => {
  packed = packAndInstall()
})
afterAll(() => packed?.[Symbol.dispose]())

describe('the example in the README', () => {
  test('has about ten lines', () => {
    expect(example.split('\n').filter(line => line.trim() !== '').length).toBeLessThanOrEqual(14)
  })

  test('prints what it says', () => {
    const printed = [...example.matchAll(/console\.log\(.*\/\/ (.*)/g)].map(([, text]) => `${text}\n`)
    expect(printed.length).toBeGreaterThan(0)
    writeFileSync(join(packed.project, 'example.js'), example)
    expect(runNode(packed.project, 'example.js')).toEqual({ status: 0, output: printed.join('') })
  })

  test('passes the type checker, as do the others', () => {
    const others = [...readme.matchAll(/```ts\n([^]*?)```/g)].map(([, text]) => text!)
    const typed = example.replaceAll('...shape)', '...shape: number[])')
    const files = [typed, ...others].map((text, i) => {
      writeFileSync(join(packed.project, `example-${i}.ts`), text)
      return `example-${i}.ts`
    })
    const options = ['--strict', '--noEmit', '--skipLibCheck', '--target', 'es2023', '--module', 'nodenext']
    const lib = ['--lib', 'es2023,esnext.disposable,dom']
    const tsc = join(root, 'node_modules/typescript/bin/tsc')
    expect(runNode(packed.project, tsc, ...options, ...lib, ...files)).toEqual({ status: 0, output: '' })
    expect(files.length).toBeGreaterThan(1)
  })
})
