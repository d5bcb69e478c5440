import { describe, expect, test } from 'vitest'
import { smallConfig } from '../../test/dsa-layer.ts'
import { OptionError, UnsupportedError, ValueError } from '../errors.ts'
import { checkDsaConfig, type DsaConfig, parseDsaConfig } from './config.ts'

/** As deepseek-ai/DeepSeek-V3.2-Exp has it, without what attention does not use. */
const deepseek = {
  architectures: ['DeepseekV32ForCausalLM'],
  attention_bias: false,
  hidden_size: 7168,
  index_head_dim: 128,
  index_n_heads: 64,
  index_topk: 2048,
  kv_lora_rank: 512,
  model_type: 'deepseek_v32',
  num_attention_heads: 128,
  q_lora_rank: 1536,
  qk_nope_head_dim: 128,
  qk_rope_head_dim: 64,
  quantization_config: {
    activation_scheme: 'dynamic',
    fmt: 'e4m3',
    quant_method: 'fp8',
    scale_fmt: 'ue8m0',
    weight_block_size: [128, 128],
  },
  rms_norm_eps: 1e-6,
  rope_scaling: {
    beta_fast: 32,
    beta_slow: 1,
    factor: 40,
    mscale: 1,
    mscale_all_dim: 1,
    original_max_position_embeddings: 4096,
    type: 'yarn',
  },
  rope_theta: 10_000,
  v_head_dim: 128,
}

const chosen = { indexerRopeStyle: 'half-split', hadamard: true } as const

const yarn = {
  factor: 40,
  originalMaxPositions: 4096,
  betaFast: 32,
  betaSlow: 1,
  mscale: 1,
  mscaleAllDim: 1,
}

describe('parseDsaConfig', () => {
  test('DeepSeek-V3.2', () => {
    expect(parseDsaConfig(deepseek, chosen)).toEqual({
      hidden: 7168,
      heads: 128,
      qLoraRank: 1536,
      kvLoraRank: 512,
      nope: 128,
      rope: 64,
      v: 128,
      indexHeads: 64,
      indexDim: 128,
      indexTopk: 2048,
      rmsEps: 1e-6,
      ropeTheta: 10_000,
      yarn,
      mlaRopeStyle: 'interleaved',
      indexerRopeStyle: 'half-split',
      hadamard: true,
    } satisfies DsaConfig)
  })

  test('GLM states its ropes, under the newer name', () => {
    const { rope_scaling: _, rope_theta: __, quantization_config: ___, ...rest } = deepseek
    const glm = {
      ...rest,
      rms_norm_eps: 1e-5,
      rope_parameters: { rope_theta: 8_000_000, rope_type: 'default' },
      rope_interleave: true,
      indexer_rope_interleave: true,
      quantization_config: null,
    }
    const config = parseDsaConfig(glm)
    expect(config).toMatchObject({ ropeTheta: 8_000_000, rmsEps: 1e-5, hadamard: false })
    expect(config).toMatchObject({ mlaRopeStyle: 'interleaved', indexerRopeStyle: 'interleaved' })
    expect(config.yarn).toBeUndefined()
    expect(() => parseDsaConfig(glm, chosen)).toThrow(
      'indexerRopeStyle is half-split; expected interleaved, as indexer_rope_interleave of config.json has it',
    )
  })

  test('YaRN under the newer name; what it leaves out has the defaults of the table', () => {
    const { rope_scaling: _, ...rest } = deepseek
    const rope = { rope_type: 'yarn', rope_theta: 5e5, factor: 8, original_max_position_embeddings: 1024 }
    const config = parseDsaConfig({ ...rest, rope_parameters: rope }, chosen)
    expect(config.ropeTheta).toBe(5e5)
    expect(config.yarn).toEqual({ factor: 8, originalMaxPositions: 1024, mscale: 0, mscaleAllDim: 0 })
  })

  test('the rope style of the indexer has no default', () => {
    expect(() => parseDsaConfig(deepseek)).toThrow(OptionError)
    expect(() => parseDsaConfig(deepseek)).toThrow(
      "indexerRopeStyle is missing; expected 'half-split' (DeepSeek-V3.2) or 'interleaved' (GLM)",
    )
  })

  test.each([
    ['hidden_size'],
    ['num_attention_heads'],
    ['q_lora_rank'],
    ['kv_lora_rank'],
    ['qk_nope_head_dim'],
    ['qk_rope_head_dim'],
    ['v_head_dim'],
    ['index_n_heads'],
    ['index_head_dim'],
    ['index_topk'],
    ['rms_norm_eps'],
    ['rope_theta'],
  ])('%s must be there, and a number', name => {
    expect(() => parseDsaConfig({ ...deepseek, [name]: undefined }, chosen)).toThrow(`config.json: ${name} is missing`)
    expect(() => parseDsaConfig({ ...deepseek, [name]: 'x' }, chosen)).toThrow(OptionError)
  })

  test.each<[string, object, string]>([
    ['biases', { attention_bias: true }, 'attention_bias is true'],
    ['another rope', { rope_scaling: { type: 'longrope' } }, 'rope_type is longrope'],
    [
      'a length of its own',
      { rope_scaling: { ...deepseek.rope_scaling, attention_factor: 2 } },
      'attention_factor is 2',
    ],
    ['no rounding of the range', { rope_scaling: { ...deepseek.rope_scaling, truncate: false } }, 'truncate is false'],
    ['other blocks', { quantization_config: { weight_block_size: [64, 64] } }, 'weight_block_size is [64, 64]'],
    ['no blocks', { quantization_config: { bits: 4 } }, 'weight_block_size is missing'],
    ['e5m2', { quantization_config: { ...deepseek.quantization_config, fmt: 'e5m2' } }, 'fmt is e5m2'],
  ])('refuses %s', (_, change, text) => {
    expect(() => parseDsaConfig({ ...deepseek, ...change }, chosen)).toThrow(UnsupportedError)
    expect(() => parseDsaConfig({ ...deepseek, ...change }, chosen)).toThrow(text)
  })

  test('refuses what is no such file, and sizes beyond the kernels', () => {
    for (const json of [null, [], 'text', 3]) expect(() => parseDsaConfig(json, chosen)).toThrow(OptionError)
    expect(() => parseDsaConfig({ ...deepseek, rope_scaling: 3 }, chosen)).toThrow('config.json rope_scaling')
    expect(() => parseDsaConfig({ ...deepseek, quantization_config: { weight_block_size: 128 } }, chosen)).toThrow(
      'array',
    )
    expect(() => parseDsaConfig({ ...deepseek, kv_lora_rank: 256 }, chosen)).toThrow(ValueError)
    expect(() => parseDsaConfig(deepseek, { ...chosen, topk: 3 } as never)).toThrow('topk is an unknown option')
  })
})

describe('checkDsaConfig', () => {
  test('takes a good one', () => {
    expect(() => checkDsaConfig({ ...smallConfig, yarn })).not.toThrow()
  })

  test.each<[keyof DsaConfig, unknown]>([
    ['hidden', 0],
    ['heads', 129],
    ['qLoraRank', 1.5],
    ['kvLoraRank', 256],
    ['nope', -1],
    ['rope', 32],
    ['v', Number.NaN],
    ['indexHeads', 0],
    ['indexDim', 72],
    ['indexDim', 48],
    ['indexTopk', 8193],
    ['rmsEps', 0],
    ['ropeTheta', Infinity],
    ['yarn', { ...yarn, factor: 0 }],
    ['mlaRopeStyle', undefined],
    ['indexerRopeStyle', 'neox'],
    ['hadamard', undefined],
  ])('refuses %s %s', (field, value) => {
    expect(() => checkDsaConfig({ ...smallConfig, [field]: value } as DsaConfig)).toThrow(field)
  })

  test('refuses Hadamard for a width that is no power of two', () => {
    expect(() => checkDsaConfig({ ...smallConfig, hadamard: true, indexDim: 80 })).toThrow('indexDim 80')
  })
})
