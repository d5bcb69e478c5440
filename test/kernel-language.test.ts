import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import ts from 'typescript'
import { expect, test } from 'vitest'
import type { KernelBuilder } from '../src/lang/builder.ts'
import * as kernelModule from '../src/lang/kernel.ts'
import * as packedModule from '../src/lang/packed.ts'
import * as paramsModule from '../src/lang/params.ts'
import * as recordModule from '../src/lang/record.ts'
import * as valueModule from '../src/lang/value.ts'
import { printPtx } from '../src/ptx/print.ts'
import { runKernel } from './sim-kernel.ts'

const page = readFileSync(fileURLToPath(new URL('../docs/kernel-language.md', import.meta.url)), 'utf8')

const modules: Record<string, object> = {
  '../src/lang/kernel.ts': kernelModule,
  '../src/lang/packed.ts': packedModule,
  '../src/lang/params.ts': paramsModule,
  '../src/lang/record.ts': recordModule,
  '../src/lang/value.ts': valueModule,
}

const { input, kernel, output, tensorMap, u32 } = { ...kernelModule, ...paramsModule }

const params = {
  x: input('f32', '[n]'),
  codes: input('e4m3', '[blocks, 128]'),
  out: output('f32', '[n]'),
  n: u32('elements'),
  keys: tensorMap({ dtype: 'e4m3', box: [128, 64], swizzle: 128 }, '[rows, 128]'),
}

interface Snippet {
  readonly line: number
  readonly code: string
  /** The block that follows it: lines of PTX, or the findings of a run. */
  readonly outcome: { readonly kind: 'ptx' | 'text'; readonly lines: readonly string[] } | undefined
}

function snippetsOf(text: string): Snippet[] {
  const blocks = [...text.matchAll(/```(\w+)\n([\s\S]*?)```/g)].map(({ 1: language, 2: code, index }) => ({
    language: language!,
    code: code!,
    line: text.slice(0, index).split('\n').length + 1,
  }))
  return blocks.flatMap(({ language, code, line }, i) => {
    if (language !== 'ts') return []
    const next = blocks[i + 1]
    const outcome =
      next?.language === 'ptx' || next?.language === 'text'
        ? ({ kind: next.language, lines: next.code.trim().split('\n') } as const)
        : undefined
    return [{ line, code, outcome }]
  })
}

/** The snippet as a function of these names; its imports are of `modules`. */
function compiled(code: string, names: readonly string[]): (...values: unknown[]) => unknown {
  const bound = code.replaceAll(/^import \{ (.*) \} from ('.*')$/gm, 'const { $1 } = modules[$2]')
  const { outputText } = ts.transpileModule(`(modules, ${names.join(', ')}) => {\n${bound}\n}`, {
    compilerOptions: { target: ts.ScriptTarget.ES2022, strict: false },
  })
  // oxlint-disable-next-line no-eval
  return (0, eval)(outputText).bind(undefined, modules)
}

/** Traces a snippet as the body of a kernel with the page's parameters. */
const traced = (code: string): kernelModule.Kernel =>
  kernel({ name: 'snippet', target: 'sm_90a', threads: 256, params }, (k: KernelBuilder, bound) => {
    compiled(code, ['k', ...Object.keys(bound)])(k, ...Object.values(bound))
  })

const snippets = snippetsOf(page)
const bodies = snippets.filter(({ code }) => !code.includes('kernel('))

test('the page has snippets of all kinds', () => {
  expect(snippets.length - bodies.length).toBe(1)
  expect(bodies.filter(({ outcome }) => outcome?.kind === 'ptx').length).toBe(1)
  expect(bodies.filter(({ outcome }) => outcome?.kind === 'text').length).toBeGreaterThan(3)
  expect(bodies.length).toBeGreaterThan(15)
})

test('the whole kernel of the page prints', () => {
  const { code } = snippets.find(one => !bodies.includes(one))!
  const result = compiled(`${code}\nreturn scale`, [])() as kernelModule.Kernel
  expect(printPtx(result)).toContain('.visible .entry scale(')
})

test.each(bodies)('line $line', ({ code, outcome }) => {
  const result = traced(code)
  const text = printPtx(result)
  expect(result.body.length).toBeGreaterThan(1)
  if (outcome?.kind === 'ptx') for (const line of outcome.lines) expect(text).toContain(line)
  if (code.includes('keys.')) return
  const buffers = { x: new Float32Array(256).fill(1), codes: new Uint8Array(256), out: new Float32Array(2048) }
  const { findings } = runKernel(result, {
    buffers,
    scalars: { n: 200 },
    maps: { keys: { buffer: 'codes', extents: [128, 2] } },
  })
  const found = findings.map(({ rule, message }) => `${rule}: ${message}`)
  // Which warp is met first is the simulator's choice.
  const anyNumber = (line: string): string => line.replaceAll(/\d+/g, '#')
  if (outcome?.kind === 'text') expect(found.map(anyNumber).sort()).toEqual(outcome.lines.map(anyNumber).sort())
  else expect(found).toEqual([])
})
