/** The queries of an attention layer, from their projections to what attention and indexer take, in one operation. */

import { layerQueriesKernels } from '../kernels/layer-queries/index.ts'
import { indexColumns, type LayerQueriesProblem, rotatedColumns } from '../kernels/layer-queries/problem.ts'
import type { DeviceTensor } from '../tensor/device-tensor.ts'
import { Contract } from './contract.ts'
import { type CheckedCall, defineOp, type Op } from './op.ts'
import type { RopeStyle } from './rope.ts'
import { type FloatIn, floatIns } from './row-args.ts'

export interface LayerQueriesArgs {
  /** `[tokens, heads, 64]`: the columns of each query that rope turns. */
  readonly q: DeviceTensor<FloatIn>
  /** `[tokens, indexHeads, 128]`, dtype of q: indexer queries, whose first 64 columns rope turns. */
  readonly x: DeviceTensor<FloatIn>
  /** f32 `[tokens, indexHeads]`. */
  readonly weights: DeviceTensor<'f32'>
  /** f32 `[positions, 32]`. */
  readonly cos: DeviceTensor<'f32'>
  readonly sin: DeviceTensor<'f32'>
  /** `[tokens]`. */
  readonly positions: DeviceTensor<'i32' | 'u32'>
  readonly mlaStyle: RopeStyle
  readonly indexerStyle: RopeStyle
  readonly factor: number
  readonly into: {
    /** `[tokens, heads, 64]` f32 or bf16. */
    readonly out: DeviceTensor
  }
}

export interface LayerQueriesResult {
  readonly out: DeviceTensor<FloatIn>
  /** e4m3 `[tokens, indexHeads, 128]`. */
  readonly codes: DeviceTensor<'e4m3'>
  /** f32 `[tokens, indexHeads]`: weights times the codes' scale times the factor. */
  readonly qScale: DeviceTensor<'f32'>
}

const known = ['q', 'x', 'weights', 'cos', 'sin', 'positions', 'mlaStyle', 'indexerStyle', 'factor', 'into']
const styles = ['interleaved', 'half-split'] as const

function check(args: LayerQueriesArgs): CheckedCall<LayerQueriesProblem> {
  const c = new Contract('layerQueries', args, known)
  const q = c.tensor('q', args.q, { dtypes: floatIns, shape: ['tokens', 'heads', rotatedColumns] })
  const x = c.tensor('x', args.x, { dtypes: [q.dtype], shape: ['tokens', 'indexHeads', indexColumns] })
  const weights = c.tensor('weights', args.weights, { dtypes: ['f32'], shape: ['tokens', 'indexHeads'] })
  const table = { dtypes: ['f32'], shape: ['angles', rotatedColumns / 2] } as const
  const { out } = c.object('into', args.into, ['out'])
  return {
    problem: {
      mlaStyle: c.choice('mlaStyle', args.mlaStyle, styles),
      indexerStyle: c.choice('indexerStyle', args.indexerStyle, styles),
      factor: c.finite('factor', args.factor),
    },
    inputs: {
      q,
      x,
      weights,
      cos: c.tensor('cos', args.cos, table),
      sin: c.tensor('sin', args.sin, table),
      positions: c.tensor('positions', args.positions, { dtypes: ['i32', 'u32'], shape: ['tokens'] }),
    },
    outputs: {
      out: c.output('into.out', out, out.dtype, ['tokens', 'heads', rotatedColumns]),
      codes: c.output('codes', undefined, 'e4m3', ['tokens', 'indexHeads', indexColumns]),
      qScale: c.output('qScale', undefined, 'f32', ['tokens', 'indexHeads']),
    },
  }
}

/**
 * `rope` of attention queries, and `rope`, `quantize` and `multiply` of indexer queries, bit for bit:
 *
 *   out = rope(q)      codes, scale = quantize(rope(x))      qScale = weights · scale · factor
 *
 * @throws ShapeError | DtypeError | ValueError | OptionError | OverlapError | DeviceError before anything is launched;
 *   UnsupportedError on a device that is no GPU
 * @example const { codes, qScale } = layerQueries(device, { q, x, weights, cos, sin, positions, ...styles, factor, into: { out } })
 */
export const layerQueries: Op<LayerQueriesArgs, LayerQueriesResult> = defineOp({
  name: 'layerQueries',
  kernels: layerQueriesKernels,
  check,
  result: outputs => outputs as unknown as LayerQueriesResult,
})
