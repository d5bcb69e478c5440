/** Checks of a pool as the target or source of whole rows. */

import { DtypeError, OptionError } from '../errors.ts'
import type { PoolProblem } from '../kernels/cache-rows/problem.ts'
import { packed656ScaleBlock, rowWidth } from '../tensor/cache-layout.ts'
import type { IndexPool, LatentPool } from '../tensor/cache-pool.ts'
import { type AnyTensor, DeviceTensor } from '../tensor/device-tensor.ts'
import { indexGeometry, latentGeometry } from '../tensor/pool-geometry.ts'
import { Tensor } from '../tensor/tensor.ts'
import type { Contract } from './contract.ts'

/** @throws ShapeError | DtypeError | ValueError | OptionError | DisposedError naming the part of the pool that does not fit */
export function checkLatentRows(c: Contract, pool: LatentPool): PoolProblem {
  c.object('latent', pool, ['format', 'values', 'scales', 'scaleBlock', 'layer'])
  checkTensors(c, 'latent', pool)
  const { layout, blocks, pageSize } = latentGeometry(`${c.op} latent`, pool)
  const scaleBlock = layout.format === 'plain' ? layout.scaleBlock : packed656ScaleBlock
  const { format, layer } = pool
  return { name: 'latent', format, scaleBlock, width: rowWidth(layout), pageSize, blocks, layer }
}

/** As {@link checkLatentRows}, for indexer keys. */
export function checkIndexRows(c: Contract, pool: IndexPool): PoolProblem {
  c.object('index', pool, ['format', 'values', 'scales', 'depth', 'layer'])
  checkTensors(c, 'index', pool)
  const { layout, blocks, pageSize } = indexGeometry(`${c.op} index`, pool)
  const scaled = layout.format === 'planar' || layout.dtype === 'e4m3'
  const { format, layer, depth } = pool
  return { name: 'index', format, scaleBlock: scaled ? depth : 0, width: depth, pageSize, blocks, layer }
}

/** The pool's tensors are tensors, and live: what their geometry takes for granted. */
function checkTensors(c: Contract, name: string, { values, scales }: LatentPool | IndexPool): void {
  for (const [part, value] of [
    ['values', values],
    ['scales', scales],
  ] as const) {
    const argument = `${name}.${part}`
    if (part === 'scales' && value === undefined) continue
    if (value === undefined)
      throw new OptionError({ where: c.op, argument, given: 'missing', allowed: 'the tensor of the pool' })
    if (!isTensor(value)) throw new DtypeError({ where: c.op, argument, given: value, allowed: 'a tensor' })
    if (value instanceof DeviceTensor) value.assertLive(c.op, argument)
  }
}

const isTensor = (value: AnyTensor): boolean => value instanceof Tensor || value instanceof DeviceTensor
