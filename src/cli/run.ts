/** `sparse-mla run`: the attention layer of a file on a device, against the results in the file. */

import { readFileSync, writeFileSync } from 'node:fs'
import { basename } from 'node:path'
import { type LayerMeasure, layerLimits, layerMeasures, withinLimit } from '../conformance/layer-limits.ts'
import { type LayerReport, type RunLayerOptions, runLayer } from '../model/run-layer.ts'
import { dsaStages } from '../model/step-args.ts'
import { parseSafetensors, type SafetensorsFile, writeSafetensors } from '../tensor/safetensors.ts'
import { tensor } from '../tensor/tensor.ts'
import { type DeviceOptions, openNamed } from './devices.ts'
import { writePictures } from './plot-run.ts'
import { startProgress } from './progress.ts'
import { digits, textTable } from './table.ts'

export interface RunOptions
  extends DeviceOptions,
    Pick<RunLayerOptions, 'cache' | 'indexer' | 'selection' | 'activations' | 'hadamard' | 'topk' | 'chunk'> {
  /** File that receives `out` and `selection`. */
  readonly save?: string | undefined
  /** File that receives the pictures: an SVG, and an HTML page beside it. */
  readonly plot?: string | undefined
}

/** What `run --json` prints. */
export interface RunReport {
  readonly device: string
  readonly stages: readonly { readonly name: string; readonly ms: number }[]
  readonly selection: { readonly rows: number; readonly identicalRows: number; readonly overlap: number }
  readonly out: { readonly maxAbs: number; readonly maxRelToPeak: number; readonly cosine: number }
}

export interface RunOutcome {
  readonly report: RunReport
  /** Empty where the file's results are for another top-k. */
  readonly measures: readonly LayerMeasure[]
  readonly agrees: boolean
  readonly text: string
}

/** @throws what `runLayer` throws, and the errors of `node:fs` */
export async function run(path: string, options: RunOptions): Promise<RunOutcome> {
  const file = parseSafetensors(readFileSync(path), path)
  await using device = await openNamed(options)
  const layer = await runWithProgress(file, options, (layerOptions: RunLayerOptions) =>
    runLayer(device, file, layerOptions),
  )
  const measures = isComparable(file, options) ? layerMeasures(layer, layerLimits(options)) : []
  const title = `${basename(path)}: ${layer.tokens} tokens, ${describe(options)}`
  const written = [
    ...(options.save === undefined ? [] : [saveResults(options.save, layer)]),
    ...(options.plot === undefined ? [] : writePictures(options.plot, title, layer)),
  ]
  const { rows, identicalRows, overlap } = layer.selection
  const report = {
    device: device.name,
    stages: layer.stages,
    selection: { rows, identicalRows, overlap },
    out: layer.out,
  }
  const text = runText(title, layer, measures, written)
  return { report, measures, agrees: measures.every(withinLimit), text }
}

async function runWithProgress(
  file: SafetensorsFile,
  { plot, ...options }: RunOptions,
  start: (options: RunLayerOptions) => Promise<LayerReport>,
): Promise<LayerReport> {
  const { cache, indexer, selection, activations, hadamard, topk, chunk } = options
  const tokens = file.has('x') ? file.info('x').shape[0]! : 0
  using progress = startProgress(dsaStages.length * Math.ceil(tokens / (chunk ?? Math.max(1, tokens))))
  let done = 0
  const onStage = (stage: string): void => progress.at(++done, stage)
  const scores = plot !== undefined
  return start({ cache, indexer, selection, activations, hadamard, topk, chunk, scores, onStage })
}

/** The file's results hold for its own top-k only. */
const isComparable = (file: SafetensorsFile, { topk }: RunOptions): boolean =>
  topk === undefined || String(topk) === file.metadata.index_topk

const describe = ({ cache = 'f32', indexer = 'f32', selection = 'own', ...options }: RunOptions): string =>
  [
    `${cache} cache`,
    selection === 'file' ? 'the keys of the file' : `${indexer} indexer`,
    ...(options.activations === 'bf16' ? ['bf16 activations'] : []),
    ...(options.hadamard === true ? ['Hadamard'] : []),
    ...(options.topk === undefined ? [] : [`top ${options.topk}`]),
    ...(options.chunk === undefined ? [] : [`chunks of ${options.chunk}`]),
  ].join(', ')

/** @returns what was written */
function saveResults(path: string, { result, selected }: LayerReport): string {
  const k = selected.reduce((most, keys) => Math.max(most, keys.length), 0)
  const codes = new Int32Array(selected.length * k).fill(-1)
  for (const [t, keys] of selected.entries()) codes.set(keys, t * k)
  writeFileSync(path, writeSafetensors({ out: result, selection: tensor('i32', [selected.length, k], codes) }))
  return path
}

function runText(
  title: string,
  { device, stages, selection, out }: LayerReport,
  measures: readonly LayerMeasure[],
  written: readonly string[],
): string {
  const total = stages.reduce((sum, { ms }) => sum + ms, 0)
  const rows = [...stages, { name: 'all stages', ms: total }].map(({ name, ms }) => [
    name,
    digits(ms),
    `${((100 * ms) / total).toFixed(1)} %`,
  ])
  const { rows: tokens, identicalRows, tiedRows, overlap } = selection
  const ties = tiedRows === 0 ? '' : ` (${tiedRows} of them up to ties)`
  return [
    title,
    device,
    '',
    textTable({ head: ['stage', 'ms', 'share'], align: 'lrr', rows }),
    '',
    `selection   ${identicalRows} of ${tokens} tokens have the keys of the file${ties}; ${(100 * overlap).toFixed(3)} % of its keys`,
    `out         largest error ${digits(out.maxAbs)}, ${digits(out.maxRelToPeak)} of the peak; cosine ${out.cosine.toFixed(9)}`,
    ...written.map(path => `wrote       ${path}`),
    '',
    verdict(measures),
  ].join('\n')
}

function verdict(measures: readonly LayerMeasure[]): string {
  if (measures.length === 0) return 'not judged: the results in the file are for another top-k'
  const beyond = measures.filter(measure => !withinLimit(measure))
  if (beyond.length === 0) return 'agrees with the file'
  const parts = beyond.map(({ name, value, limit }) => `${name} ${digits(value)}, at most ${digits(limit)}`)
  return `disagrees with the file: ${parts.join('; ')}`
}
