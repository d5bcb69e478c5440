/**
 * Makes the folder pack/: the built library with Node itself and koffi, for Linux machines with nothing but a GPU
 * driver. `pack/sparse-mla` unpacks the archive beside it once, into the user's cache folder, and runs the command.
 *
 * node --import tsx scripts/pack.ts [--fast] [folder]     --fast: a larger archive, sooner
 */

import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))

/** What the launcher needs beside `sh`: tar, and xz or Python to unpack; only the first time. */
const launcher = (key: string): string => `#!/bin/sh
# Unpacks Node and the library once, then runs the sparse-mla command. For Linux x86-64 with glibc.
set -eu
self=$0
while [ -h "$self" ]; do
  link=$(readlink "$self")
  case $link in /*) self=$link ;; *) self=$(dirname "$self")/$link ;; esac
done
here=$(cd "$(dirname "$self")" && pwd -P)
home=\${SPARSE_MLA_HOME:-\${XDG_CACHE_HOME:-\${HOME:-/nonexistent}/.cache}/sparse-mla}
mkdir -p "$home" 2>/dev/null && [ -w "$home" ] || home=\${TMPDIR:-/tmp}/sparse-mla-$(id -u)
app=$home/${key}
if ! [ -d "$app" ]; then
  draft=$home/draft-$$
  trap 'rm -rf "$draft"' EXIT
  mkdir -p "$draft"
  if command -v xz >/dev/null; then
    xz -dc "$here/archive.tar.xz"
  elif command -v python3 >/dev/null; then
    python3 -c 'import lzma, shutil, sys; shutil.copyfileobj(lzma.open(sys.argv[1]), sys.stdout.buffer)' "$here/archive.tar.xz"
  else
    echo 'sparse-mla: xz or python3 is needed to unpack (apt-get install xz-utils)' >&2
    exit 1
  fi | tar -xf - -C "$draft"
  [ -x "$draft/bin/node" ] || exit 1
  mv -T "$draft" "$app" 2>/dev/null || [ -x "$app/bin/node" ]
  trap - EXIT
  rm -rf "$draft"
fi
exec "$app/bin/node" "$app/dist/cli/main.js" "$@"
`

/** Files that a package runs on: no sources, no documents but the licence. */
const isRunTime = (path: string): boolean => /\.(js|cjs|mjs|json|node)$|\/licen[cs]e[^/]*$/i.test(path)

/** Folders of packages that never run here. */
const unused = /\/(musl_x64|doc|vendor|lib\/native|test|tests)(\/|$)/

/** Copies a package and what it depends on. */
function addPackage(name: string, into: string): void {
  const from = join(root, 'node_modules', name)
  const to = join(into, 'node_modules', name)
  if (existsSync(to)) return
  cpSync(from, to, {
    recursive: true,
    filter: path => !unused.test(path.slice(from.length)) && (statSync(path).isDirectory() || isRunTime(path)),
  })
  const { dependencies = {} } = JSON.parse(readFileSync(join(from, 'package.json'), 'utf8')) as {
    dependencies?: Record<string, string>
  }
  for (const dependency of Object.keys(dependencies)) addPackage(dependency, into)
}

/** Node without its symbols, and its licence where the installation has one. */
function addNode(into: string): void {
  mkdirSync(join(into, 'bin'), { recursive: true })
  execFileSync('strip', ['-s', '-o', join(into, 'bin/node'), process.execPath], { stdio: 'inherit' })
  const places = [join(dirname(process.execPath), '../LICENSE'), '/usr/share/doc/nodejs/LICENSE']
  const licence = places.find(path => existsSync(path))
  if (licence !== undefined) cpSync(licence, join(into, 'bin/LICENSE'))
}

/** Packs into `folder`. Returns the bytes of the archive. */
function pack(folder: string, level: string): number {
  if (process.platform !== 'linux' || process.arch !== 'x64') throw new Error('pack runs on Linux x86-64 only')
  const stage = mkdtempSync(join(tmpdir(), 'sparse-mla-pack-'))
  try {
    addNode(stage)
    for (const path of ['dist', 'package.json', 'LICENSE'])
      cpSync(join(root, path), join(stage, path), { recursive: true, filter: from => !from.endsWith('.d.ts') })
    const { dependencies } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
      dependencies: Record<string, string>
    }
    for (const name of [...Object.keys(dependencies), 'koffi', '@koromix/koffi-linux-x64']) addPackage(name, stage)
    rmSync(folder, { recursive: true, force: true })
    mkdirSync(folder, { recursive: true })
    const archive = join(folder, 'archive.tar.xz')
    execFileSync('tar', [
      '--sort=name',
      '--owner=0',
      '--group=0',
      '-I',
      `xz ${level} -T0`,
      '-cf',
      archive,
      '-C',
      stage,
      '.',
    ])
    const key = createHash('sha256').update(readFileSync(archive)).digest('hex').slice(0, 16)
    writeFileSync(join(folder, 'sparse-mla'), launcher(key), { mode: 0o755 })
    return statSync(archive).size
  } finally {
    rmSync(stage, { recursive: true })
  }
}

const args = process.argv.slice(2)
const folder = args.find(arg => !arg.startsWith('-')) ?? join(root, 'pack')
const bytes = pack(folder, args.includes('--fast') ? '-0' : '-9')
console.log(`${folder}: ${(bytes / 2 ** 20).toFixed(1)} MiB`)
