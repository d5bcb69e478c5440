/** Runs the layer of a file and compares it with the results that the file holds. */

import type { Device } from '../device.ts'
import { Contract } from '../ops/contract.ts'
import type { LatentLayoutName } from '../tensor/cache-layout.ts'
import type { SafetensorsFile } from '../tensor/safetensors.ts'
import { type Indices, logical } from '../tensor/spaces.ts'
import { type Tensor, tensor } from '../tensor/tensor.ts'
import { compareOutputs, compareSelections, type OutputReport, type SelectionReport } from './compare.ts'
import { DsaAttention, type StageTime } from './dsa-attention.ts'
import type { DsaCacheSpec, IndexLayoutName } from './dsa-cache.ts'
import { type LayerFile, readLayerFile } from './layer-file.ts'
import { type DsaStage, dsaStages, type StepArgs } from './step-args.ts'

export interface RunLayerOptions {
  /** How latent rows are cached. Default `f32`. */
  readonly cache?: LatentLayoutName | undefined
  /** How indexer keys are cached, and what the indexer computes with. Default `f32`. */
  readonly indexer?: IndexLayoutName | undefined
  /** Attend to the layer's own selection (default) or to that of the file. */
  readonly selection?: 'own' | 'file' | undefined
  /** dtype of what passes from one projection to the next, see {@link DsaAttention.create}. Default `f32`. */
  readonly activations?: 'f32' | 'bf16' | undefined
  /** Rotate the indexer's queries and keys. Default false. */
  readonly hadamard?: boolean | undefined
  /** Keys each token attends to. Default: the file's. */
  readonly topk?: number | undefined
  /** Tokens of a step. Default: all in one. */
  readonly chunk?: number | undefined
  /** Tokens of a cache page. Default 64. */
  readonly pageSize?: number | undefined
  /** Return the indexer's scores as well; takes a second pass. Default false. */
  readonly scores?: boolean | undefined
  /** Called when a stage of a step has ended. */
  readonly onStage?: ((stage: DsaStage) => void) | undefined
}

export interface LayerReport {
  /** `device.explain()`. */
  readonly device: string
  readonly tokens: number
  /** Time of each stage, all steps together. */
  readonly stages: readonly StageTime[]
  /** What was attended to, against the file's; trivially the same with `selection: 'file'`. */
  readonly selection: SelectionReport
  readonly out: OutputReport
  /** f32 `[tokens, hidden]`: what the layer returned. */
  readonly result: Tensor<'f32'>
  /** The keys that each token attended to. */
  readonly selected: readonly (readonly number[])[]
  /** The keys that the file selects for it. */
  readonly stored: readonly (readonly number[])[]
  /** The indexer's scores of each token for the keys up to its own; with the option `scores`. */
  readonly scores?: readonly Float32Array[] | undefined
}

const known = [
  'cache',
  'indexer',
  'selection',
  'activations',
  'hadamard',
  'topk',
  'chunk',
  'pageSize',
  'scores',
  'onStage',
]

/**
 * Runs the layer of a file, in the form of `test/golden/hf_dsv32_layer.safetensors`, over its whole input.
 *
 * @throws FormatError for a file that is not of this form; OptionError | ValueError; MemoryError
 * @example const { selection, out } = await runLayer(device, parseSafetensors(bytes), { cache: 'packed656' })
 */
export async function runLayer(
  device: Device,
  file: SafetensorsFile,
  options: RunLayerOptions = {},
): Promise<LayerReport> {
  const c = new Contract('runLayer', options, known)
  const choice = c.choice('selection', options.selection ?? 'own', ['own', 'file'])
  const layer = readLayerFile(file, { indexTopk: options.topk, hadamard: options.hadamard })
  const tokens = layer.x.shape[0]!
  const chunk = c.integer('chunk', options.chunk ?? Math.max(1, tokens), 1)
  const pageSize = c.integer('pageSize', options.pageSize ?? 64, 1)
  const { cache: latent = 'f32', indexer: index = 'f32' } = options
  const blocks = Math.max(1, Math.ceil(tokens / pageSize))
  using attention = DsaAttention.create(device, layer.weights, layer.config, {
    rope: layer.rope,
    activations: options.activations,
  })
  const pass = { attention, layer, chunk, cache: { blocks, pageSize, latent, index } }

  const stored = storedPicks(layer)
  const { out, selected, stages } = await attendAll(pass, choice === 'file' ? stored : undefined, options.onStage)
  const strict = compareSelections(selected, stored)
  const wanted = options.scores === true || strict.identicalRows < strict.rows
  const scores = wanted ? await scoreAll(pass) : undefined
  return {
    device: device.explain(),
    tokens,
    stages,
    selection: scores === undefined ? strict : compareSelections(selected, stored, row => scores[row]!),
    out: compareOutputs(out, layer.out.floats()),
    result: tensor('f32', layer.out.shape, out),
    selected,
    stored,
    ...(options.scores === true && { scores }),
  }
}

/** The file's picks of each token that it can see, as many as the layer selects. */
function storedPicks({ topk, config }: LayerFile): number[][] {
  const [tokens, k] = topk.shape as [number, number]
  const codes = topk.codes()
  return Array.from({ length: tokens }, (_, t) =>
    [...codes.subarray(t * k, t * k + Math.min(k, config.indexTopk))].filter(key => key >= 0 && key <= t),
  )
}

/** What the passes over the input share. */
interface Pass {
  readonly attention: DsaAttention
  readonly layer: LayerFile
  readonly chunk: number
  readonly cache: DsaCacheSpec
}

/** The input in steps, each appended to one new sequence before the next is asked for. */
function* stepsOf({
  attention,
  layer: { x },
  chunk,
  cache: spec,
}: Pass): Generator<StepArgs & { readonly start: number }> {
  const tokens = x.shape[0]!
  using cache = attention.createCache(spec)
  const id = cache.addSequence()
  for (let start = 0; start < tokens; start += chunk) {
    const count = Math.min(chunk, tokens - start)
    yield { start, x: x.narrow(0, start, count), cache, sequences: [{ id, tokens: count }] }
  }
}

interface Attended {
  readonly out: Float32Array
  readonly selected: number[][]
  readonly stages: StageTime[]
}

/** Outputs, the keys that each token attended to, and the time it took. */
async function attendAll(pass: Pass, given: number[][] | undefined, onStage: StepArgs['onStage']): Promise<Attended> {
  const { attention, layer } = pass
  const out = new Float32Array(layer.out.size)
  const selected: number[][] = []
  const times = new Map<DsaStage, number>(dsaStages.map(stage => [stage, 0]))
  for (const { start, ...args } of stepsOf(pass)) {
    const rows = given?.slice(start, start + args.x.shape[0]!)
    const choice = rows === undefined ? { keep: ['selection'] as const } : { selection: selectionOf(rows) }
    const step = await attention.profile({ ...args, ...choice, onStage })
    for (const { name, ms } of step.stages) times.set(name, times.get(name)! + ms)
    out.set((await step.out.read()).floats(), start * layer.config.hidden)
    selected.push(...(rows ?? picksOf(await step.selection!.read())))
    step.out.dispose()
    step.selection?.dispose()
  }
  return { out, selected, stages: [...times].map(([name, ms]) => ({ name, ms })) }
}

/** The indexer's scores of each token for the keys up to its own. */
async function scoreAll(pass: Pass): Promise<Float32Array[]> {
  const rows: Float32Array[] = []
  for (const { start, ...args } of stepsOf(pass)) {
    const { out, scores } = pass.attention.step({ ...args, keep: ['scores'] })
    const { shape, data } = await scores!.read()
    for (let t = 0; t < shape[0]!; t++) rows.push(data.slice(t * shape[1]!, t * shape[1]! + start + t + 1))
    out.dispose()
    scores!.dispose()
  }
  return rows
}

/** Lists as a tensor, filled up with -1. */
function selectionOf(rows: readonly (readonly number[])[]): Indices<'logical'> {
  const k = rows.reduce((most, row) => Math.max(most, row.length), 1)
  const codes = new Int32Array(rows.length * k).fill(-1)
  for (const [t, row] of rows.entries()) codes.set(row, t * k)
  return logical(tensor('i32', [rows.length, k], codes))
}

function picksOf(selection: Tensor<'i32'>): number[][] {
  const [tokens, k] = selection.shape as [number, number]
  const codes = selection.codes()
  return Array.from({ length: tokens }, (_, t) => [...codes.subarray(t * k, (t + 1) * k)].filter(key => key >= 0))
}
