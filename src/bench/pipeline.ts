/**
 * A whole attention layer, one step of it: every stage from x to the output projection, on random weights and a random
 * cache. On a card the step is recorded once and replayed.
 */

import type { CudaDevice } from '../cuda/device.ts'
import type { CudaGraph } from '../cuda/graph.ts'
import type { Device } from '../device.ts'
import { dtypeInfo } from '../dtypes/dtype.ts'
import type { DsaConfig } from '../model/config.ts'
import { DsaAttention } from '../model/dsa-attention.ts'
import { type IndexLayoutName, indexLayout } from '../model/dsa-cache.ts'
import { type DsaStage, dsaStages } from '../model/step-args.ts'
import { StepFrame } from '../model/step-frame.ts'
import type { DsaWeights, Projection } from '../model/weights.ts'
import { type LatentLayoutName, latentLayouts } from '../tensor/cache-layout.ts'
import type { DeviceTensor } from '../tensor/device-tensor.ts'
import { indexRows, latentRows } from '../tensor/host-rows.ts'
import type { PagedCache } from '../tensor/paged-cache.ts'
import { allocIndexPool, allocLatentPool } from '../tensor/pool-alloc.ts'
import { type Tensor, zeros } from '../tensor/tensor.ts'
import type { Runner, StageMicroseconds } from './bench.ts'
import { repeated } from './data.ts'
import { median } from './timing.ts'

export interface PipelineCase {
  readonly config: DsaConfig
  readonly sequences: number
  /** New tokens of each sequence. */
  readonly queries: number
  /** Keys of each sequence, the new ones included. */
  readonly keys: number
  readonly latent: LatentLayoutName
  readonly index: IndexLayoutName
}

const pageSize = 64
/** Pages that hold data of their own; the others repeat them. */
const drawnPages = 64

/** bf16 weights with rows of length about 1. */
export function randomWeights(c: DsaConfig): DsaWeights {
  let seed = 1
  const plain = (shape: readonly number[]): Tensor<'bf16'> =>
    repeated('bf16', shape, seed++, shape.length === 1 ? 1 : shape.at(-1)! ** -0.5)
  const linear = (outputs: number, inputs: number): Projection => ({ weight: plain([outputs, inputs]) })
  return {
    qA: linear(c.qLoraRank, c.hidden),
    qANorm: plain([c.qLoraRank]),
    qB: linear(c.heads * (c.nope + c.rope), c.qLoraRank),
    kvA: linear(c.kvLoraRank + c.rope, c.hidden),
    kvANorm: plain([c.kvLoraRank]),
    wUk: plain([c.heads, c.kvLoraRank, c.nope]),
    wUv: plain([c.heads, c.v, c.kvLoraRank]),
    o: linear(c.hidden, c.heads * c.v),
    indexQ: linear(c.indexHeads * c.indexDim, c.qLoraRank),
    indexK: linear(c.indexDim, c.hidden),
    indexKNorm: { weight: plain([c.indexDim]), bias: plain([c.indexDim]) },
    indexWeights: linear(c.indexHeads, c.hidden),
  }
}

/** Rows of normal values into all pages of a cache on a device. */
function fillCache(device: Device, cache: PagedCache, { config, latent, index }: PipelineCase): void {
  const { blocks } = cache.pages
  const extents = { blocks: Math.min(blocks, drawnPages), layers: 1, pageSize }
  const [latents, keys] = [
    allocLatentPool(latentLayouts[latent], extents, zeros),
    allocIndexPool(indexLayout(index, config.indexDim), extents, zeros),
  ]
  for (const [rows, width] of [
    [latentRows(latents), config.kvLoraRank + config.rope],
    [indexRows(keys), config.indexDim],
  ] as const) {
    const values = repeated('f32', [extents.blocks * pageSize, width], width).data
    for (let slot = 0; slot < rows.slots; slot++) rows.write(slot, values.subarray(slot * width, (slot + 1) * width))
  }
  const targets = [cache.latent(0), cache.index(0)]
  for (const [i, pool] of [latents, keys].entries())
    for (const part of ['values', 'scales'] as const) {
      const [from, to] = [pool[part], targets[i]![part]]
      if (from === undefined) continue
      for (let block = 0; block < blocks; block += extents.blocks) {
        const count = Math.min(extents.blocks, blocks - block)
        device.write((to as DeviceTensor).narrow(0, block, count), (from as Tensor).narrow(0, 0, count))
      }
    }
}

interface Prepared extends Disposable {
  readonly attention: DsaAttention
  readonly frame: StepFrame
  readonly x: DeviceTensor<'bf16'>
  begin(): void
  step(until?: DsaStage): void
}

function prepare(device: Device, one: PipelineCase): Prepared {
  const { config, sequences, queries, keys, latent, index } = one
  const attention = DsaAttention.create(device, randomWeights(config), config, { activations: 'bf16' })
  const blocks = sequences * Math.ceil(keys / pageSize)
  const cache = attention.createCache({ blocks, pageSize, latent, index })
  fillCache(device, cache, one)
  const counts = queries <= 8 ? { queries } : { tokens: sequences * queries }
  const frame = new StepFrame(device, { cache, sequences, ...counts, maxKeys: keys })
  const x = device.upload(repeated('bf16', [sequences * queries, config.hidden], 99))
  const ids = Array.from({ length: sequences }, () => cache.addSequence())
  cache.pages.appendBatch(ids.map(id => ({ id, tokens: keys - queries })))
  const requests = ids.map(id => ({ id, tokens: queries }))
  const stop = new Error('the last stage wanted')
  return {
    attention,
    frame,
    x,
    begin: () => frame.begin(requests).undo(),
    step(until) {
      const onStage = (stage: DsaStage): void => {
        if (stage === until) throw stop
      }
      try {
        attention.step({ x, cache, sequences: frame, onStage }).out.dispose()
      } catch (error) {
        if (error !== stop) throw error
      }
    },
    [Symbol.dispose]() {
      for (const part of [x, frame, cache, attention]) part[Symbol.dispose]()
    },
  }
}

/** Replays of a graph that one sample is the mean of. */
const replaysOf = (ms: number): number => Math.max(1, Math.min(100, Math.round(10 / ms)))

/** A card replays a recorded step; other devices queue it anew each time. */
export function pipelineRunner(device: Device, one: PipelineCase): Runner {
  const prepared = prepare(device, one)
  prepared.begin()
  if ('capture' in device) return cardPipeline(device as CudaDevice, prepared)
  return {
    sample: () => device.time(() => prepared.step()),
    async stages() {
      const { attention, frame, x } = prepared
      const { out, stages } = await attention.profile({ x, cache: frame.cache, sequences: frame })
      out.dispose()
      return stages.map(({ name, ms }) => ({ name, us: 1000 * ms }))
    },
    [Symbol.dispose]: () => prepared[Symbol.dispose](),
  }
}

function cardPipeline(device: CudaDevice, prepared: Prepared): Runner {
  let whole: CudaGraph | undefined
  const record = (until?: DsaStage): CudaGraph => device.capture(() => prepared.step(until))
  const timeOf = async (graph: CudaGraph): Promise<number> => {
    const ms = await device.time(() => graph.replay())
    const replays = replaysOf(ms)
    const total = await device.time(() => {
      for (let i = 0; i < replays; i++) graph.replay()
    })
    return total / replays
  }
  return {
    async sample() {
      if (whole === undefined) prepared.step()
      whole ??= record()
      return timeOf(whole)
    },
    /** Each stage is the time up to its end less that up to the end of the one before. */
    async stages() {
      const stages: StageMicroseconds[] = []
      let before = 0
      for (const name of dsaStages) {
        using graph = record(name)
        const times: number[] = []
        for (let i = 0; i < 5; i++) times.push(await timeOf(graph))
        const until = 1000 * median(times)
        stages.push({ name, us: until - before })
        before = until
      }
      return stages
    },
    async hostMicroseconds() {
      const times: number[] = []
      for (let i = 0; i < 20; i++) {
        await device.sync()
        const start = performance.now()
        prepared.begin()
        whole!.replay()
        times.push(performance.now() - start)
      }
      return 1000 * median(times)
    },
    [Symbol.dispose]() {
      whole?.dispose()
      prepared[Symbol.dispose]()
    },
  }
}

/** Floating-point operations of a step: projections, scores of all visible keys, attention over the selected ones. */
export function pipelineFlops({ config: c, sequences, queries, keys }: PipelineCase): number {
  const tokens = sequences * queries
  const projections =
    c.hidden * (c.qLoraRank + c.kvLoraRank + c.rope + c.indexDim + c.indexHeads) +
    c.qLoraRank * (c.heads * (c.nope + c.rope) + c.indexHeads * c.indexDim) +
    c.heads * c.kvLoraRank * (c.nope + c.v) +
    c.heads * c.v * c.hidden
  const scores = tokens * (keys - (queries - 1) / 2) * c.indexHeads * c.indexDim
  const attention = tokens * Math.min(c.indexTopk, keys) * c.heads * (2 * c.kvLoraRank + c.rope)
  return 2 * (tokens * projections + scores + attention)
}

/** Bytes of the weights in bf16. */
export const weightBytes = (c: DsaConfig): number =>
  dtypeInfo.bf16.bytes *
  (c.hidden * (c.qLoraRank + c.kvLoraRank + c.rope + c.indexDim + c.indexHeads + c.heads * c.v) +
    c.qLoraRank * (c.heads * (c.nope + c.rope) + c.indexHeads * c.indexDim) +
    c.heads * c.kvLoraRank * (c.nope + c.v))
