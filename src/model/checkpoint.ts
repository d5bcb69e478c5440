/**
 * An attention layer out of a Hugging Face checkpoint folder: `config.json`, and `model.safetensors` or the shards that
 * `model.safetensors.index.json` lists. Only the layer's own tensors are read. Node only.
 */

import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { FormatError, type SparseMlaError, ValueError } from '../errors.ts'
import { openSafetensors, type SafetensorsReader } from '../tensor/safetensors-node.ts'
import type { Tensor } from '../tensor/tensor.ts'
import { type DsaChoices, type DsaConfig, parseDsaConfig } from './config.ts'
import { type DsaWeights, dsaWeights, projectionShapes, requiredTensors } from './weights.ts'

export interface CheckpointLayer {
  readonly config: DsaConfig
  readonly weights: DsaWeights
}

const indexFile = 'model.safetensors.index.json'
const singleFile = 'model.safetensors'

/**
 * Reads layer `layer`, whose tensors are named `model.layers.<layer>.self_attn.*`: f32, bf16, or e4m3 with
 * `*.weight_scale_inv`.
 *
 * @throws FormatError naming the file and what it lacks; ValueError for a layer that is not there; OptionError |
 *   UnsupportedError for what `config.json` leaves out or asks for; ShapeError | DtypeError
 * @example const { config, weights } = await loadDsaLayer('DeepSeek-V3.2', 0, { indexerRopeStyle: 'half-split' })
 */
export async function loadDsaLayer(folder: string, layer: number, choices: DsaChoices = {}): Promise<CheckpointLayer> {
  const config = parseDsaConfig(await readJson(folder, 'config.json'), choices)
  const files = await filesByTensor(folder)
  checkLayer(folder, layer, files)
  const prefix = `model.layers.${layer}.self_attn.`
  const names = tensorNames(folder, files, config, prefix)
  const tensors = await readTensors(folder, files, names)
  return { config, weights: dsaWeights(tensors, config, prefix, placeOf(folder)) }
}

const placeOf = (folder: string): string => `checkpoint ${folder}`

const refuse = (
  folder: string,
  facts: { argument: string; given: unknown; allowed: string; cause?: unknown },
): never => {
  throw new FormatError({ where: placeOf(folder), ...facts })
}

const isMissingFile = (error: unknown): boolean => (error as NodeJS.ErrnoException).code === 'ENOENT'

async function readJson(folder: string, name: string): Promise<unknown> {
  const text = await readFile(join(folder, name), 'utf8').catch((cause: unknown) => {
    if (!isMissingFile(cause)) throw cause
    return refuse(folder, { argument: name, given: 'missing', allowed: 'a file in the folder', cause })
  })
  try {
    return JSON.parse(text)
  } catch (cause) {
    return refuse(folder, { argument: name, given: 'not JSON', allowed: 'a JSON object', cause })
  }
}

/** The file of every tensor in the checkpoint. */
async function filesByTensor(folder: string): Promise<ReadonlyMap<string, string>> {
  const index = await readJson(folder, indexFile).catch((error: SparseMlaError) => {
    if (!isMissingFile(error.cause)) throw error
  })
  if (index === undefined) {
    await using file = await openShard(folder, singleFile, `a file in the folder, or ${indexFile}`)
    return new Map(file.names.map(name => [name, singleFile]))
  }
  const map = (index as { weight_map?: unknown } | null)?.weight_map
  if (typeof map !== 'object' || map === null)
    return refuse(folder, { argument: `weight_map of ${indexFile}`, given: map, allowed: 'file names by tensor name' })
  for (const [name, file] of Object.entries(map))
    if (typeof file !== 'string' || !/^[^/\\]+$/.test(file) || file === '.' || file === '..')
      refuse(folder, { argument: `${name} in ${indexFile}`, given: file, allowed: 'the name of a file in the folder' })
  return new Map(Object.entries(map as Record<string, string>))
}

async function openShard(folder: string, file: string, allowed: string): Promise<SafetensorsReader> {
  return openSafetensors(join(folder, file)).catch((cause: unknown) => {
    if (!isMissingFile(cause)) throw cause
    return refuse(folder, { argument: file, given: 'missing', allowed, cause })
  })
}

function checkLayer(folder: string, layer: number, files: ReadonlyMap<string, string>): void {
  const layers = new Set([...files.keys()].map(name => Number(/^model\.layers\.(\d+)\./.exec(name)?.[1] ?? -1)))
  layers.delete(-1)
  if (layers.has(layer)) return
  const there = [...layers].sort((a, b) => a - b)
  const shown = there.length > 8 ? `${there.slice(0, 3).join(', ')} .. ${there.at(-1)}` : there.join(', ')
  throw new ValueError({
    where: placeOf(folder),
    argument: 'layer',
    given: layer,
    allowed: there.length === 0 ? 'tensors named model.layers.*, of which it has none' : `one of ${shown}`,
  })
}

/** The layer's tensors: all that it must have, and scales and biases where the checkpoint has them. */
function tensorNames(
  folder: string,
  files: ReadonlyMap<string, string>,
  config: DsaConfig,
  prefix: string,
): readonly string[] {
  const required = requiredTensors(config).map(name => prefix + name)
  const missing = required.filter(name => !files.has(name))
  if (missing.length > 0)
    refuse(folder, {
      argument: files.get([...files.keys()][0]!) === singleFile ? singleFile : indexFile,
      given: `without ${missing.join(', ')}`,
      allowed: `all ${required.length} tensors of the layer`,
    })
  const optional = Object.keys(projectionShapes(config)).flatMap(name => [
    `${prefix}${name}.weight_scale_inv`,
    `${prefix}${name}.bias`,
  ])
  return [...required, ...optional.filter(name => files.has(name))]
}

async function readTensors(
  folder: string,
  files: ReadonlyMap<string, string>,
  names: readonly string[],
): Promise<Map<string, Tensor>> {
  const tensors = new Map<string, Tensor>()
  for (const file of new Set(names.map(name => files.get(name)!))) {
    await using shard = await openShard(folder, file, `the file of ${names.find(name => files.get(name) === file)}`)
    for (const name of names.filter(tensor => files.get(tensor) === file)) {
      if (!shard.has(name))
        refuse(folder, {
          argument: file,
          given: `without ${name}`,
          allowed: `the tensors that ${indexFile} places in it`,
        })
      tensors.set(name, await shard.get(name))
    }
  }
  return tensors
}
