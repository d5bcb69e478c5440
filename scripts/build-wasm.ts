/**
 * Compiles the AssemblyScript kernels into two modules, with and without relaxed SIMD, and writes them as base64
 * text under src/cpu/generated/. Does nothing when neither the sources nor the compiler have changed.
 */

import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))
const generated = `${root}src/cpu/generated`
const stampFile = `${generated}/sources.sha256`

const common = [
  ...['--runtime', 'stub', '--noAssert', '-O3', '--converge'],
  ...['--importMemory', '--sharedMemory', '--initialMemory', '256', '--maximumMemory', '65535'],
  ...['--enable', 'simd', '--enable', 'threads'],
]
const builds = { simd128: common, relaxed: [...common, '--enable', 'relaxed-simd'] }

/** Digest of every kernel source, of this script and of the compiler's version. */
function digest(): string {
  const sources = readdirSync(`${root}src`, { recursive: true, encoding: 'utf8' }).filter(file =>
    file.endsWith('.as.ts'),
  )
  const hash = createHash('sha256').update(readFileSync(fileURLToPath(import.meta.url)))
  hash.update(readFileSync(`${root}node_modules/assemblyscript/package.json`))
  for (const file of sources.sort()) hash.update(file).update(readFileSync(`${root}src/${file}`))
  return hash.digest('hex')
}

/** Loads the compiler, which takes a second, only when there is something to compile. */
async function compile(name: string, flags: readonly string[]): Promise<Uint8Array> {
  const { main } = await import('assemblyscript/asc')
  let binary: Uint8Array | undefined
  const { error, stderr } = await main(['src/cpu/as/index.as.ts', '--baseDir', root, '-o', `${name}.wasm`, ...flags], {
    writeFile: (_file: string, contents: Uint8Array | string) => {
      binary = contents as Uint8Array
    },
  })
  if (error !== null || binary === undefined) throw new Error(`asc failed on ${name}:\n${stderr.toString()}`)
  return binary
}

const stamp = digest()
const outputs = [stampFile, ...Object.keys(builds).map(name => `${generated}/${name}.ts`)]
if (!outputs.every(file => existsSync(file)) || readFileSync(stampFile, 'utf8') !== stamp) {
  mkdirSync(generated, { recursive: true })
  for (const [name, flags] of Object.entries(builds)) {
    const bytes = await compile(name, flags)
    const text = Buffer.from(bytes).toString('base64')
    writeFileSync(
      `${generated}/${name}.ts`,
      `/** ${bytes.length} bytes of WASM, base64. */\nexport const ${name}: string =\n  '${text}'\n`,
    )
    console.log(`${name}: ${bytes.length} bytes`)
  }
  writeFileSync(stampFile, stamp)
}
