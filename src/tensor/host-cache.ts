/** Tokens into and out of a cache whose pools lie in host memory. A cache on a device is written by `appendToCache`. */

import { DtypeError, OptionError, ShapeError, ValueError } from '../errors.ts'
import { type HostRows, indexRows, latentRows } from './host-rows.ts'
import type { PagedCache } from './paged-cache.ts'
import type { QuantizeOptions } from './row-codec.ts'
import type { Shape } from './shape.ts'
import { type Indices, slots as slotIndices } from './spaces.ts'
import { type Tensor, tensor } from './tensor.ts'

/** Rows of one layer. */
export interface LayerRows<D extends 'f32' | 'bf16' = 'f32' | 'bf16'> {
  /** `[tokens, width]`. */
  readonly latent: Tensor<D>
  /** `[tokens, depth]`; there exactly when the cache has an index. */
  readonly index?: Tensor<D> | undefined
}

/** New tokens of several sequences, one after the other. */
export interface RaggedBatch {
  readonly ids: readonly number[]
  /** `[batch + 1]`, from 0 to tokens: sequence `ids[b]` receives the rows `rowOffsets[b] .. rowOffsets[b + 1] - 1`. */
  readonly rowOffsets: Tensor<'u32'>
  /** One entry a layer of the cache. */
  readonly rows: readonly LayerRows[]
}

/**
 * Appends a batch to its sequences, quantised to the cache's layouts. All or nothing.
 *
 * @returns the slots `[tokens]` i32 of the new tokens
 * @throws MemoryError when the free pages do not suffice; ShapeError | DtypeError | ValueError | OptionError | DeviceError |
 *   DisposedError; the cache is unchanged then
 */
export function appendRows(cache: PagedCache, batch: RaggedBatch, options?: QuantizeOptions): Indices<'slot'> {
  const where = 'appendRows'
  const counts = tokenCounts(where, batch)
  const tokens = counts.reduce((sum, count) => sum + count, 0)
  if (batch.rows.length !== cache.layers)
    throw new ShapeError({ where, argument: 'rows', given: `${batch.rows.length} layers`, allowed: `${cache.layers}` })
  const writes = batch.rows.flatMap((rows, layer) => pairs(where, cache, layer, rows))
  for (const { argument, source, target } of writes) checkRows(where, argument, source, [tokens, target.width])
  const { slots } = cache.pages.appendBatch(batch.ids.map((id, b) => ({ id, tokens: counts[b]! })))
  for (const { source, target } of writes) {
    const { width } = target
    const floats = source.floats()
    for (const [t, slot] of slots.entries()) target.write(slot, floats.subarray(t * width, (t + 1) * width), options)
  }
  return slotIndices(tensor('i32', [tokens], slots))
}

/** All tokens of a sequence in one layer, decoded; each value rounded once to f32. @throws DeviceError | DisposedError | ValueError */
export function gatherRows(cache: PagedCache, id: number, layer: number): LayerRows<'f32'> {
  const slots = cache.pages.slotsOf(id)
  const gather = (rows: HostRows): Tensor<'f32'> => {
    const { width } = rows
    const floats = new Float32Array(slots.length * width)
    for (const [t, slot] of slots.entries()) rows.read(slot, floats.subarray(t * width, (t + 1) * width))
    return tensor('f32', [slots.length, width], floats)
  }
  return {
    latent: gather(latentRows(cache.latent(layer))),
    index: cache.hasIndex ? gather(indexRows(cache.index(layer))) : undefined,
  }
}

interface Write {
  readonly argument: string
  readonly source: Tensor<'f32' | 'bf16'>
  readonly target: HostRows
}

/** The given rows of a layer with the pool rows that take them. */
function pairs(where: string, cache: PagedCache, layer: number, { latent, index }: LayerRows): Write[] {
  const argument = `rows[${layer}].index`
  if (cache.hasIndex !== (index !== undefined))
    throw new OptionError({
      where,
      argument,
      given: cache.hasIndex ? 'missing' : 'a tensor',
      allowed: cache.hasIndex ? 'index keys, since the cache has an index' : 'none, since the cache has no index',
    })
  const latents = { argument: `rows[${layer}].latent`, source: latent, target: latentRows(cache.latent(layer)) }
  return index === undefined ? [latents] : [latents, { argument, source: index, target: indexRows(cache.index(layer)) }]
}

function checkRows(where: string, argument: string, { dtype, shape }: Tensor, wanted: Shape): void {
  const allowed = `f32 or bf16 [${wanted.join(', ')}]`
  if (dtype !== 'f32' && dtype !== 'bf16') throw new DtypeError({ where, argument, given: dtype, allowed })
  if (shape.length !== 2 || shape[0] !== wanted[0] || shape[1] !== wanted[1])
    throw new ShapeError({ where, argument, given: [...shape], allowed })
}

/** Tokens of each sequence of the batch. @throws ShapeError | DtypeError | ValueError */
export function tokenCounts(where: string, { ids, rowOffsets }: Pick<RaggedBatch, 'ids' | 'rowOffsets'>): number[] {
  const argument = 'rowOffsets'
  const { dtype, shape } = rowOffsets
  if (dtype !== 'u32') throw new DtypeError({ where, argument, given: dtype, allowed: 'u32' })
  if (shape.length !== 1 || shape[0] !== ids.length + 1)
    throw new ShapeError({ where, argument, given: [...shape], allowed: `[${ids.length + 1}], one more than ids` })
  const offsets = rowOffsets.codes()
  const counts = ids.map((_, b) => offsets[b + 1]! - offsets[b]!)
  if (offsets[0] !== 0 || counts.some(count => count < 0))
    throw new ValueError({ where, argument, given: [...offsets], allowed: 'offsets that start at 0 and never fall' })
  return counts
}
