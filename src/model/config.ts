/** What defines one DeepSeek-V3.2 attention layer besides its weights, and how to read it from a `config.json`. */

import { OptionError, UnsupportedError } from '../errors.ts'
import { Contract } from '../ops/contract.ts'
import type { RopeStyle } from '../ops/rope.ts'
import { type YarnOptions, yarnSoftmaxScale } from './rope-table.ts'

export interface DsaConfig {
  /** Width of x and of the output. */
  readonly hidden: number
  /** Attention heads, 1..128. */
  readonly heads: number
  readonly qLoraRank: number
  /** Width of the latent that is cached: 512. */
  readonly kvLoraRank: number
  /** Columns of a head's query without position. */
  readonly nope: number
  /** Columns of a head's query with position: 64. */
  readonly rope: number
  /** Columns of a head's value. */
  readonly v: number
  /** Heads of the indexer, 1..128. */
  readonly indexHeads: number
  /** Columns of an indexer head and of its cached key: a multiple of 16 from `rope` to 256. */
  readonly indexDim: number
  /** Keys each token attends to, 1..8192. */
  readonly indexTopk: number
  /** Of the two RMSNorms; the indexer's LayerNorm always has 1e-6. */
  readonly rmsEps: number
  readonly ropeTheta: number
  /** Context extension; left out for plain rope. */
  readonly yarn?: YarnOptions | undefined
  /** How the MLA rope pairs columns. DeepSeek-V3.2 and GLM: `interleaved`. */
  readonly mlaRopeStyle: RopeStyle
  /** How the indexer's rope pairs columns. DeepSeek-V3.2: `half-split`. GLM: `interleaved`. There is no default. */
  readonly indexerRopeStyle: RopeStyle
  /** Rotate the indexer's queries and keys by an orthonormal Hadamard matrix, as the fp8 indexer of DeepSeek-V3.2 does. */
  readonly hadamard: boolean
}

/** What a `config.json` does not say. */
export interface DsaChoices {
  /** Required, unless the file has `indexer_rope_interleave`. */
  readonly indexerRopeStyle?: RopeStyle | undefined
  /** Default what the file's `rope_interleave` says, else `interleaved`. */
  readonly mlaRopeStyle?: RopeStyle | undefined
  /** Default false. Matters where the indexer's keys are e4m3. */
  readonly hadamard?: boolean | undefined
}

const known: readonly (keyof DsaConfig)[] = [
  'hidden',
  'heads',
  'qLoraRank',
  'kvLoraRank',
  'nope',
  'rope',
  'v',
  'indexHeads',
  'indexDim',
  'indexTopk',
  'rmsEps',
  'ropeTheta',
  'yarn',
  'mlaRopeStyle',
  'indexerRopeStyle',
  'hadamard',
]

/** @throws OptionError | ValueError naming the first field that is missing, unknown or out of range */
export function checkDsaConfig(config: DsaConfig): void {
  const c = new Contract('DsaConfig', config, known)
  for (const field of ['hidden', 'qLoraRank', 'nope', 'v'] as const) c.integer(field, config[field], 1)
  c.integer('heads', config.heads, 1, 128)
  c.integer('kvLoraRank', config.kvLoraRank, 512, 512)
  c.integer('rope', config.rope, 64, 64)
  c.integer('indexHeads', config.indexHeads, 1, 128)
  c.integer('indexDim', config.indexDim, config.rope, 256)
  if (config.indexDim % 16 !== 0) refuse('indexDim', config.indexDim, 'a multiple of 16')
  c.integer('indexTopk', config.indexTopk, 1, 8192)
  for (const field of ['rmsEps', 'ropeTheta'] as const)
    if (!(c.finite(field, config[field]) > 0)) refuse(field, config[field], 'a positive number')
  yarnSoftmaxScale(config.nope, config.yarn)
  const styles = ['half-split', 'interleaved'] as const
  c.choice('mlaRopeStyle', config.mlaRopeStyle, styles)
  if (config.indexerRopeStyle === undefined) refuse('indexerRopeStyle', 'missing', indexerStyles)
  c.choice('indexerRopeStyle', config.indexerRopeStyle, styles)
  if (typeof config.hadamard !== 'boolean') refuse('hadamard', config.hadamard ?? 'missing', 'true or false')
  if (config.hadamard && !Number.isInteger(Math.log2(config.indexDim)))
    refuse('hadamard', true, `false, since indexDim ${config.indexDim} is no power of two`)
}

const indexerStyles = "'half-split' (DeepSeek-V3.2) or 'interleaved' (GLM)"

const refuse = (argument: string, given: unknown, allowed: string, where = 'DsaConfig'): never => {
  throw new OptionError({ where, argument, given, allowed })
}

/**
 * The layer that a Hugging Face `config.json` describes (`deepseek_v32`, `glm_moe_dsa`), in either spelling of its rope:
 * `rope_theta` with `rope_scaling`, or `rope_parameters`.
 *
 * @param json the parsed file
 * @throws OptionError for a field that is missing or of another type, and for a missing `indexerRopeStyle`; ValueError;
 *   UnsupportedError for biases, other ropes than plain and YaRN, and other quantisations than e4m3 by 128 x 128
 */
export function parseDsaConfig(json: unknown, choices: DsaChoices = {}): DsaConfig {
  const c = new Contract('parseDsaConfig', choices, ['indexerRopeStyle', 'mlaRopeStyle', 'hadamard'])
  const file = new Fields('config.json', json)
  if (file.optional('attention_bias', 'boolean') === true) unsupported('attention_bias', true, 'false')
  checkQuantization(file)
  const config: DsaConfig = {
    hidden: file.number('hidden_size'),
    heads: file.number('num_attention_heads'),
    qLoraRank: file.number('q_lora_rank'),
    kvLoraRank: file.number('kv_lora_rank'),
    nope: file.number('qk_nope_head_dim'),
    rope: file.number('qk_rope_head_dim'),
    v: file.number('v_head_dim'),
    indexHeads: file.number('index_n_heads'),
    indexDim: file.number('index_head_dim'),
    indexTopk: file.number('index_topk'),
    rmsEps: file.number('rms_norm_eps'),
    ...parseRope(file),
    mlaRopeStyle: ropeStyle(file, 'rope_interleave', 'mlaRopeStyle', choices) ?? 'interleaved',
    indexerRopeStyle:
      ropeStyle(file, 'indexer_rope_interleave', 'indexerRopeStyle', choices) ??
      refuse('indexerRopeStyle', 'missing', indexerStyles, 'parseDsaConfig'),
    hadamard: c.flag('hadamard', choices.hadamard, false),
  }
  checkDsaConfig(config)
  return config
}

/** Typed fields of a JSON object. */
class Fields {
  private readonly where: string
  private readonly values: Readonly<Record<string, unknown>>

  constructor(where: string, json: unknown) {
    if (typeof json !== 'object' || json === null || Array.isArray(json))
      throw new OptionError({ where, argument: 'content', given: json, allowed: 'an object' })
    this.where = where
    this.values = json as Record<string, unknown>
  }

  number(name: string): number {
    return this.optional(name, 'number') ?? refuse(name, 'missing', 'a number', this.where)
  }

  /** A field, undefined when absent or null. */
  optional(name: string, type: 'number'): number | undefined
  optional(name: string, type: 'boolean'): boolean | undefined
  optional(name: string, type: 'string'): string | undefined
  optional(name: string, type: string): unknown {
    const value = this.values[name] ?? undefined
    if (value !== undefined && typeof value !== type) refuse(name, value, `a ${type}`, this.where)
    return value
  }

  /** An object inside, undefined when absent or null. */
  object(name: string): Fields | undefined {
    const value = this.values[name] ?? undefined
    return value === undefined ? undefined : new Fields(`${this.where} ${name}`, value)
  }

  array(name: string): readonly unknown[] | undefined {
    const value = this.values[name] ?? undefined
    if (value === undefined || Array.isArray(value)) return value
    return refuse(name, value, 'an array', this.where)
  }
}

const unsupported = (argument: string, given: unknown, allowed: string): never => {
  throw new UnsupportedError({ where: 'config.json', argument, given, allowed })
}

function checkQuantization(file: Fields): void {
  const quantization = file.object('quantization_config')
  if (quantization === undefined) return
  const block = quantization.array('weight_block_size')
  if (`${block}` !== '128,128') unsupported('weight_block_size', block ?? 'missing', '[128, 128]')
  const format = quantization.optional('fmt', 'string') ?? 'e4m3'
  if (format !== 'e4m3') unsupported('fmt', format, 'e4m3')
}

/** The style that the file states or the caller chose. @throws OptionError when they differ */
function ropeStyle(
  file: Fields,
  field: string,
  argument: 'mlaRopeStyle' | 'indexerRopeStyle',
  choices: DsaChoices,
): RopeStyle | undefined {
  const chosen = choices[argument]
  const interleave = file.optional(field, 'boolean')
  if (interleave === undefined) return chosen
  const stated = interleave ? 'interleaved' : 'half-split'
  if (chosen !== undefined && chosen !== stated)
    refuse(argument, chosen, `${stated}, as ${field} of config.json has it`, 'parseDsaConfig')
  return stated
}

function parseRope(file: Fields): Pick<DsaConfig, 'ropeTheta' | 'yarn'> {
  const fields = file.object('rope_parameters') ?? file.object('rope_scaling')
  const ropeTheta = fields?.optional('rope_theta', 'number') ?? file.number('rope_theta')
  const type = fields?.optional('rope_type', 'string') ?? fields?.optional('type', 'string') ?? 'default'
  if (type === 'default' || fields === undefined) return { ropeTheta }
  if (type !== 'yarn') unsupported('rope_type', type, 'default or yarn')
  return { ropeTheta, yarn: parseYarn(fields) }
}

function parseYarn(fields: Fields): YarnOptions {
  const attentionFactor = fields.optional('attention_factor', 'number')
  if (attentionFactor !== undefined) unsupported('attention_factor', attentionFactor, 'none: it follows from mscale')
  if (fields.optional('truncate', 'boolean') === false) unsupported('truncate', false, 'true')
  return {
    factor: fields.number('factor'),
    originalMaxPositions: fields.number('original_max_position_embeddings'),
    betaFast: fields.optional('beta_fast', 'number'),
    betaSlow: fields.optional('beta_slow', 'number'),
    mscale: fields.optional('mscale', 'number') ?? 0,
    mscaleAllDim: fields.optional('mscale_all_dim', 'number') ?? 0,
  }
}
