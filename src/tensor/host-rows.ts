/** One layer of a pool in JavaScript memory as rows of numbers, addressed by slot, whatever the layout. */

import type { Dtype, StorageOf } from '../dtypes/dtype.ts'
import { DeviceError, ShapeError, ValueError } from '../errors.ts'
import { packed656Parts, planarParts } from './byte-views.ts'
import { type CacheDtype, packed656ScaleBlock } from './cache-layout.ts'
import type { IndexPool, LatentPool } from './cache-pool.ts'
import { type AnyTensor, DeviceTensor } from './device-tensor.ts'
import { indexGeometry, latentGeometry } from './pool-geometry.ts'
import { packRow, type QuantizeOptions, type RowFormat, type RowValues, unpackRow } from './row-codec.ts'
import type { Tensor } from './tensor.ts'

export interface HostRows {
  /** Values of a row: 576 or 512 latent columns, or the depth of an indexer key. */
  readonly width: number
  /** Slots of the pool, `blocks * pageSize`. Slot `block * pageSize + offset` holds one row. */
  readonly slots: number
  /** Decodes a row: exact into float64, each value rounded once into f32. @throws ValueError | ShapeError */
  read(slot: number, into: RowValues): void
  /** Quantises a row into its slot. @throws ValueError | ShapeError */
  write(slot: number, row: Float32Array, options?: QuantizeOptions): void
}

/**
 * @throws DeviceError for a pool that lies on a device; ShapeError | DtypeError | ValueError | OptionError for one whose
 *   parts contradict each other
 */
export function latentRows(pool: LatentPool): HostRows {
  const where = 'latentRows'
  assertHost(where, pool)
  const { layout, blocks, pageSize } = latentGeometry(where, pool)
  const place = { where, slots: blocks * pageSize, pageSize, layer: pool.layer }
  if (layout.format === 'plain') return hostRows(place, [{ ...layout, values: pool.values, scales: pool.scales }])
  const { nope, scales, rope } = packed656Parts(pool)
  return hostRows(place, [
    { dtype: 'e4m3', scaleBlock: packed656ScaleBlock, values: nope, scales },
    { dtype: 'bf16', scaleBlock: 0, values: rope },
  ])
}

/** As {@link latentRows}, for indexer keys. */
export function indexRows(pool: IndexPool): HostRows {
  const where = 'indexRows'
  assertHost(where, pool)
  const { layout, blocks, pageSize } = indexGeometry(where, pool)
  const place = { where, slots: blocks * pageSize, pageSize, layer: pool.layer }
  const { values, scales } = layout.format === 'planar' ? planarParts(pool) : pool
  const dtype = layout.format === 'planar' ? 'e4m3' : layout.dtype
  return hostRows(place, [{ dtype, scaleBlock: scales === undefined ? 0 : layout.depth, values, scales }])
}

interface Place {
  readonly where: string
  readonly slots: number
  readonly pageSize: number
  readonly layer: number
}

/** Neighbouring columns of a row that are stored alike; a row is its parts side by side. */
interface Part extends RowFormat {
  /** `[blocks, layers, pageSize, columns]`. */
  readonly values: AnyTensor
  /** `[blocks, layers, pageSize]` or `[blocks, layers, pageSize, scales]`. */
  readonly scales?: AnyTensor | undefined
}

function hostRows(place: Place, parts: readonly Part[]): HostRows {
  let width = 0
  const cells = parts.map(({ dtype, scaleBlock, values, scales }) => {
    const start = width
    width += values.shape[3]!
    return {
      format: { dtype, scaleBlock },
      columns: [start, width] as const,
      codesAt: cellsOf(place, values as Tensor<CacheDtype>),
      scalesAt: scales === undefined ? () => noScales : cellsOf(place, scales as Tensor<'f32'>),
    }
  })
  return {
    width,
    slots: place.slots,
    read(slot, into) {
      check(place, width, slot, into)
      for (const { format, columns, codesAt, scalesAt } of cells)
        unpackRow(format, codesAt(slot), scalesAt(slot), into.subarray(...columns))
    },
    write(slot, row, options) {
      check(place, width, slot, row)
      for (const { format, columns, codesAt, scalesAt } of cells)
        packRow(format, row.subarray(...columns), codesAt(slot), scalesAt(slot), options)
    },
  }
}

const noScales = new Float32Array()

/** The elements of a slot in a tensor `[blocks, layers, pageSize, ...]`, in place. */
function cellsOf<D extends Dtype>({ pageSize, layer }: Place, tensor: Tensor<D>): (slot: number) => StorageOf<D> {
  const { data, offset, strides, shape } = tensor
  const [blockStride, layerStride, tokenStride] = strides as [number, number, number]
  const extent = shape[3] ?? 1
  return slot => {
    const block = Math.floor(slot / pageSize)
    const start = offset + block * blockStride + layer * layerStride + (slot - block * pageSize) * tokenStride
    return data.subarray(start, start + extent) as StorageOf<D>
  }
}

function check({ where, slots }: Place, width: number, slot: number, row: RowValues): void {
  if (!(Number.isInteger(slot) && slot >= 0 && slot < slots))
    throw new ValueError({ where, argument: 'slot', given: slot, allowed: `an integer in [0, ${slots})` })
  if (row.length !== width)
    throw new ShapeError({ where, argument: 'row', given: `${row.length} values`, allowed: `${width}` })
}

function assertHost(where: string, { values, scales }: LatentPool | IndexPool): void {
  const remote = [values, scales].find(tensor => tensor instanceof DeviceTensor)
  if (remote !== undefined)
    throw new DeviceError({
      where,
      argument: 'pool',
      given: `on ${remote.device.name}`,
      allowed: 'a pool in host memory',
    })
}
