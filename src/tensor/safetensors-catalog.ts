/** What can be asked of a safetensors file before its data is read: names, dtypes, shapes and notes. */

import type { Dtype } from '../dtypes/dtype.ts'
import { DtypeError, ValueError } from '../errors.ts'
import type { SafetensorsEntry, SafetensorsHeader } from './safetensors-header.ts'

/** The checked header of a file; base of the in-memory and the on-demand reader. */
export abstract class SafetensorsCatalog {
  /** The tensors' names, in the order of their data. */
  readonly names: readonly string[]
  /** The `__metadata__` of the file; an object without prototype. */
  readonly metadata: Readonly<Record<string, string>>
  private readonly entries: SafetensorsHeader['entries']
  /** How errors name the file. */
  protected readonly where: string

  constructor(where: string, { entries, metadata }: SafetensorsHeader) {
    this.where = where
    this.entries = entries
    this.names = [...entries.keys()]
    this.metadata = metadata
  }

  has(name: string): boolean {
    return this.entries.has(name)
  }

  /** The dtype, shape and place of a tensor. @throws ValueError when there is none of that name */
  info(name: string): SafetensorsEntry {
    const entry = this.entries.get(name)
    if (entry !== undefined) return entry
    const near = nearest(name, this.names)
    const hint =
      near.length > 0 ? `did you mean ${near.join(' or ')}?` : `the first are ${this.names.slice(0, 3).join(', ')}`
    throw new ValueError({
      where: this.where,
      argument: 'name',
      given: name,
      allowed: `one of its ${this.names.length} tensors`,
      ...(this.names.length > 0 && { hint }),
    })
  }

  /** `info`, refused unless the tensor has the dtype. @throws ValueError | DtypeError */
  protected entry<D extends Dtype>(name: string, dtype: D | undefined): SafetensorsEntry<D> {
    const entry = this.info(name)
    if (dtype === undefined || entry.dtype === dtype) return entry as SafetensorsEntry<D>
    throw new DtypeError({ where: this.where, argument: `tensor ${name}`, given: entry.dtype, allowed: dtype })
  }
}

/** Up to three names that contain `name`, lie in it, or differ in at most a third of its characters; nearest first. */
function nearest(name: string, names: readonly string[]): string[] {
  return names
    .map(other => ({ other, distance: editDistance(name, other) }))
    .filter(({ other, distance }) => other.includes(name) || name.includes(other) || distance <= name.length / 3)
    .sort((a, b) => a.distance - b.distance)
    .slice(0, 3)
    .map(({ other }) => other)
}

/** Insertions, deletions and replacements of single characters that turn `a` into `b` (Levenshtein). */
function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, j) => j)
  for (let i = 1; i <= a.length; i++) {
    const above = row
    row = [i]
    for (let j = 1; j <= b.length; j++)
      row[j] = Math.min(above[j]! + 1, row[j - 1]! + 1, above[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1))
  }
  return row[b.length]!
}
