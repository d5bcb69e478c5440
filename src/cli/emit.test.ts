import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { emit, emitText } from './emit.ts'

let folder: string
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'sparse-mla-emit-'))
})
afterAll(() => rmSync(folder, { recursive: true }))

test('named kernels: their texts and a manifest', () => {
  const out = join(folder, 'named')
  const manifest = emit({ names: ['cast_f32_bf16', 'rms_norm_f32'], all: false, target: 'sm_80', out })
  expect(readdirSync(out).sort()).toEqual(['cast_f32_bf16.ptx', 'manifest.json', 'rms_norm_f32.ptx'])
  expect(JSON.parse(readFileSync(join(out, 'manifest.json'), 'utf8'))).toEqual(manifest)
  expect(readFileSync(join(out, 'rms_norm_f32.ptx'), 'utf8')).toContain('.target sm_80')
  expect(manifest.leftOut).toEqual([])
  expect(emitText(manifest, out)).toContain('2 kernels for sm_80')
})

test('all kernels: those that the target lacks are named', () => {
  const out = join(folder, 'all')
  const manifest = emit({ names: [], all: true, target: 'sm_75', out })
  expect(readdirSync(out).length).toBe(manifest.kernels.length + 1)
  expect(manifest.leftOut).toContainEqual({ name: 'index_scores_sm90_h64', targets: ['sm_90a'] })
  expect(emitText(manifest, out)).toContain('left out: index_scores_sm90_h64, only for sm_90a')
})

test('the same text every time', () => {
  const texts = ['once', 'again'].map(name => {
    const out = join(folder, name)
    emit({ names: ['top_k_f32_by_score'], all: false, target: 'sm_100a', out })
    return readFileSync(join(out, 'top_k_f32_by_score.ptx'), 'utf8')
  })
  expect(texts[0]).toBe(texts[1])
})

test.each([
  [[], false, 'expected --all, or kernels from token_windows_paged'],
  [['rms_norm_f32'], true, '--all is with a kernel; expected one or the other'],
  [['rms_norm'], false, 'kernel is rms_norm; expected one of'],
  [['index_scores_sm90_h32'], false, 'emit index_scores_sm90_h32: --target is sm_80; expected sm_90a'],
] as const)('%j with all %s is refused, nothing is written', (names, all, message) => {
  const out = join(folder, 'refused')
  expect(() => emit({ names, all, target: 'sm_80', out })).toThrow(message)
  expect(readdirSync(folder)).not.toContain('refused')
})
