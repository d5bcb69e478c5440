/**
 * How a process of its own starts the library and the command line: as built when the build is newer than every source,
 * else from the sources, which takes a second longer.
 */

import { readdirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))

const changedAt = (file: string): number => statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? 0

function isBuilt(): boolean {
  const source = join(root, 'src')
  const files = readdirSync(source, { recursive: true, encoding: 'utf8' }).filter(file => !file.endsWith('.test.ts'))
  // What the build writes last.
  const built = changedAt(join(root, 'dist/cpu/worker.js'))
  return files.every(file => changedAt(join(source, file)) <= built)
}

const built = isBuilt()

/** Arguments of node before a program that imports files of the library. */
export const nodeArgs: readonly string[] = built ? [] : ['--import', 'tsx']

/** A module of the library, such as `cli/main`. */
export const programFile = (module: string): string => join(root, built ? `dist/${module}.js` : `src/${module}.ts`)
