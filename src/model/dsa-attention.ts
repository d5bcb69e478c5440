/** The attention layer of DeepSeek-V3.2: multi-head latent attention over the keys that a lightning indexer selects. */

import type { Device } from '../device.ts'
import { DisposedError } from '../errors.ts'
import type { PagedCache } from '../tensor/paged-cache.ts'
import { checkDsaConfig, type DsaConfig } from './config.ts'
import { type DeviceWeights, uploadWeights } from './device-weights.ts'
import { attend, select, slotsOf } from './dsa-attend.ts'
import { createDsaCache, type DsaCacheSpec } from './dsa-cache.ts'
import {
  appendIndexKeys,
  appendLatents,
  headContext,
  indexQueries,
  latentQueries,
  projectOut,
  queryResidual,
  type Stage,
} from './dsa-stages.ts'
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
import { Temporaries } from './temporaries.ts'
import type { DsaWeights } from './weights.ts'

export interface DsaOptions {
  /** Tables in place of those that `ropeTheta` and `yarn` give: `[positions, 32]`, or `[positions, 64]` with equal halves. */
  readonly rope?: RopeTable | undefined
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
  private readonly owned = new Temporaries()
  private readonly weights: DeviceWeights
  private readonly rope: RopePositions
  private disposed = false

  private constructor(device: Device, weights: DsaWeights, config: DsaConfig, { rope }: DsaOptions) {
    checkDsaConfig(config)
    this.device = device
    this.config = config
    this.scale = yarnSoftmaxScale(config.nope, config.yarn)
    this.rope = this.owned.add(new RopePositions(device, config, rope))
    try {
      this.weights = uploadWeights(device, weights, this.owned)
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
    const shared = sequences instanceof StepBatch
    const batch = shared ? sequences : beginStep(cache, sequences)
    let done = false
    try {
      const { device, config, weights } = this
      const result = yield* this.stages(
        { device, config, weights, batch, tables: this.rope.upTo(batch.longest) },
        checked,
      )
      done = true
      return result
    } finally {
      if (!done && !shared) batch.undo()
    }
  }

  private *stages(stage: Stage, checked: CheckedStep): Generator<DsaStage, StepResult, void> {
    const { x, latent, index, given, keep, qDtype, batchInvariant } = checked
    using results = new Temporaries()
    using temporaries = new Temporaries()
    const owner = (output: StepOutput): Temporaries => (keep.includes(output) ? results : temporaries)

    const residual = temporaries.add(queryResidual(stage, x))
    const q = temporaries.add(latentQueries(stage, residual, qDtype))
    yield 'q_proj'
    appendLatents(stage, x, latent)
    yield 'kv_proj'
    if (index !== undefined) appendIndexKeys(stage, x, index.pool)
    const queries = given === undefined ? indexQueries(stage, { x, residual }, index!.dtype, temporaries) : undefined
    yield 'indexer'
    const selected = queries && select(stage, queries, index!.pool, owner, keep.includes('scores'))
    const indices = temporaries.add(slotsOf(stage, selected?.selection ?? given!))
    yield 'select'
    const attended = temporaries.add(attend(stage, { q, cache: latent, indices, scale: this.scale }, batchInvariant))
    yield 'attend'
    const context = owner('context').add(headContext(stage, attended))
    const out = results.add(projectOut(stage, context))
    yield 'out_proj'
    results.release()
    return {
      out,
      ...(keep.includes('context') && { context }),
      ...(keep.includes('selection') && { selection: selected!.selection }),
      ...(keep.includes('scores') && { scores: selected!.scores! }),
    }
  }
}
