/**
 * The weights of one attention layer on the host, from tensors by their Hugging Face names:
 *
 *   q_a_proj  q_a_layernorm  q_b_proj  kv_a_proj_with_mqa  kv_a_layernorm  kv_b_proj  o_proj
 *   indexer.{wq_b, wk, k_norm, weights_proj}
 *
 * kv_b `[heads * (nope + v), 512]` is split by head into the two matrices of absorbed attention:
 * q_latent = wUk qNope and out = wUv o_latent.
 */

import { decodeTable } from '../dtypes/convert.ts'
import { dtypeInfo } from '../dtypes/dtype.ts'
import { DtypeError, OptionError, ShapeError, UnsupportedError } from '../errors.ts'
import { type Shape, sizeOf } from '../tensor/shape.ts'
import { fromFloats, type Tensor, tensor } from '../tensor/tensor.ts'
import { checkDsaConfig, type DsaConfig } from './config.ts'

/** Rows and columns under one f32 scale of an fp8 weight. */
export const weightScaleBlock = 128

/** A linear layer without bias, y = W x. */
export interface Projection<T extends Tensor = Tensor<'f32' | 'bf16' | 'e4m3'>> {
  /** `[out, in]`. */
  readonly weight: T
  /** f32 `[ceil(out / 128), ceil(in / 128)]`: what the codes of an e4m3 weight are multiplied by. */
  readonly scale?: Tensor<'f32'> | undefined
}

type Plain = Tensor<'f32' | 'bf16'>

export interface DsaWeights {
  /** `[qLoraRank, hidden]`. */
  readonly qA: Projection
  /** `[qLoraRank]`. */
  readonly qANorm: Plain
  /** `[heads * (nope + rope), qLoraRank]`. */
  readonly qB: Projection
  /** `[512 + rope, hidden]`. */
  readonly kvA: Projection
  /** `[512]`. */
  readonly kvANorm: Plain
  /** `[heads, 512, nope]`: the key half of kv_b, each head transposed. */
  readonly wUk: Plain
  /** `[heads, v, 512]`: the value half of kv_b. */
  readonly wUv: Plain
  /** `[hidden, heads * v]`. */
  readonly o: Projection
  /** `[indexHeads * indexDim, qLoraRank]`. */
  readonly indexQ: Projection
  /** `[indexDim, hidden]`. */
  readonly indexK: Projection
  /** `[indexDim]`. */
  readonly indexKNorm: { readonly weight: Plain; readonly bias: Plain }
  /** `[indexHeads, hidden]`. */
  readonly indexWeights: Projection
}

/** Where tensors come from by name: a Map, an open safetensors file, a record through {@link fromRecord}. */
export interface TensorSource {
  has(name: string): boolean
  get(name: string): Tensor | undefined
}

/** A record of tensors as a source. */
export const fromRecord = (tensors: Readonly<Record<string, Tensor>>): TensorSource => ({
  has: name => Object.hasOwn(tensors, name),
  get: name => tensors[name],
})

/** Shapes of the linear layers by Hugging Face name, without `.weight`. */
export const projectionShapes = (c: DsaConfig): Readonly<Record<string, Shape>> => ({
  q_a_proj: [c.qLoraRank, c.hidden],
  q_b_proj: [c.heads * (c.nope + c.rope), c.qLoraRank],
  kv_a_proj_with_mqa: [c.kvLoraRank + c.rope, c.hidden],
  kv_b_proj: [c.heads * (c.nope + c.v), c.kvLoraRank],
  o_proj: [c.hidden, c.heads * c.v],
  'indexer.wq_b': [c.indexHeads * c.indexDim, c.qLoraRank],
  'indexer.wk': [c.indexDim, c.hidden],
  'indexer.weights_proj': [c.indexHeads, c.hidden],
})

/** Shapes of the norms by Hugging Face name. */
export const normShapes = (c: DsaConfig): Readonly<Record<string, Shape>> => ({
  'q_a_layernorm.weight': [c.qLoraRank],
  'kv_a_layernorm.weight': [c.kvLoraRank],
  'indexer.k_norm.weight': [c.indexDim],
  'indexer.k_norm.bias': [c.indexDim],
})

/** Every tensor a layer must have; an e4m3 weight has a `<name>_scale_inv` besides. */
export const requiredTensors = (c: DsaConfig): string[] => [
  ...Object.keys(projectionShapes(c)).map(name => `${name}.weight`),
  ...Object.keys(normShapes(c)),
]

/**
 * Checks and arranges the weights of a layer. Tensors are shared with the source, except kv_b: its halves are new, and
 * f32 when it is e4m3 (the value times its scale, rounded once).
 *
 * @param prefix of the names in the source, `model.layers.0.self_attn.` in a checkpoint
 * @param where names the source in errors
 * @throws OptionError naming every tensor that is missing; ShapeError | DtypeError | ValueError | UnsupportedError
 */
export function dsaWeights(source: TensorSource, config: DsaConfig, prefix = '', where = 'dsaWeights'): DsaWeights {
  checkDsaConfig(config)
  const missing = requiredTensors(config).filter(name => !source.has(prefix + name))
  if (missing.length > 0)
    throw new OptionError({
      where,
      argument: 'tensors',
      given: `without ${missing.map(name => prefix + name).join(', ')}`,
      allowed: `all ${requiredTensors(config).length} tensors of a layer`,
    })
  const bias = Object.keys(projectionShapes(config)).find(name => source.has(`${prefix + name}.bias`))
  if (bias !== undefined)
    throw new UnsupportedError({ where, argument: `${prefix + bias}.bias`, given: 'a tensor', allowed: 'no biases' })
  const shapes = projectionShapes(config)
  const linear = (name: string): Projection => projection(where, source, prefix + name, shapes[name]!)
  const norms = normShapes(config)
  const norm = (name: string): Plain => checked(where, source, prefix + name, ['f32', 'bf16'], norms[name]!)
  const kvB = dequantize(linear('kv_b_proj'), 'f32')
  return {
    qA: linear('q_a_proj'),
    qANorm: norm('q_a_layernorm.weight'),
    qB: linear('q_b_proj'),
    kvA: linear('kv_a_proj_with_mqa'),
    kvANorm: norm('kv_a_layernorm.weight'),
    ...absorb(kvB, config),
    o: linear('o_proj'),
    indexQ: linear('indexer.wq_b'),
    indexK: linear('indexer.wk'),
    indexKNorm: { weight: norm('indexer.k_norm.weight'), bias: norm('indexer.k_norm.bias') },
    indexWeights: linear('indexer.weights_proj'),
  }
}

function checked<D extends 'f32' | 'bf16' | 'e4m3'>(
  where: string,
  source: TensorSource,
  name: string,
  dtypes: readonly D[],
  shape: Shape,
): Tensor<D> {
  const found = source.get(name)!
  if (!(dtypes as readonly string[]).includes(found.dtype))
    throw new DtypeError({ where, argument: name, given: found.dtype, allowed: dtypes.join(' or ') })
  if (found.shape.length !== shape.length || shape.some((extent, axis) => extent !== found.shape[axis]))
    throw new ShapeError({ where, argument: name, given: [...found.shape], allowed: `[${shape.join(', ')}]` })
  return found as Tensor<D>
}

function projection(where: string, source: TensorSource, name: string, shape: Shape): Projection {
  const weight = checked(where, source, `${name}.weight`, ['f32', 'bf16', 'e4m3'], shape)
  const scaleName = `${name}.weight_scale_inv`
  if (source.has(scaleName) !== (weight.dtype === 'e4m3'))
    throw new OptionError({
      where,
      argument: scaleName,
      given: source.has(scaleName) ? 'a tensor' : 'missing',
      allowed: weight.dtype === 'e4m3' ? 'the scales of an e4m3 weight' : `none beside a weight of ${weight.dtype}`,
    })
  if (weight.dtype !== 'e4m3') return { weight }
  const blocks = shape.map(extent => Math.ceil(extent / weightScaleBlock))
  return { weight, scale: checked(where, source, scaleName, ['f32'], blocks) }
}

/**
 * The weight's values in `dtype`, rounded once: codes times their block's scale. A weight that is not of e4m3 keeps its
 * dtype, except f32 that is to become bf16.
 */
export function dequantize({ weight, scale }: Projection, dtype: 'f32' | 'bf16'): Plain {
  if (weight.dtype === 'bf16' || weight.dtype === dtype) return weight as Plain
  if (weight.dtype === 'f32') return weight.cast(dtype)
  const [rows, columns] = weight.shape as [number, number]
  const codes = weight.codes()
  const scales = scale!.floats()
  const blocksPerRow = scale!.shape[1]!
  const values = decodeTable('e4m3')
  const out = new Float32Array(rows * columns)
  for (let r = 0; r < rows; r++) {
    const scaleRow = Math.floor(r / weightScaleBlock) * blocksPerRow
    for (let c = 0; c < columns; c++)
      out[r * columns + c] = values[codes[r * columns + c]!]! * scales[scaleRow + Math.floor(c / weightScaleBlock)]!
  }
  return fromFloats(dtype, [rows, columns], out)
}

/** kv_b by head: the rows of the key half become columns, those of the value half stay. */
function absorb(kvB: Plain, { heads, nope, v, kvLoraRank: rank }: DsaConfig): Pick<DsaWeights, 'wUk' | 'wUv'> {
  const from = kvB.codes()
  const empty = (shape: Shape): Plain =>
    tensor(kvB.dtype, shape, new dtypeInfo[kvB.dtype].storage(sizeOf(shape)) as typeof from) as Plain
  const wUk = empty([heads, rank, nope])
  const wUv = empty([heads, v, rank])
  for (let h = 0; h < heads; h++) {
    const head = h * (nope + v) * rank
    for (let r = 0; r < rank; r++)
      for (let d = 0; d < nope; d++) wUk.data[(h * rank + r) * nope + d] = from[head + d * rank + r]!
    wUv.data.set(from.subarray(head + nope * rank, head + (nope + v) * rank), h * v * rank)
  }
  return { wUk, wUv }
}
