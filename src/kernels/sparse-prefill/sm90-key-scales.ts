/**
 * A scale for each key of a tile, in shared memory between the gather role and the math roles: it multiplies the key's scores
 * and, after they have been summed, its weights. Neither is rounded before.
 *
 * The 16 keys of a thread (columns 8 i + 2 q + e of S, q its place in the quad) lie as four times four, those of a quad
 * together: a warp reads without bank conflicts.
 */

import type { Accumulator } from '../../lang/accumulator.ts'
import type { KernelBuilder } from '../../lang/builder.ts'
import type { SharedArray } from '../../lang/shared.ts'
import type { Val } from '../../lang/value.ts'
import { tileKeys } from './sm90-config.ts'

type U32 = Val<'u32'>

export class KeyScales {
  /** `[stage][i / 2][q][i mod 2][e]` */
  private readonly scales: SharedArray<'f32'>
  private readonly k: KernelBuilder

  constructor(k: KernelBuilder) {
    this.k = k
    this.scales = k.shared('f32', 2 * tileKeys)
  }

  /** Stores the scale of key `key` of the tile in a stage. */
  store(stage: U32, key: U32, scale: Val<'f32'>): void {
    const place = key
      .shr(4)
      .mul(16)
      .add(key.shr(1).bitAnd(3).mul(4))
      .add(key.shr(3).bitAnd(1).mul(2))
      .add(key.bitAnd(1))
    this.scales.store(stage.mul(tileKeys).add(place), scale)
  }

  /** The scales of this thread's keys. */
  load(stage: number): readonly Val<'f32'>[] {
    const quad = this.k.lane.bitAnd(3).mul(4)
    const parts = Array.from({ length: tileKeys / 16 }, (_, part) => stage * tileKeys + 16 * part)
    return parts.flatMap(first => this.scales.load4(quad.add(first)))
  }
}

/** Multiplies each element of S or P by the scale of its key. */
export function multiplyKeys(tile: Accumulator, scales: readonly Val<'f32'>[]): void {
  scales.forEach((scale, n) => {
    for (const h of [0, 1]) {
      const element = 4 * (n >> 1) + 2 * h + (n & 1)
      tile.set(element, tile.get(element).mul(scale))
    }
  })
}
