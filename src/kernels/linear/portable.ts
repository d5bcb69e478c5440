/**
 * Linear layers for any GPU, f32 arithmetic:
 *
 *   out[t, h, o] = Σ_i x[t, h, i] W[h, o, i]                    in index order, so a token's bits are its own
 *
 * A block takes a tile of tokens × outputs of one head; chunks of columns go through shared memory, transposed. Few tokens
 * have a tile of their own, so that more blocks share the reading of W.
 *
 * shared memory   X [chunk][tokens + 4] f32 | W [chunk][outputs + 4] f32, e4m3 times its 128 x 128 block's scale
 */

import type { KernelBuilder } from '../../lang/builder.ts'
import { kernel } from '../../lang/kernel.ts'
import { type GpuPlan, gpuPlan, specialize } from '../../lang/launch.ts'
import { input, output, u32 } from '../../lang/params.ts'
import type { SharedArray } from '../../lang/shared.ts'
import type { Target } from '../../lang/types.ts'
import type { Val, Var } from '../../lang/value.ts'
import type { WeightDtype } from '../../ops/linear.ts'
import type { PlanRequest } from '../../ops/op.ts'
import type { FloatIn } from '../../ops/row-args.ts'
import { rowStrideArgs, rowStrides } from '../rows/elements.ts'
import { rowGrid } from '../rows/grid.ts'
import type { LinearProblem } from './problem.ts'

const threads = 128
const scaleBlock = 128
/** Floats between rows of a tile beyond its width: keeps four neighbours together and spreads the banks. */
const padding = 4

/** Sizes of a tile, and the part of it that one thread sums. */
interface Tile {
  readonly tokens: number
  readonly outputs: number
  /** Columns at a time. */
  readonly chunk: number
  readonly ownTokens: number
  readonly ownOutputs: number
}

const tiles = {
  few: { tokens: 8, outputs: 16, chunk: 64, ownTokens: 1, ownOutputs: 1 },
  many: { tokens: 64, outputs: 64, chunk: 16, ownTokens: 8, ownOutputs: 4 },
} as const satisfies Record<string, Tile>

interface Config {
  readonly target: Target
  readonly dtype: FloatIn
  readonly weightDtype: WeightDtype
  readonly outDtype: FloatIn
  readonly scaled: boolean
  readonly tile: keyof typeof tiles
}

type U32 = Val<'u32'>
type F32 = Val<'f32'>

const params = ({ dtype, weightDtype, outDtype }: Config) => ({
  x: input(dtype, '[tokens, heads, inputs]'),
  weight: input(weightDtype, '[heads, outputs, inputs]'),
  weightScale: input('f32', '[heads, ceil(outputs / 128), ceil(inputs / 128)]'),
  out: output(outDtype, '[tokens, heads, outputs]'),
  tokens: u32('tokens'),
  inputs: u32('columns of x'),
  outputs: u32('columns of out'),
  tokenTiles: u32('tiles along the tokens'),
  outputTiles: u32('tiles along the outputs'),
  weightHeadStride: u32('elements'),
  weightRowStride: u32('elements'),
  scaleHeadStride: u32('elements'),
  scaleRowStride: u32('elements'),
  ...rowStrides('x'),
  ...rowStrides('out'),
})

/** `count` neighbours of a tile, from an index that is a multiple of `count`. */
const neighbours = (tile: SharedArray<'f32'>, at: U32, count: number): readonly F32[] =>
  count % 4 === 0
    ? Array.from({ length: count / 4 }, (_, i) => tile.load4(at.add(4 * i))).flat()
    : Array.from({ length: count }, (_, i) => tile.load(at.add(i)))

/** Fills a tile, transposed, one thread a column of some rows; `load` gives 0 for what is not there. */
function fill(
  k: KernelBuilder,
  tile: SharedArray<'f32'>,
  { rows, chunk }: { readonly rows: number; readonly chunk: number },
  load: (row: U32, column: U32) => F32,
): void {
  const column = k.threadIdx.rem(chunk)
  const first = k.threadIdx.div(chunk)
  const step = threads / chunk
  const values = Array.from({ length: rows / step }, (_, i) => load(first.add(i * step), column))
  values.forEach((value, i) => tile.store(column.mul(rows + padding).add(first.add(i * step)), value))
}

const trace = specialize((c: Config) => {
  const { tokens, outputs, chunk, ownTokens, ownOutputs } = tiles[c.tile]
  return kernel({ name: `linear_${c.tile}_${c.weightDtype}`, target: c.target, threads, params: params(c) }, (k, p) => {
    const xTile = k.shared('f32', chunk * (tokens + padding))
    const wTile = k.shared('f32', chunk * (outputs + padding))
    const block = k.blockIdx.x
    const above = block.div(p.tokenTiles)
    const head = above.div(p.outputTiles)
    const firstToken = block.sub(above.mul(p.tokenTiles)).mul(tokens)
    const firstOutput = above.sub(head.mul(p.outputTiles)).mul(outputs)
    const across = outputs / ownOutputs
    const ownToken = k.threadIdx.div(across).mul(ownTokens)
    const ownOutput = k.threadIdx.rem(across).mul(ownOutputs)
    const xHead = k.offset(0, head, p.xHeadStride)
    const wHead = k.offset(0, head, p.weightHeadStride)
    const scaleHead = k.offset(0, head, p.scaleHeadStride)
    const sums = Array.from({ length: ownTokens }, () => k.vars('f32', ownOutputs, 0))

    for (const start of k.range(p.inputs, { step: chunk })) {
      fill(k, xTile, { rows: tokens, chunk }, (row, column) => {
        const [token, i] = [firstToken.add(row), start.add(column)]
        const at = k.offset(k.offset(xHead, token, p.xTokenStride), i, 1)
        return p.x.loadIf(token.lt(p.tokens).and(i.lt(p.inputs)), at)
      })
      fill(k, wTile, { rows: outputs, chunk }, (row, column) => {
        const [o, i] = [firstOutput.add(row), start.add(column)]
        const exists = o.lt(p.outputs).and(i.lt(p.inputs))
        const value = p.weight.loadIf(exists, k.offset(k.offset(wHead, o, p.weightRowStride), i, 1))
        if (!c.scaled) return value
        const scaleRow = k.offset(scaleHead, o.div(scaleBlock), p.scaleRowStride)
        return value.mul(p.weightScale.loadIf(exists, k.offset(scaleRow, i.div(scaleBlock), 1)))
      })
      k.barrier()
      for (const i of k.range(chunk)) {
        const xs = neighbours(xTile, i.mul(tokens + padding).add(ownToken), ownTokens)
        const ws = neighbours(wTile, i.mul(outputs + padding).add(ownOutput), ownOutputs)
        xs.forEach((x, t) => ws.forEach((w, o) => addProduct(sums[t]![o]!, x, w)))
      }
      k.barrier()
    }

    sums.forEach((row, t) => {
      const token = firstToken.add(ownToken).add(t)
      const to = k.offset(k.offset(0, token, p.outTokenStride), head, p.outHeadStride)
      row.forEach((sum, i) => {
        const o = firstOutput.add(ownOutput).add(i)
        k.when(token.lt(p.tokens).and(o.lt(p.outputs)), () => p.out.store(k.offset(to, o, 1), sum))
      })
    })
  })
})

const addProduct = (sum: Var<'f32'>, x: F32, w: F32): void => sum.set(x.fma(w, sum))

export function planLinearPortable({ problem, inputs, outputs, limits }: PlanRequest<LinearProblem>): GpuPlan {
  const { x, weight, weightScale, out } = {
    x: inputs.x!,
    weight: inputs.weight!,
    weightScale: inputs.weightScale,
    out: outputs.out!,
  }
  const tile = problem.tokens <= tiles.few.tokens ? 'few' : 'many'
  const config: Config = {
    target: limits.target as Target,
    dtype: x.dtype as FloatIn,
    weightDtype: weight.dtype as WeightDtype,
    outDtype: out.dtype as FloatIn,
    scaled: weightScale !== undefined,
    tile,
  }
  const tokenTiles = Math.ceil(problem.tokens / tiles[tile].tokens)
  const outputTiles = Math.ceil(problem.outputs / tiles[tile].outputs)
  const perHead = weight.shape.length === 3
  const args = {
    x,
    weight,
    weightScale,
    out,
    tokens: problem.tokens,
    inputs: problem.inputs,
    outputs: problem.outputs,
    tokenTiles,
    outputTiles,
    weightHeadStride: perHead ? weight.strides[0]! : 0,
    weightRowStride: weight.strides.at(-2)!,
    scaleHeadStride: perHead ? (weightScale?.strides[0] ?? 0) : 0,
    scaleRowStride: weightScale?.strides.at(-2) ?? 0,
    ...rowStrideArgs('x', rowGrid(x)),
    ...rowStrideArgs('out', rowGrid(out)),
  }
  return gpuPlan('linear', [{ kernel: trace(config), grid: [tokenTiles * outputTiles * problem.heads, 1], args }])
}
