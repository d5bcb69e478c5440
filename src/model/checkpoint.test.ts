import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { fp8Tensors, type LayerTensors, layerTensors, normalTensor, smallConfig } from '../../test/dsa-layer.ts'
import { openCpuDevice } from '../cpu/device.ts'
import { FormatError, OptionError, ShapeError, ValueError } from '../errors.ts'
import { writeSafetensors } from '../tensor/safetensors.ts'
import type { Tensor } from '../tensor/tensor.ts'
import { loadDsaLayer } from './checkpoint.ts'
import type { DsaConfig } from './config.ts'
import { DsaAttention } from './dsa-attention.ts'
import { dsaReference } from './reference.ts'
import { dsaWeights, fromRecord } from './weights.ts'

const chosen = { indexerRopeStyle: 'half-split' } as const
const yarn = { factor: 4, originalMaxPositions: 8, betaFast: 32, betaSlow: 1, mscale: 1, mscaleAllDim: 1 }
const withYarn: DsaConfig = { ...smallConfig, yarn }

/** The `config.json` of a layer. */
const configJson = (c: DsaConfig): Record<string, unknown> => ({
  model_type: 'deepseek_v32',
  hidden_size: c.hidden,
  num_attention_heads: c.heads,
  q_lora_rank: c.qLoraRank,
  kv_lora_rank: c.kvLoraRank,
  qk_nope_head_dim: c.nope,
  qk_rope_head_dim: c.rope,
  v_head_dim: c.v,
  index_n_heads: c.indexHeads,
  index_head_dim: c.indexDim,
  index_topk: c.indexTopk,
  rms_norm_eps: c.rmsEps,
  rope_theta: c.ropeTheta,
  ...(c.yarn && {
    rope_scaling: {
      type: 'yarn',
      factor: c.yarn.factor,
      original_max_position_embeddings: c.yarn.originalMaxPositions,
      beta_fast: c.yarn.betaFast,
      beta_slow: c.yarn.betaSlow,
      mscale: c.yarn.mscale,
      mscale_all_dim: c.yarn.mscaleAllDim,
    },
    quantization_config: { quant_method: 'fp8', fmt: 'e4m3', weight_block_size: [128, 128] },
  }),
})

const named = (layer: number, tensors: LayerTensors): [string, Tensor][] =>
  Object.entries(tensors).map(([name, t]) => [`model.layers.${layer}.self_attn.${name}`, t])

let root: string
let count = 0
beforeAll(async () => {
  root = await mkdtemp(join(tmpdir(), 'checkpoint-'))
})
afterAll(() => rm(root, { recursive: true }))

/** A folder with these files; objects become JSON. */
async function folder(files: Record<string, Uint8Array | object | string>): Promise<string> {
  const path = join(root, `${count++}`)
  await mkdir(path)
  for (const [name, content] of Object.entries(files)) {
    const raw = typeof content === 'string' || content instanceof Uint8Array
    await writeFile(join(path, name), raw ? content : JSON.stringify(content))
  }
  return path
}

const bf16 = layerTensors(smallConfig, 1)
const other = layerTensors(smallConfig, 2)
const fp8 = fp8Tensors(bf16)

/** Two layers over three shards, one of them in fp8. */
async function sharded(change: { index?: Record<string, string>; shard?: Record<string, Uint8Array> } = {}) {
  const tensors = [
    ...named(0, other),
    ...named(11, fp8),
    ['model.embed_tokens.weight', normalTensor([2, 2], 1)] as [string, Tensor],
  ]
  const shardOf = (name: string, at: number): string =>
    `model-0000${name.includes('indexer') ? 3 : 1 + (at % 2)}-of-00003.safetensors`
  const map = Object.fromEntries(tensors.map(([name], at) => [name, shardOf(name, at)]))
  const shards = Object.fromEntries(
    [...new Set(Object.values(map))].map(file => [
      file,
      writeSafetensors(tensors.filter(([name]) => map[name] === file)),
    ]),
  )
  return folder({
    'config.json': configJson(withYarn),
    'model.safetensors.index.json': { metadata: { total_size: 1 }, weight_map: { ...map, ...change.index } },
    ...shards,
    ...change.shard,
  })
}

test('a single file in bf16', async () => {
  const path = await folder({
    'config.json': configJson(smallConfig),
    'model.safetensors': writeSafetensors([...named(0, other), ...named(1, bf16)]),
  })
  const { config, weights } = await loadDsaLayer(path, 1, chosen)
  expect(config).toEqual(smallConfig)
  expect(weights).toEqual(dsaWeights(fromRecord(bf16), smallConfig))
})

test('shards, fp8 and YaRN: the layer computes what its values stand for', async () => {
  const { config, weights } = await loadDsaLayer(await sharded(), 11, chosen)
  expect(config).toEqual(withYarn)
  expect(weights.qB.weight.dtype).toBe('e4m3')
  const x = normalTensor([24, config.hidden], 5)
  const expected = dsaReference(fromRecord(fp8), withYarn, x)
  await using device = await openCpuDevice({ threads: 1 })
  using attention = DsaAttention.create(device, weights, config)
  expect(attention.scale).toBeCloseTo((config.nope + 64) ** -0.5 * (0.1 * Math.log(4) + 1) ** 2, 12)
  using cache = attention.createCache({ blocks: 2, pageSize: 16, latent: 'f32', index: 'f32' })
  const { out } = attention.step({ x, cache, sequences: [{ id: cache.addSequence(), tokens: 24 }] })
  const actual = (await out.read()).floats()
  const wanted = expected.out.flatMap(row => [...row])
  const peak = Math.max(...wanted.map(Math.abs))
  expect(Math.max(...wanted.map((value, i) => Math.abs(value - actual[i]!))) / peak).toBeLessThan(1e-5)
})

describe('refusals', () => {
  const load = async (path: Promise<string>, layer = 11) => loadDsaLayer(await path, layer, chosen)

  test('a folder without what it must have', async () => {
    const config = configJson(smallConfig)
    await expect(load(folder({}))).rejects.toThrow('config.json is missing; expected a file in the folder')
    await expect(load(folder({ 'config.json': '{' }))).rejects.toThrow('config.json is not JSON')
    await expect(load(folder({ 'config.json': config }))).rejects.toThrow(
      'model.safetensors is missing; expected a file in the folder, or model.safetensors.index.json',
    )
    await expect(load(folder({ 'config.json': config }))).rejects.toThrow(FormatError)
    const path = await folder({ 'config.json': config })
    await expect(loadDsaLayer(path, 0, chosen)).rejects.toThrow(`checkpoint ${path}`)
  })

  test('a config without the rope style', async () => {
    await expect(loadDsaLayer(await sharded(), 11)).rejects.toThrow(OptionError)
  })

  test('an index that is none', async () => {
    const files = { 'config.json': configJson(smallConfig) }
    for (const index of [{}, { weight_map: null }, [], 'null'])
      await expect(load(folder({ ...files, 'model.safetensors.index.json': index }))).rejects.toThrow('weight_map')
  })

  test.each(['../shard.safetensors', '/etc/passwd', 'a\\b', '..', '.', ''])('an index that leads to %j', async file => {
    const name = 'model.layers.11.self_attn.o_proj.weight'
    await expect(load(sharded({ index: { [name]: file } }))).rejects.toThrow(
      `${name} in model.safetensors.index.json is ${file}; expected the name of a file in the folder`,
    )
  })

  test('a layer that is not there', async () => {
    await expect(load(sharded(), 3)).rejects.toThrow(ValueError)
    await expect(load(sharded(), 3)).rejects.toThrow('layer is 3; expected one of 0, 11')
    await expect(load(sharded(), -1)).rejects.toThrow('layer is -1')
    const empty = { 'config.json': configJson(smallConfig), 'model.safetensors': writeSafetensors({}) }
    await expect(load(folder(empty), 0)).rejects.toThrow('of which it has none')
  })

  test('tensors that no shard has', async () => {
    const { 'indexer.wk.weight': _, 'q_b_proj.weight': __, ...rest } = bf16
    const files = { 'config.json': configJson(smallConfig), 'model.safetensors': writeSafetensors(named(11, rest)) }
    await expect(load(folder(files))).rejects.toThrow(FormatError)
    await expect(load(folder(files))).rejects.toThrow(
      'model.safetensors is without model.layers.11.self_attn.q_b_proj.weight, ' +
        'model.layers.11.self_attn.indexer.wk.weight; expected all 12 tensors of the layer',
    )
  })

  test('a shard that is missing, or lacks what the index says', async () => {
    const name = 'model.layers.11.self_attn.o_proj.weight'
    await expect(load(sharded({ index: { [name]: 'gone.safetensors' } }))).rejects.toThrow(
      `gone.safetensors is missing; expected the file of ${name}`,
    )
    const shard = { 'model-00003-of-00003.safetensors': writeSafetensors({ x: normalTensor([1], 1) }) }
    await expect(load(sharded({ shard }))).rejects.toThrow(
      /model-00003-of-00003.safetensors is without model.layers.11.self_attn.indexer.*; expected the tensors that/,
    )
  })

  test('an fp8 weight without its scales, a tensor of another shape', async () => {
    const { 'kv_b_proj.weight_scale_inv': _, ...unscaled } = fp8
    const files = { 'config.json': configJson(smallConfig), 'model.safetensors': writeSafetensors(named(11, unscaled)) }
    await expect(load(folder(files))).rejects.toThrow(
      /checkpoint .*: model.layers.11.self_attn.kv_b_proj.weight_scale_inv is missing/,
    )
    const wide = { ...files, 'config.json': { ...configJson(smallConfig), hidden_size: 91 } }
    await expect(load(folder({ ...wide, 'model.safetensors': writeSafetensors(named(11, bf16)) }))).rejects.toThrow(
      ShapeError,
    )
  })
})
