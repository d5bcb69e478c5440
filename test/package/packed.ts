/** The package as `npm publish` would send it, installed in an empty project. */

import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

export const root: string = fileURLToPath(new URL('../..', import.meta.url))

export interface PackedFile {
  readonly path: string
  readonly size: number
}

export interface Packed extends Disposable {
  readonly tarball: string
  readonly files: readonly PackedFile[]
  /** Bytes of the tarball. */
  readonly size: number
  /** The empty project; the package is in its node_modules. */
  readonly project: string
  /** The installed package. */
  readonly installed: string
}

interface PackReport {
  readonly filename: string
  readonly size: number
  readonly files: readonly PackedFile[]
}

/** Packs what is built, and installs it beside the very dependencies that this repository has. */
export function packAndInstall(): Packed {
  const folder = mkdtempSync(join(tmpdir(), 'sparse-mla-packed-'))
  const report = execFileSync('npm', ['pack', '--json', '--pack-destination', folder], { cwd: root, encoding: 'utf8' })
  const [{ filename, size, files }] = JSON.parse(report) as [PackReport]
  const project = join(folder, 'project')
  const installed = join(project, 'node_modules/sparse-mla')
  mkdirSync(installed, { recursive: true })
  execFileSync('tar', ['-xzf', join(folder, filename), '--strip-components=1', '-C', installed])
  writeFileSync(join(project, 'package.json'), '{ "type": "module", "private": true }\n')
  const { dependencies } = JSON.parse(readFileSync(join(installed, 'package.json'), 'utf8'))
  for (const name of [...Object.keys(dependencies), '@types/node']) {
    const link = join(project, 'node_modules', name)
    mkdirSync(join(link, '..'), { recursive: true })
    symlinkSync(join(root, 'node_modules', name), link)
  }
  return {
    tarball: join(folder, filename),
    files,
    size,
    project,
    installed,
    [Symbol.dispose]: () => rmSync(folder, { recursive: true }),
  }
}

/** What a program printed, and how it ended; never throws. */
export interface Ended {
  readonly status: number
  readonly output: string
}

export function runNode(cwd: string, ...args: readonly string[]): Ended {
  try {
    const output = execFileSync(process.execPath, args, { cwd, encoding: 'utf8', stdio: 'pipe', timeout: 60_000 })
    return { status: 0, output }
  } catch (error) {
    const { status, stdout, stderr } = error as { status: number | null; stdout: string; stderr: string }
    return { status: status ?? -1, output: `${stdout}${stderr}` }
  }
}
