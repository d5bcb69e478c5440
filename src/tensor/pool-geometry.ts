/** What the shapes of a pool say about it, and the refusal of pools whose parts contradict each other. */

import { DtypeError, OptionError, ShapeError, ValueError } from '../errors.ts'
import {
  checkIndexLayout,
  checkLatentLayout,
  type IndexLayout,
  type LatentLayout,
  packed656Offsets,
  planarBlock,
  scalesPerToken,
} from './cache-layout.ts'
import type { IndexPool, LatentPool } from './cache-pool.ts'
import type { AnyTensor } from './device-tensor.ts'
import type { Shape } from './shape.ts'

export interface PoolGeometry<Layout extends LatentLayout | IndexLayout> {
  readonly layout: Layout
  readonly blocks: number
  readonly layers: number
  /** Tokens of a block. */
  readonly pageSize: number
}

/** @throws ShapeError | DtypeError | ValueError | OptionError naming the part of the pool that does not fit */
export function latentGeometry(where: string, pool: LatentPool): PoolGeometry<LatentLayout> {
  const { format, values, scaleBlock } = pool
  const [blocks, layers, pageSize, width] = axes(where, values, 4) as [number, number, number, number]
  const packed = format === 'packed656'
  const layout = (packed ? { format } : { format, dtype: values.dtype, width, scaleBlock }) as LatentLayout
  checkLatentLayout(where, layout)
  const rows = [blocks, layers, pageSize]
  if (packed) checkTensor(where, 'values', values, 'u8', [...rows, packed656Offsets.bytes])
  checkScales(where, pool.scales, packed ? [] : [...rows, scalesPerToken(layout)])
  return checkExtents(where, pool.layer, { layout, blocks, layers, pageSize })
}

/** As {@link latentGeometry}, for indexer keys. */
export function indexGeometry(where: string, pool: IndexPool): PoolGeometry<IndexLayout> {
  const { format, values, depth } = pool
  const planar = format === 'planar'
  const layout = (planar ? { format, depth } : { format, dtype: values.dtype, depth }) as IndexLayout
  checkIndexLayout(where, layout)
  const [blocks, layers, extent] = axes(where, values, planar ? 3 : 4) as [number, number, number]
  const pageSize = planar ? Math.ceil(extent / (depth + 4)) : extent
  if (planar) checkTensor(where, 'values', values, 'u8', [blocks, layers, planarBlock(pageSize, depth).bytes])
  else checkTensor(where, 'values', values, values.dtype, [blocks, layers, pageSize, depth])
  checkScales(where, pool.scales, !planar && scalesPerToken(layout) > 0 ? [blocks, layers, pageSize] : [])
  return checkExtents(where, pool.layer, { layout, blocks, layers, pageSize })
}

function axes(where: string, { shape }: AnyTensor, rank: number): Shape {
  if (shape.length === rank) return shape
  throw new ShapeError({ where, argument: 'values', given: [...shape], allowed: `${rank} axes` })
}

/** `shape` of zero size: the layout has no scale pool. */
function checkScales(where: string, scales: AnyTensor | undefined, shape: Shape): void {
  const wanted = shape.length > 0 && shape.at(-1) !== 0
  if (wanted && scales !== undefined) checkTensor(where, 'scales', scales, 'f32', shape)
  else if (wanted !== (scales !== undefined))
    throw new OptionError({
      where,
      argument: 'scales',
      given: wanted ? 'missing' : 'a tensor',
      allowed: wanted ? `f32 [${shape.join(', ')}]` : 'none in this layout',
    })
}

function checkTensor(where: string, argument: string, tensor: AnyTensor, dtype: string, shape: Shape): void {
  const allowed = `${dtype} [${shape.join(', ')}]`
  if (tensor.dtype !== dtype) throw new DtypeError({ where, argument, given: tensor.dtype, allowed })
  if (tensor.shape.length !== shape.length || shape.some((extent, axis) => extent !== tensor.shape[axis]))
    throw new ShapeError({ where, argument, given: [...tensor.shape], allowed })
}

function checkExtents<G extends PoolGeometry<LatentLayout | IndexLayout>>(where: string, layer: number, found: G): G {
  if (found.pageSize === 0)
    throw new ShapeError({
      where,
      argument: 'values',
      given: 'pages of 0 tokens',
      allowed: 'a page size of at least 1',
    })
  if (Number.isInteger(layer) && layer >= 0 && layer < found.layers) return found
  throw new ValueError({ where, argument: 'layer', given: layer, allowed: `an integer in [0, ${found.layers})` })
}
