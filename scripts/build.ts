/** Builds dist/ from nothing: the WASM kernels, what the entry points reach, the workers' plain JavaScript. */

import { spawnSync } from 'node:child_process'
import { chmodSync, copyFileSync, readdirSync, rmSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))

/** Runs a program of the project; its messages and its failure are this script's. */
function run(...args: string[]): void {
  const { status } = spawnSync(process.execPath, args, { cwd: root, stdio: 'inherit' })
  if (status !== 0) process.exit(status ?? 1)
}

run('--import', 'tsx', 'scripts/build-wasm.ts')
rmSync(`${root}dist`, { recursive: true, force: true })
run('node_modules/typescript/bin/tsc', '-p', 'tsconfig.build.json')
for (const file of readdirSync(`${root}src`, { recursive: true, encoding: 'utf8' }))
  if (file.endsWith('.js')) copyFileSync(`${root}src/${file}`, `${root}dist/${file}`)
chmodSync(`${root}dist/cli/main.js`, 0o755)
