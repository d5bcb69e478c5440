/** Dense MLA prefill: query tokens attend to the up-projected keys of their sequences (spec §5). */

import type { Dtype } from '../dtypes/dtype.ts'
import { OptionError, ShapeError, ValueError } from '../errors.ts'
import { densePrefillKernels } from '../kernels/dense-prefill/index.ts'
import { Mask } from '../kernels/dense-prefill/mask.ts'
import type { DensePrefillProblem, Scheduler } from '../kernels/dense-prefill/problem.ts'
import { identity, type ScoreMod } from '../kernels/dense-prefill/score-mods.ts'
import type { AnyTensor, DeviceTensor } from '../tensor/device-tensor.ts'
import { Contract } from './contract.ts'
import { type CheckedKeys, checkDenseKeys, type DenseKeys, type KeyRows } from './dense-keys.ts'
import { type CheckedCall, defineOp, type Op, type TensorTable } from './op.ts'
import {
  checkPages,
  checkQuerySequences,
  type PagedSequenceArgs,
  type QuerySequenceArgs,
  type QuerySequences,
  querySequenceKeys,
} from './sequences.ts'

/** Queries and keys of one type: the variants f32 and bf16, and blockscale, whose rope rows are e4m3. */
export interface PlainOperands {
  /** `[tokens, heads, nope + 64]` f32 or bf16, rope in the last 64 columns. */
  readonly q: AnyTensor<'f32' | 'bf16'>
  /** nope and v of q's dtype; rope of q's dtype, or with bf16 also e4m3 rows or packed 656-byte rows. */
  readonly keys: DenseKeys<'f32' | 'bf16'> & { readonly scale?: undefined }
  readonly qNope?: undefined
  readonly qRope?: undefined
  readonly qScale?: undefined
}

/** e4m3 queries, keys and values with one scale a token and key for the scores; v has none. */
export interface PerTokenScaleOperands {
  readonly q?: undefined
  /** `[tokens, heads, nope]`. */
  readonly qNope: AnyTensor<'e4m3'>
  /** `[tokens, heads, 64]`, already divided by the token's scale. */
  readonly qRope: AnyTensor<'bf16'>
  /** f32 `[tokens]`. */
  readonly qScale: AnyTensor<'f32'>
  /** nope and v e4m3; rope bf16, already divided by the key's scale; scale f32 `[keys]` or `[blocks, layers, pageSize]`. */
  readonly keys: DenseKeys<'e4m3'> & { readonly scale: KeyRows<'f32'> }
}

export interface DensePrefillOptions extends QuerySequenceArgs {
  /** Which keys a query sees, such as `causal()`. */
  readonly mask: Mask
  /** What happens to a score before the softmax. Default `identity()`. */
  readonly scoreMod?: ScoreMod | undefined
  /** f32 `[heads]`: added to the denominator as exp(sink); lse excludes it. */
  readonly sink?: AnyTensor<'f32'> | undefined
  /** Softmax scale, natural-log units. Required: 1/sqrt(192) * mscale^2 for DeepSeek-V3.2. */
  readonly scale: number
  /** Splits of each sequence's keys, merged in order. Default 1: none. */
  readonly partition?: number | undefined
  /**
   * Order of the work, never of a sum: `transient` (default) runs the blocks with the most keys first, `persistent` as
   * they come, `queued` the last block of each sequence first.
   */
  readonly scheduler?: Scheduler | undefined
  /** Default bf16, or f32 for f32 queries. */
  readonly outDtype?: 'f32' | 'bf16' | undefined
  /** The caller's own output tensors, any token and head stride. */
  readonly into?:
    | { readonly out?: DeviceTensor | undefined; readonly lse?: DeviceTensor<'f32'> | undefined }
    | undefined
  readonly signal?: AbortSignal | undefined
}

export type DensePrefillArgs = DensePrefillOptions & (PlainOperands | PerTokenScaleOperands)

export interface DensePrefillResult {
  /** `[tokens, heads, vDim]`; exactly 0 where no key is visible, and in padding rows. */
  readonly out: DeviceTensor<'f32' | 'bf16'>
  /** f32 `[tokens, heads]`, natural log; -inf where no key is visible, and in padding rows. */
  readonly lse: DeviceTensor<'f32'>
}

const scaleHint = '1/sqrt(nope + 64), times mscale^2 with YaRN; 1/sqrt(192) * mscale^2 for DeepSeek-V3.2'

const known = [
  ...['q', 'qNope', 'qRope', 'qScale', 'keys', 'mask', 'scoreMod', 'sink', 'scale', 'partition', 'scheduler'],
  ...['outDtype', 'into', 'signal', ...querySequenceKeys],
]

interface CheckedQueries {
  readonly tensors: TensorTable
  readonly qDtype: Dtype
  readonly ropeDtypes: readonly Dtype[]
  /** nope + 64. */
  readonly width: number
}

/** q, or qNope with qRope and qScale. @throws OptionError | DtypeError | ShapeError */
function checkQueries(c: Contract, args: DensePrefillArgs): CheckedQueries {
  if (args.qNope === undefined) {
    const extra = (['qRope', 'qScale'] as const).find(name => args[name] !== undefined)
    if (extra !== undefined)
      throw new OptionError({ where: c.op, argument: extra, given: 'a tensor', allowed: 'none without qNope' })
    const q = c.tensor('q', args.q, { dtypes: ['f32', 'bf16'], shape: ['tokens', 'heads', 'width'] })
    const width = c.bound('width', 65, 4096 + 64)
    const ropeDtypes: readonly Dtype[] = q.dtype === 'f32' ? ['f32'] : ['bf16', 'e4m3', 'u8']
    return { tensors: { q }, qDtype: q.dtype, ropeDtypes, width }
  }
  if (args.q !== undefined)
    throw new OptionError({ where: c.op, argument: 'q', given: 'a tensor', allowed: 'none beside qNope' })
  const qNope = c.tensor('qNope', args.qNope, { dtypes: ['e4m3'], shape: ['tokens', 'heads', 'nope'] })
  const width = c.bound('nope', 1, 4096) + 64
  const qRope = c.tensor('qRope', args.qRope, { dtypes: ['bf16'], shape: ['tokens', 'heads', 64] })
  const qScale = c.tensor('qScale', args.qScale, { dtypes: ['f32'], shape: ['tokens'] })
  return { tensors: { qNope, qRope, qScale }, qDtype: 'e4m3', ropeDtypes: ['bf16'], width }
}

/** The mask's tensors as `mask.<step>`. @throws OptionError | ShapeError | DisposedError */
function checkMask(c: Contract, mask: Mask | undefined, batch: number, heads: number): TensorTable {
  if (!(mask instanceof Mask))
    throw new OptionError({
      where: c.op,
      argument: 'mask',
      given: mask ?? 'missing',
      allowed: 'a mask, such as causal() or none()',
    })
  const tensors: Record<string, AnyTensor> = {}
  mask.program.forEach((step, i) => {
    const name = `mask.${i}`
    if (step.kind === 'causalPadding')
      tensors[name] = c.tensor('mask.valid', step.valid, { dtypes: ['u32'], shape: [batch] })
    if (step.kind !== 'materialized') return
    const { bias } = step
    const plane = bias.shape.length === 4 ? [batch, heads] : [batch]
    const shape = [...plane, ...bias.shape.slice(-2)]
    tensors[name] = c.tensor('mask.bias', bias, { dtypes: ['f32', 'bf16', 'f16'], shape })
  })
  return tensors
}

/** @throws OptionError | ValueError */
function checkScoreMod(c: Contract, scoreMod: ScoreMod, heads: number): Pick<ScoreMod, 'kind' | 'slopes' | 'cap'> {
  const { kind, slopes, cap } = scoreMod
  c.choice('scoreMod.kind', kind, ['identity', 'alibi', 'softcap'])
  if (kind === 'alibi' && slopes.length !== heads)
    throw new ValueError({
      where: c.op,
      argument: 'scoreMod',
      given: `alibi(${slopes.length})`,
      allowed: `alibi(${heads}), the heads of the queries`,
    })
  return { kind, slopes, cap }
}

/** Masks that show every key to some query name no key that may be left out of the block table. */
function checkNamedPages(
  c: Contract,
  { mask, keys }: DensePrefillArgs,
  queries: QuerySequences,
  { pages, lengths }: CheckedKeys,
): void {
  const kind = mask.program.length === 1 ? mask.program[0]!.kind : undefined
  if (pages === undefined || (kind !== 'none' && kind !== 'causal')) return
  checkPages(c, 'keys', keys as PagedSequenceArgs, queries, lengths, { ...pages, pool: 1 })
}

function check(args: DensePrefillArgs): CheckedCall<DensePrefillProblem> {
  const c = new Contract('densePrefill', args, known)
  const { tensors, qDtype, ropeDtypes, width } = checkQueries(c, args)
  const tokens = c.bound('tokens', 0, 2 ** 31 - 1)
  const queries = checkQuerySequences(c, args, tokens)
  const scaled = qDtype === 'e4m3'
  const found = checkDenseKeys(c, args.keys, { nope: qDtype, rope: ropeDtypes, width, scaled }, queries)
  const heads = c.bound('heads', 1, 4096)
  const kvHeads = c.bound('kvHeads', 1, heads)
  if (heads % kvHeads !== 0)
    throw new ShapeError({
      where: c.op,
      argument: 'kvHeads',
      given: kvHeads,
      allowed: `a divisor of the ${heads} heads`,
    })
  const vDim = c.bound('vDim', 1, 4096)
  const maskTensors = checkMask(c, args.mask, queries.batch, heads)
  checkNamedPages(c, args, queries, found)
  const scoreMod = checkScoreMod(c, args.scoreMod ?? identity(), heads)
  const sink = c.optional('sink', args.sink, { dtypes: ['f32'], shape: ['heads'] })
  const outDtype = c.choice('outDtype', args.outDtype ?? (qDtype === 'f32' ? 'f32' : 'bf16'), ['f32', 'bf16'])
  const into = args.into === undefined ? {} : c.object('into', args.into, ['out', 'lse'])
  const problem: DensePrefillProblem = {
    ...{ op: c.op, tokens, batch: queries.batch, paddedRows: queries.rows },
    ...{ heads, kvHeads, nope: width - 64, vDim, qDtype, outDtype, scoreMod },
    ...{ keys: found.keys, pages: found.pages, layers: found.layers, rope: found.rope },
    scale: c.finite('scale', args.scale, scaleHint),
    lengthsIncludeNew: args.keys.lengthsIncludeNew ?? false,
    mask: args.mask.program.map(step => ({ kind: step.kind, window: 'window' in step ? step.window : 0 })),
    splits: c.integer('partition', args.partition ?? 1, 1, 256),
    scheduler: c.choice('scheduler', args.scheduler ?? 'transient', ['transient', 'persistent', 'queued']),
  }
  return {
    problem,
    inputs: { ...tensors, ...queries.tensors, ...found.tensors, ...maskTensors, sink },
    outputs: {
      out: c.output('into.out', into.out, outDtype, ['tokens', 'heads', 'vDim']),
      lse: c.output('into.lse', into.lse, 'f32', ['tokens', 'heads']),
    },
    signal: args.signal,
  }
}

/**
 * Attention of each query token over the keys of its sequence that the mask shows it.
 *
 *   s_j = scoreMod( scale · ( qNope[t,h]·nope[j,g] + qRope[t,h]·rope[j] ) )            g = floor(h / (heads / kvHeads))
 *
 *   out[t,h] = Σ exp(s_j) v[j,g] / (Σ exp(s_j) + exp(sink[h]))      lse = ln Σ exp(s_j)
 *
 * With per-token scales the logits are multiplied by qScale[t] · scale[j]. Query t of a sequence of L tokens and numKeys
 * keys stands at position numKeys - L + t. Keys that no query of the call sees are never read; a NaN in a key reaches the
 * queries that see it and no other. A key whose page is missing from the block table, or names no block, is not visible.
 *
 * @throws ShapeError | DtypeError | ValueError | OptionError | OverlapError | DeviceError | DisposedError before anything
 *   is launched
 * @example const { out } = densePrefill(device, { q, keys: { nope, v, rope }, mask: causal(), scale }); await out.read()
 */
export const densePrefill: Op<DensePrefillArgs, DensePrefillResult> = defineOp({
  name: 'densePrefill',
  kernels: densePrefillKernels,
  check,
  result: outputs => outputs as unknown as DensePrefillResult,
})
