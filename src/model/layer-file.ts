/**
 * A file with one attention layer, its input and the results of another implementation, as
 * `test/golden/hf_dsv32_layer.safetensors`: `w.*` weights by Hugging Face name, `x [tokens, hidden]`, `cos`, `sin`
 * `[tokens, 64]`, `topk [tokens, k]`, `out [tokens, hidden]`; metadata `heads`, `index_heads`, `index_topk`, `eps`,
 * `rope_theta`, `scaling`.
 */

import { FormatError } from '../errors.ts'
import type { RopeStyle } from '../ops/rope.ts'
import type { SafetensorsFile } from '../tensor/safetensors.ts'
import type { Tensor } from '../tensor/tensor.ts'
import { checkDsaConfig, type DsaConfig } from './config.ts'
import { type RopeTable, yarnSoftmaxScale } from './rope-table.ts'
import { type DsaWeights, dsaWeights } from './weights.ts'

export interface LayerFile {
  readonly config: DsaConfig
  readonly weights: DsaWeights
  /** `[tokens, hidden]`. */
  readonly x: Tensor<'f32' | 'bf16'>
  readonly rope: RopeTable
  /** `[tokens, k]` best first; rows with fewer visible keys hold keys after the token too. */
  readonly topk: Tensor<'i32'>
  /** `[tokens, hidden]`. */
  readonly out: Tensor<'f32'>
}

/** What the file does not say. */
export interface LayerChoices {
  /** Default `half-split`, as DeepSeek-V3.2. */
  readonly indexerRopeStyle?: RopeStyle | undefined
  /** Default false. */
  readonly hadamard?: boolean | undefined
  /** Default: the file's. */
  readonly indexTopk?: number | undefined
}

const where = 'layer file'

/** @throws FormatError for metadata that is missing or contradicts the weights; as `dsaWeights`; ValueError | DtypeError */
export function readLayerFile(file: SafetensorsFile, choices: LayerChoices = {}): LayerFile {
  const config = configOf(file, choices)
  checkDsaConfig(config)
  return {
    config,
    weights: dsaWeights(file, config, 'w.', where),
    x: file.get('x') as Tensor<'f32' | 'bf16'>,
    rope: { cos: file.get('cos', 'f32'), sin: file.get('sin', 'f32') },
    topk: file.get('topk', 'i32'),
    out: file.get('out', 'f32'),
  }
}

function configOf(file: SafetensorsFile, choices: LayerChoices): DsaConfig {
  const shape = (name: string): readonly number[] => file.info(`w.${name}.weight`).shape
  const [heads, indexHeads] = [numberOf(file, 'heads'), numberOf(file, 'index_heads')]
  const kvLoraRank = shape('kv_a_layernorm')[0]!
  const rope = shape('kv_a_proj_with_mqa')[0]! - kvLoraRank
  const nope = shape('q_b_proj')[0]! / heads - rope
  checkScale(file, nope)
  return {
    hidden: shape('q_a_proj')[1]!,
    heads,
    qLoraRank: shape('q_a_proj')[0]!,
    kvLoraRank,
    nope,
    rope,
    v: shape('kv_b_proj')[0]! / heads - nope,
    indexHeads,
    indexDim: shape('indexer.wk')[0]!,
    indexTopk: choices.indexTopk ?? numberOf(file, 'index_topk'),
    rmsEps: numberOf(file, 'eps'),
    ropeTheta: numberOf(file, 'rope_theta'),
    mlaRopeStyle: 'interleaved',
    indexerRopeStyle: choices.indexerRopeStyle ?? 'half-split',
    hadamard: choices.hadamard ?? false,
  }
}

/** The first number of a metadata entry. */
function numberOf({ metadata }: SafetensorsFile, name: string): number {
  const value = Number.parseFloat(metadata[name] ?? '')
  if (Number.isFinite(value)) return value
  throw new FormatError({
    where,
    argument: `metadata ${name}`,
    given: metadata[name] ?? 'missing',
    allowed: 'a number',
  })
}

/** The scale that the other implementation used must be the one of plain rope. */
function checkScale(file: SafetensorsFile, nope: number): void {
  const [given, scale] = [numberOf(file, 'scaling'), yarnSoftmaxScale(nope)]
  if (Math.abs(given - scale) <= 1e-6 * scale) return
  throw new FormatError({ where, argument: 'metadata scaling', given, allowed: `${scale}, (nope + 64)^-1/2` })
}
