/** New tokens of several sequences into a cache on a device: slots from the page table, then rows into every layer. */

import type { Device } from '../device.ts'
import { DeviceError, OptionError, ShapeError } from '../errors.ts'
import type { AnyTensor } from '../tensor/device-tensor.ts'
import { tokenCounts } from '../tensor/host-cache.ts'
import type { PagedCache } from '../tensor/paged-cache.ts'
import { type Indices, slots as slotIndices } from '../tensor/spaces.ts'
import { Tensor, tensor, zeros } from '../tensor/tensor.ts'
import { type AppendToCacheArgs, appendToCache } from './append-to-cache.ts'
import { Contract } from './contract.ts'
import type { FloatIn } from './row-args.ts'

/** New rows of one layer. */
export interface LayerAppend {
  /** `[tokens, width]`. */
  readonly latent: AnyTensor<FloatIn>
  /** `[tokens, depth]`; there exactly when the cache has an index. */
  readonly index?: AnyTensor<FloatIn> | undefined
}

export interface AppendSequencesArgs {
  /** Its pools on the device. */
  readonly cache: PagedCache
  readonly ids: readonly number[]
  /** u32 `[batch + 1]` on the host, from 0 to tokens: sequence `ids[b]` receives rows `rowOffsets[b] .. rowOffsets[b + 1] - 1`. */
  readonly rowOffsets: Tensor<'u32'>
  /** One entry a layer of the cache. */
  readonly rows: readonly LayerAppend[]
  /** As for `appendToCache`. */
  readonly powerOfTwoScales?: boolean | undefined
}

export interface AppendSequencesResult {
  /** Slots `[tokens]` i32 of the new tokens, on the host. */
  readonly slots: Indices<'slot'>
  /** Position of the first new token of each entry of `ids`. */
  readonly starts: readonly number[]
}

const known = ['cache', 'ids', 'rowOffsets', 'rows', 'powerOfTwoScales']

/**
 * Lengthens the sequences of a batch and enqueues their rows in all layers. All or nothing: what is refused leaves the page
 * table as it was. Where the layers' rows come one after the other, reserve slots once with `cache.pages.appendBatch` and
 * call `appendToCache` for each layer.
 *
 * @throws MemoryError when the free pages do not suffice; else as `appendToCache`, before anything is reserved
 */
export function appendSequences(device: Device, args: AppendSequencesArgs): AppendSequencesResult {
  const c = new Contract('appendSequences', args, known)
  const { cache, ids } = args
  const counts = countsOf(c, args)
  const layers = layerArgs(c, args)
  const tokens = counts.reduce((sum, count) => sum + count, 0)
  const placeholder = slotIndices(zeros('i32', [tokens]))
  for (const layer of layers) appendToCache.plan(device, { ...layer, slots: placeholder })
  const lengths = ids.map(id => cache.length(id))
  const { slots, starts } = cache.pages.appendBatch(ids.map((id, b) => ({ id, tokens: counts[b]! })))
  const list = slotIndices(tensor('i32', [tokens], slots))
  try {
    for (const layer of layers) appendToCache(device, { ...layer, slots: list })
  } catch (error) {
    for (const [b, id] of ids.entries()) cache.truncate(id, lengths[b]!)
    throw error
  }
  return { slots: list, starts }
}

function countsOf(c: Contract, { ids, rowOffsets }: AppendSequencesArgs): number[] {
  const where = c.op
  if (!Array.isArray(ids))
    throw new OptionError({ where, argument: 'ids', given: ids ?? 'missing', allowed: 'an array of sequence ids' })
  if (!(c.tensor('rowOffsets', rowOffsets, { dtypes: ['u32'], shape: ['batch + 1'] }) instanceof Tensor))
    throw new DeviceError({
      where,
      argument: 'rowOffsets',
      given: 'a device tensor',
      allowed: 'a host tensor: the page table lies on the host',
    })
  return tokenCounts(where, { ids, rowOffsets })
}

/** Arguments of `appendToCache` for every layer, but for the slots. */
function layerArgs(
  c: Contract,
  { cache, rows, powerOfTwoScales }: AppendSequencesArgs,
): Omit<AppendToCacheArgs, 'slots'>[] {
  if (rows?.length !== cache.layers)
    throw new ShapeError({
      where: c.op,
      argument: 'rows',
      given: `${rows?.length ?? 'no'} layers`,
      allowed: `${cache.layers}`,
    })
  return rows.map(({ latent, index }, layer) => ({
    latent: cache.latent(layer),
    latentRows: latent,
    index: cache.hasIndex ? cache.index(layer) : undefined,
    indexRows: index,
    powerOfTwoScales,
  }))
}
