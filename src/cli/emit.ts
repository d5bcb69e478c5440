/** `sparse-mla emit`: kernels as PTX, and a manifest with which any program can load and launch them. */

import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { listedKernels, type Target, targetsOf, traceListed } from '../emit/kernels.ts'
import type { ListedKernel } from '../emit/listed-kernel.ts'
import { emitKernel, type Manifest, type ManifestKernel } from '../emit/manifest.ts'
import { OptionError, UnsupportedError } from '../errors.ts'
import { textTable } from './table.ts'
import { packageVersion } from './version.ts'

export interface EmitOptions {
  /** Names of kernels; with `all` none. */
  readonly names: readonly string[]
  readonly all: boolean
  readonly target: Target
  /** Folder that receives the files. */
  readonly out: string
}

/**
 * Writes `NAME.ptx` for every kernel and `manifest.json`.
 *
 * @throws OptionError for no or unknown kernels; UnsupportedError where the target lacks one that was named
 */
export function emit(options: EmitOptions): Manifest {
  const { target, out } = options
  const kernels: ManifestKernel[] = []
  const leftOut: Manifest['leftOut'][number][] = []
  const texts = new Map<string, string>()
  for (const listed of chosen(options)) {
    const traced = traceListed(listed, target)
    if (traced === undefined) {
      const missing = { name: listed.name, targets: targetsOf(listed) }
      if (!options.all) throw lacking(missing, target)
      leftOut.push(missing)
      continue
    }
    const { manifest, ptx } = emitKernel(traced)
    kernels.push(manifest)
    texts.set(manifest.file, ptx)
  }
  const manifest: Manifest = { package: `sparse-mla ${packageVersion()}`, target, kernels, leftOut }
  mkdirSync(out, { recursive: true })
  for (const [file, ptx] of texts) writeFileSync(join(out, file), ptx)
  writeFileSync(join(out, 'manifest.json'), `${JSON.stringify(manifest, null, 2)}\n`)
  return manifest
}

function chosen({ names, all }: EmitOptions): readonly ListedKernel[] {
  if (all && names.length > 0)
    throw new OptionError({ where: 'emit', argument: '--all', given: 'with a kernel', allowed: 'one or the other' })
  if (all) return listedKernels
  const known = listedKernels.map(({ name }) => name)
  if (names.length === 0)
    throw new OptionError({ where: 'emit', allowed: `--all, or kernels from ${known.join(', ')}` })
  return names.map(name => {
    const found = listedKernels.find(listed => listed.name === name)
    if (found !== undefined) return found
    throw new OptionError({ where: 'emit', argument: 'kernel', given: name, allowed: `one of ${known.join(', ')}` })
  })
}

const lacking = ({ name, targets }: Manifest['leftOut'][number], target: Target): UnsupportedError =>
  new UnsupportedError({ where: `emit ${name}`, argument: '--target', given: target, allowed: targets.join(' or ') })

/** The same for people. */
export function emitText({ kernels, leftOut, target }: Manifest, out: string): string {
  const rows = kernels.map(kernel => [
    kernel.file,
    kernel.entry,
    `${kernel.block[0]}`,
    `${kernel.dynamicSharedBytes}`,
    kernel.grid,
  ])
  return [
    `${kernels.length} kernels for ${target} and manifest.json in ${out}`,
    '',
    textTable({ head: ['file', 'entry', 'threads', 'shared', 'grid'], align: 'llrrl', rows }),
    ...leftOut.map(({ name, targets }) => `left out: ${name}, only for ${targets.join(', ')}`),
  ].join('\n')
}
