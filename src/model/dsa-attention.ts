/** The attention layer of DeepSeek-V3.2: multi-head latent attention over the keys that a lightning indexer selects. */

import type { Device } from '../device.ts'
import { DisposedError } from '../errors.ts'
import { Contract } from '../ops/contract.ts'
import type { PagedCache } from '../tensor/paged-cache.ts'
import { checkDsaConfig, type DsaConfig } from './config.ts'
import { type DeviceWeights, uploadWeights } from './device-weights.ts'
import { attend, select, slotsOf } from './dsa-attend.ts'
import { createDsaCache, type DsaCacheSpec } from './dsa-cache.ts'
import { prepareKeys, prepareQueries } from './dsa-prepare.ts'
import { headContext, latentQueries, projectInput, projectOut, projectQueries, type Stage } from './dsa-stages.ts'
import { RopePositions } from './rope-positions.ts'
import { type RopeTable, yarnSoftmaxScale } from './rope-table.ts'
import {
  type CheckedStep,
  checkStep,
  type DsaStage,
  type StepArgs,
  type StepOutput,
  type StepResult,
} from './step-args.ts'
import { beginStep, StepBatch } from './step-batch.ts'
import { StepFrame } from './step-frame.ts'
import { type StepTensors, stepTensors, stepWords } from './step-tensors.ts'
import { Temporaries } from './temporaries.ts'
import type { DsaWeights } from './weights.ts'

export interface DsaOptions {
  /** Tables in place of those that `ropeTheta` and `yarn` give: `[positions, 32]`, or `[positions, 64]` with equal halves. */
  readonly rope?: RopeTable | undefined
  /**
   * dtype of what passes from one projection to the next. `bf16`: as models of bf16 compute, on tensor cores where there are
   * any; e4m3 and f32 weights are rounded to bf16 when they are uploaded. Default `f32`: exact, slow.
   */
  readonly activations?: 'f32' | 'bf16' | undefined
}

/** Milliseconds of a stage, from an idle device to an idle device. */
export interface StageTime {
  readonly name: DsaStage
  readonly ms: number
}

/** One layer with its weights on a device. Dispose it; the caches it makes are the caller's. */
export class DsaAttention implements Disposable {
  readonly device: Device
  readonly config: DsaConfig
  /** Softmax scale, natural-log units: (nope + 64)^-½, with YaRN times its magnitude squared. */
  readonly scale: number
  private readonly activations: 'f32' | 'bf16'
  private readonly owned = new Temporaries()
  private readonly weights: DeviceWeights
  private readonly rope: RopePositions
  private disposed = false

  private constructor(device: Device, weights: DsaWeights, config: DsaConfig, options: DsaOptions) {
    checkDsaConfig(config)
    const c = new Contract('DsaAttention.create', options, ['rope', 'activations'])
    const { rope } = options
    this.activations = c.choice('activations', options.activations ?? 'f32', ['f32', 'bf16'])
    this.device = device
    this.config = config
    this.scale = yarnSoftmaxScale(config.nope, config.yarn)
    this.rope = this.owned.add(new RopePositions(device, config, rope))
    try {
      this.weights = uploadWeights(device, weights, this.activations, this.owned)
    } catch (error) {
      this.dispose()
      throw error
    }
  }

  /**
   * Uploads the weights of a layer.
   *
   * @throws OptionError | ValueError for a config that is incomplete; ShapeError for other rope tables; MemoryError
   * @example const attention = DsaAttention.create(device, weights, config)
   */
  static create(device: Device, weights: DsaWeights, config: DsaConfig, options: DsaOptions = {}): DsaAttention {
    return new DsaAttention(device, weights, config, options)
  }

  /** A cache on the layer's device for `blocks * pageSize` tokens. @throws OptionError | ValueError | MemoryError */
  createCache(spec: DsaCacheSpec): PagedCache {
    this.assertLive('createCache')
    return createDsaCache(this.device, this.config, spec)
  }

  /** Makes the rope tables for sequences of up to so many tokens: before a step is recorded. @throws ValueError | MemoryError */
  reserve(positions: number): void {
    this.assertLive('reserve')
    this.rope.upTo(positions)
  }

  /**
   * Appends the new tokens of some sequences to the cache and attends from each of them: prefill, a chunk of it, or decode.
   * However a sequence is cut into steps, its tokens get the same result; the same bits with `batchInvariant`.
   *
   * Enqueues and returns; `await out.read()` synchronises. When it throws, the sequences are as before.
   *
   * @throws MemoryError when the cache or the device is full; before anything is launched ShapeError | DtypeError |
   *   ValueError | OptionError | IndexSpaceError | DeviceError | DisposedError
   * @example const { out } = attention.step({ x, cache, sequences: [{ id, tokens: 1 }] })
   */
  step(args: StepArgs): StepResult {
    const run = this.run(args)
    try {
      for (;;) {
        const next = run.next()
        if (next.done) return next.value
        args.onStage?.(next.value)
      }
    } finally {
      run.return(undefined as never)
    }
  }

  /** {@link step}, waiting for the device after each stage. */
  async profile(args: StepArgs): Promise<StepResult & { readonly stages: readonly StageTime[] }> {
    const stages: StageTime[] = []
    const run = this.run(args)
    try {
      await this.device.sync()
      for (let start = performance.now(); ; start = performance.now()) {
        const next = run.next()
        if (next.done) return { ...next.value, stages }
        await this.device.sync().catch((error: unknown) => void run.throw(error))
        stages.push({ name: next.value, ms: performance.now() - start })
        args.onStage?.(next.value)
      }
    } finally {
      run.return(undefined as never)
    }
  }

  /** Gives the weights back. A second call does nothing. */
  dispose(): void {
    this.disposed = true
    this.owned[Symbol.dispose]()
  }

  [Symbol.dispose](): void {
    this.dispose()
  }

  private assertLive(method: string): void {
    if (!this.disposed) return
    const allowed = 'a layer not yet disposed'
    throw new DisposedError({ where: `DsaAttention.${method}`, argument: 'attention', given: 'disposed', allowed })
  }

  /** Checks a step, takes its pages, and yields the name of each stage once it is queued. */
  private *run(args: StepArgs): Generator<DsaStage, StepResult, void> {
    this.assertLive('step')
    const checked = checkStep(this.device, this.config, args)
    const { cache, sequences } = args
    if (sequences instanceof StepFrame)
      return yield* this.stages(this.stageOf(sequences, sequences.tensors, checked), checked)
    const shared = sequences instanceof StepBatch
    const batch = shared ? sequences : beginStep(cache, sequences)
    let done = false
    try {
      using words = this.device.upload(stepWords(batch, batch))
      const result = yield* this.stages(this.stageOf(batch, stepTensors(words, batch), checked), checked)
      done = true
      return result
    } finally {
      if (!done && !shared) batch.undo()
    }
  }

  private stageOf(
    { cache, tokens, queries, longest }: StepBatch | StepFrame,
    tensors: StepTensors,
    { batchInvariant }: CheckedStep,
  ): Stage {
    const { device, config, weights, activations } = this
    const batch = { cache, tokens, queries, longest, ...tensors }
    return { device, config, weights, batch, tables: this.rope.upTo(longest), activations, batchInvariant }
  }

  private *stages(stage: Stage, checked: CheckedStep): Generator<DsaStage, StepResult, void> {
    const { x, latent, index, given, keep, qDtype } = checked
    using results = new Temporaries()
    using temporaries = new Temporaries()
    const owner = (output: StepOutput): Temporaries => (keep.includes(output) ? results : temporaries)
    const asked = given === undefined

    const projected = projectInput(stage, x, index !== undefined, temporaries)
    const residual = prepareKeys(stage, projected, { latent, index: index?.pool }, temporaries)
    yield 'kv_proj'
    const queries = projectQueries(stage, residual, asked, temporaries)
    const q = temporaries.add(latentQueries(stage, queries.attention, qDtype))
    yield 'q_proj'
    const wanted = { dtype: index?.dtype, owner: temporaries }
    const scored = prepareQueries(stage, queries, projected.headWeights, q, wanted)
    yield 'indexer'
    const selected = scored && select(stage, scored, index!.pool, owner, { temporaries, keep })
    const indices = selected?.slots ?? temporaries.add(slotsOf(stage, given!))
    yield 'select'
    const attended = temporaries.add(attend(stage, { q, cache: latent, indices, scale: this.scale }))
    yield 'attend'
    const context = owner('context').add(headContext(stage, attended))
    const out = results.add(projectOut(stage, context))
    yield 'out_proj'
    results.release()
    return {
      out,
      ...(keep.includes('context') && { context }),
      ...(keep.includes('selection') && { selection: selected!.selection! }),
      ...(keep.includes('scores') && { scores: selected!.scores! }),
    }
  }
}
