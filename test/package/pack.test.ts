import { execFileSync, spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { root } from './packed.ts'

/** All that the launcher may use, beside one program that unpacks. */
const tools = ['sh', 'tar', 'mkdir', 'mv', 'rm', 'dirname', 'readlink', 'id']

let folder: string
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'sparse-mla-pack-test-'))
  execFileSync(process.execPath, ['--import', 'tsx', 'scripts/pack.ts', '--fast', join(folder, 'pack')], { cwd: root })
}, 300_000)
afterAll(() => rmSync(folder, { recursive: true, force: true }))

const pathOf = (tool: string): string => execFileSync('sh', ['-c', `command -v ${tool}`], { encoding: 'utf8' }).trim()

/** Runs the packed command on a machine that has nothing but a few tools. */
function run(args: readonly string[], { extra = ['xz'], command = 'pack/sparse-mla', home = 'home' } = {}) {
  const bin = mkdtempSync(join(folder, 'bin-'))
  for (const tool of [...tools, ...extra]) symlinkSync(pathOf(tool), join(bin, tool))
  const env = { PATH: bin, HOME: join(folder, home), TMPDIR: folder }
  return spawnSync(join(folder, command), args, { env, encoding: 'utf8' })
}

const unpacked = (home = 'home'): string[] => readdirSync(join(folder, home, '.cache/sparse-mla'))

describe('the packed folder', () => {
  test('is small', () => {
    const bytes = readdirSync(join(folder, 'pack')).map(file => statSync(join(folder, 'pack', file)).size)
    expect(bytes.reduce((a, b) => a + b, 0)).toBeLessThan(40 * 2 ** 20)
  })

  test('runs without Node on the path; koffi is there', () => {
    const { stdout, status } = run(['info', '--json'])
    expect(status).toBe(0)
    const info = JSON.parse(stdout)
    expect(info.node).toBe(process.version)
    const cuda = info.devices.find(({ name }: { name: string }) => name === 'cuda')
    expect(cuda.detail).toMatch(/libcuda\.so\.1 cannot be loaded|multiprocessors|card/)
  })

  test('runs kernels on worker threads', () => {
    const { stdout, status } = run(['check', '--op', 'multiply', '--device', 'cpu', '--threads', '2'])
    expect(stdout).toMatch(/cpu: [1-9]\d* passed, 0 failed/)
    expect(status).toBe(0)
  })

  test('unpacks once, also when called through a link', () => {
    const [key] = unpacked()
    const mark = join(folder, 'home/.cache/sparse-mla', key!, 'mark')
    writeFileSync(mark, '')
    mkdirSync(join(folder, 'links'))
    symlinkSync('../pack/sparse-mla', join(folder, 'links/mla'))
    expect(run(['--version'], { command: 'links/mla' }).status).toBe(0)
    expect(existsSync(mark)).toBe(true)
    expect(unpacked()).toEqual([key])
  })

  test('says what is missing when nothing can unpack it', () => {
    const { status, stderr } = run(['--version'], { extra: [], home: 'bare' })
    expect(status).not.toBe(0)
    expect(stderr).toContain('xz or python3 is needed to unpack')
    expect(unpacked('bare')).toEqual([])
  })
})
