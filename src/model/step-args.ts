/** Arguments and results of a step of the attention layer, and everything that is checked before it starts. */

import type { Device } from '../device.ts'
import { DeviceError, OptionError, ShapeError, ValueError } from '../errors.ts'
import { Contract } from '../ops/contract.ts'
import type { CacheDtype } from '../tensor/cache-layout.ts'
import type { IndexPool, LatentPool } from '../tensor/cache-pool.ts'
import { type AnyTensor, DeviceTensor } from '../tensor/device-tensor.ts'
import type { AppendRequest } from '../tensor/page-table.ts'
import { PagedCache } from '../tensor/paged-cache.ts'
import type { Indices } from '../tensor/spaces.ts'
import { Tensor } from '../tensor/tensor.ts'
import type { DsaConfig } from './config.ts'
import { StepBatch } from './step-batch.ts'
import { StepFrame } from './step-frame.ts'

/** Stages of a step, in their order; `kv_proj` is all projections of x and the new rows of the caches. */
export const dsaStages = ['kv_proj', 'q_proj', 'indexer', 'select', 'attend', 'out_proj'] as const

export type DsaStage = (typeof dsaStages)[number]

/** What a step can return besides `out`. */
export type StepOutput = 'selection' | 'context' | 'scores'

export interface StepArgs {
  /** `[tokens, hidden]` f32 or bf16, any token stride: the sequences' new tokens one after the other. */
  readonly x: AnyTensor<'f32' | 'bf16'>
  /** Made by {@link DsaAttention.createCache}, or alike. The new tokens are appended. */
  readonly cache: PagedCache
  /** Layer of the cache. Default 0. */
  readonly layer?: number | undefined
  /**
   * New tokens of each sequence; in a stack of layers the {@link StepBatch} that all its layers share; where the step is
   * recorded, the {@link StepFrame} that it reads.
   */
  readonly sequences: readonly AppendRequest[] | StepBatch | StepFrame
  /**
   * Attend to these positions `[tokens, k]` instead of asking the indexer; negative entries are ignored. No entry may lie
   * after its token: refused on the host, the caller's duty on a device.
   */
  readonly selection?: Indices<'logical'> | undefined
  /**
   * A token's bits depend neither on the other tokens of the step nor on how its sequence was cut into steps. Without it,
   * steps of up to 8 tokens a sequence share a token's keys out among the workers. Default false.
   */
  readonly batchInvariant?: boolean | undefined
  /** Results to keep besides `out`. `scores` stores a matrix of tokens times keys. */
  readonly keep?: readonly StepOutput[] | undefined
  /** Called when a stage is queued; by `profile`, when it has ended. */
  readonly onStage?: ((stage: DsaStage) => void) | undefined
}

/** Positions on a device. */
export type LogicalIndices = DeviceTensor<'i32'> & { readonly space: 'logical' }

/** Tensors on the device that belong to the caller. */
export interface StepResult {
  /** f32 `[tokens, hidden]`. */
  readonly out: DeviceTensor<'f32'>
  /** The indexer's picks, i32 `[tokens, indexTopk]`: positions ascending, then -1. */
  readonly selection?: LogicalIndices
  /** `[tokens, heads, v]` in the dtype of the activations: what `o_proj` projects. */
  readonly context?: DeviceTensor<'f32' | 'bf16'>
  /** The indexer's scores, f32 `[tokens, keys]`, -inf after the token. */
  readonly scores?: DeviceTensor<'f32'>
}

/** A checked step. */
export interface CheckedStep {
  readonly x: AnyTensor<'f32' | 'bf16'>
  readonly latent: LatentPool
  /** dtype of the queries that meet the latent rows. */
  readonly qDtype: 'f32' | 'bf16'
  readonly index: { readonly pool: IndexPool; readonly dtype: CacheDtype } | undefined
  readonly given: Indices<'logical'> | undefined
  readonly keep: readonly StepOutput[]
  readonly batchInvariant: boolean
}

const where = 'DsaAttention.step'
const known = ['x', 'cache', 'layer', 'sequences', 'selection', 'batchInvariant', 'keep', 'onStage']
const outputs: readonly StepOutput[] = ['selection', 'context', 'scores']

/** @throws ShapeError | DtypeError | ValueError | OptionError | IndexSpaceError | DeviceError | DisposedError */
export function checkStep(device: Device, config: DsaConfig, args: StepArgs): CheckedStep {
  const c = new Contract(where, args, known)
  const { cache, sequences, selection, keep = [] } = args
  if (!(cache instanceof PagedCache))
    throw new OptionError({ where, argument: 'cache', given: cache ?? 'missing', allowed: 'a PagedCache' })
  const x = c.tensor('x', args.x, { dtypes: ['f32', 'bf16'], shape: ['tokens', config.hidden] })
  checkSequences(cache, sequences, c.dim('tokens'))
  for (const output of keep) c.choice('keep', output, selection === undefined ? outputs : ['context'])
  const { layer = 0 } = args
  const latent = cache.latent(layer)
  checkDevice(device, 'cache', latent.values)
  const width = config.kvLoraRank + config.rope
  if (latent.format === 'plain' && latent.values.shape[3] !== width)
    throw new ShapeError({ where, argument: 'cache', given: [...latent.values.shape], allowed: `rows of ${width}` })
  if (selection !== undefined) checkSelection(c, device, selection, cache, sequences)
  return {
    x,
    latent,
    qDtype: latent.values.dtype === 'f32' ? 'f32' : 'bf16',
    index: checkIndex(cache, layer, config, selection !== undefined),
    given: selection,
    keep,
    batchInvariant: c.flag('batchInvariant', args.batchInvariant, false),
  }
}

function checkSequences(cache: PagedCache, sequences: StepArgs['sequences'], tokens: number): void {
  const made = sequences instanceof StepBatch || sequences instanceof StepFrame
  if (made && sequences.cache !== cache)
    throw new OptionError({
      where,
      argument: 'sequences',
      given: 'a step of another cache',
      allowed: 'one of this cache',
    })
  if (!made && !Array.isArray(sequences))
    throw new OptionError({
      where,
      argument: 'sequences',
      given: sequences ?? 'missing',
      allowed: 'a list of { id, tokens }',
    })
  const total = made ? sequences.tokens : sequences.reduce((sum, s) => sum + s.tokens, 0)
  if (total !== tokens)
    throw new ShapeError({ where, argument: 'x', given: `${tokens} tokens`, allowed: `${total}, as sequences have` })
}

function checkDevice(device: Device, argument: string, t: AnyTensor): void {
  if (t instanceof DeviceTensor && t.device === device) return
  throw new DeviceError({
    where,
    argument,
    given: `on ${t instanceof DeviceTensor ? t.device.name : 'the host'}`,
    allowed: `a tensor of the layer's device ${device.name}`,
  })
}

function checkIndex(cache: PagedCache, layer: number, config: DsaConfig, given: boolean): CheckedStep['index'] {
  if (!cache.hasIndex && given) return undefined
  const pool = cache.index(layer)
  if (pool.depth !== config.indexDim)
    throw new ShapeError({ where, argument: 'cache', given: `keys of ${pool.depth}`, allowed: `${config.indexDim}` })
  return { pool, dtype: pool.format === 'planar' ? 'e4m3' : (pool.values.dtype as CacheDtype) }
}

/** A selection on the host must not look ahead. */
function checkSelection(
  c: Contract,
  device: Device,
  selection: Indices<'logical'>,
  cache: PagedCache,
  sequences: StepArgs['sequences'],
): void {
  c.tensor('selection', selection, { dtypes: ['i32', 'u32'], shape: ['tokens', 'k'], space: 'logical' })
  if (!(selection instanceof Tensor)) {
    checkDevice(device, 'selection', selection)
    return
  }
  const k = c.dim('k')
  const entries = selection.codes()
  let token = 0
  for (const position of positions(cache, sequences)) {
    for (const entry of entries.subarray(token * k, (token + 1) * k))
      if ((entry | 0) > position)
        throw new ValueError({
          where,
          argument: `selection[${token}]`,
          given: entry,
          allowed: `positions up to the token's own, ${position}`,
        })
    token++
  }
}

/** Position of each new token; in a frame the last that it may have. */
function* positions(cache: PagedCache, sequences: StepArgs['sequences']): Generator<number> {
  if (sequences instanceof StepFrame) {
    for (let i = 0; i < sequences.tokens; i++) yield sequences.longest - 1
    return
  }
  if (sequences instanceof StepBatch) {
    yield* sequences.positions.codes()
    return
  }
  const lengths = new Map<number, number>()
  for (const { id, tokens } of sequences) {
    const start = lengths.get(id) ?? cache.length(id)
    for (let i = 0; i < tokens; i++) yield start + i
    lengths.set(id, start + tokens)
  }
}
