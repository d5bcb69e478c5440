/** What the Hopper sparse prefill kernels take of a call apart from its rows. */

import type { LaunchArg } from '../../lang/launch.ts'
import type { DeviceTable, PlanRequest } from '../../ops/op.ts'
import type { DeviceTensor } from '../../tensor/device-tensor.ts'
import { aligned } from '../aligned.ts'
import type { KeySourceProblem, LatentAttentionProblem } from '../latent-attention/problem.ts'
import { itemHeads, nope, type SparseSm90Config } from './sm90-config.ts'

type Request = PlanRequest<LatentAttentionProblem>

/** Scores of masked keys are -inf, which a scale that is 0 as f32 would turn into NaN. */
export const leastSoftmaxScale: number = 2 ** -126
/** Bytes of a copy, a load or a store: rows start at multiples of them. */
export const unitBytes = 16

/** How the rows of a layer follow each other. */
export interface RowPlace {
  /** Elements from row to row. */
  readonly rowStride: number
  /** Rows from the end of a block to the layer's next one. */
  readonly blockGap: number
}

/** Undefined where the blocks of `[blocks, pageSize, columns]` do not lie whole rows apart. */
export function placeOf(rows: DeviceTensor, pageSize: number): RowPlace | undefined {
  const [blockStride, rowStride] = rows.strides as readonly [number, number]
  const apart = blockStride % rowStride === 0 && blockStride >= pageSize * rowStride
  return apart ? { rowStride, blockGap: blockStride / rowStride - pageSize } : undefined
}

/** A part of the call that a launch computes: one source of rows, some of the tokens, final or partial results. */
export interface CallPart {
  readonly source: KeySourceProblem
  /** Parts of every list; with more than one in all, results are partial. */
  readonly parts: number
  readonly partEntries: number
  /** Where this source's parts begin among all of a token. */
  readonly firstPart: number
  readonly allParts: number
}

/** Whether the call has bf16 queries and lists, in tensors that lie as the kernels take them. */
export function fitsCall({ problem, inputs, outputs, limits }: Request): boolean {
  const of = (tensors: DeviceTable, names: readonly string[], inner: number) =>
    names.map(name => [tensors[name], inner] as const)
  const ofSources = (part: string, inner: number) =>
    of(
      inputs,
      problem.sources.map(({ name }) => `${name}.${part}`),
      inner,
    )
  const perToken = [
    ...[...of(inputs, ['q'], 2), ...of(outputs, ['out'], 2), ...of(outputs, ['lse', 'maxLogits'], 1)],
    ...[...ofSources('indices', 1), ...ofSources('logical', 1), ...ofSources('lengths', 0)],
  ]
  return (
    limits.target === 'sm_90a' &&
    problem.selection === 'list' &&
    problem.qDtype === 'bf16' &&
    Math.fround(problem.scale) >= leastSoftmaxScale &&
    inputs.validLength === undefined &&
    perToken.every(([t, inner]) => t === undefined || tokenStride(t, inner) !== undefined) &&
    aligned(inputs.q!, unitBytes)
  )
}

/**
 * Elements from a token's entry to the next one's, where `inner` axes follow one axis of tokens or two, of sequences and
 * their queries. Undefined where the two do not follow each other as one; whether they do is not a matter of how many
 * sequences there are, so a sequence alone runs in the kernel that it runs in among others.
 */
export function tokenStride({ shape, strides }: DeviceTensor, inner: number): number | undefined {
  if (shape.length - inner === 1) return strides[0]
  const queries = shape[1]!
  const [outer, step] = strides as readonly [number, number]
  if (queries === 1) return outer
  return outer === queries * step ? step : undefined
}

/** bf16 rows that start at multiples of 16 bytes are stored in whole words. */
const outOf = ({ problem, outputs }: Request, { allParts }: CallPart): SparseSm90Config['out'] => {
  if (allParts > 1) return 'partial'
  return problem.outDtype === 'bf16' && aligned(outputs.out!, unitBytes) ? 'words' : problem.outDtype
}

export const callConfig = (request: Request, part: CallPart, { blockGap }: RowPlace): SparseSm90Config => {
  const { problem, inputs } = request
  const { name } = part.source
  const lengths = inputs[`${name}.lengths`]
  const out = outOf(request, part)
  return {
    width: problem.width as 512 | 576,
    out,
    sink: inputs.sink !== undefined && out !== 'partial',
    lengths: lengths === undefined ? 'none' : (lengths.dtype as 'i32' | 'u32'),
    positions: inputs[`${name}.logical`] !== undefined,
    linear: blockGap === 0,
  }
}

/** Tokens of a call. */
export const tokensOf = ({ sequences, queries }: LatentAttentionProblem): number => sequences * queries

export function callArgs(request: Request, part: CallPart, { blockGap }: RowPlace): Record<string, LaunchArg> {
  const { problem, inputs, outputs } = request
  const { heads, scale, queries } = problem
  const { source, parts, partEntries, firstPart, allParts } = part
  const { pageSize, blocks, topk, name } = source
  const indices = inputs[`${name}.indices`]!
  const [lengths, logical] = [inputs[`${name}.lengths`], inputs[`${name}.logical`]]
  const { q, sink, cacheLength, out, lse, maxLogits } = { ...inputs, ...outputs }
  const partial = allParts > 1
  const outUnit = outOf(request, part) === 'words' ? 2 : 1
  const outHead = partial ? allParts * nope : out!.strides.at(-2)! / outUnit
  return {
    ...{ q, indices, lengths, logical, cacheLength, lse, maxLogits, pageSize, blockGap, topk, scale, heads },
    ...{ parts, partEntries, firstPart, allParts, groups: groupsOf(heads), tokens: tokensOf(problem) },
    sink: partial ? undefined : sink,
    out: partial ? { scratch: 'partial' } : out,
    states: partial ? { scratch: 'states' } : undefined,
    tops: partial ? { scratch: 'tops' } : undefined,
    qTokenStride: tokenStride(q!, 2)!,
    qHeadStride: q!.strides.at(-2)!,
    indicesTokenStride: tokenStride(indices, 1)!,
    lengthsTokenStride: lengths === undefined ? 0 : tokenStride(lengths, 0)!,
    logicalStride: logical === undefined ? 0 : tokenStride(logical, 1)!,
    listTokens: indices.shape.length === 2 ? queries : 1,
    sequenceTokens: queries,
    slots: Math.min(blocks * pageSize, indices.dtype === 'u32' ? 2 ** 32 - 1 : 2 ** 31),
    scaleLog2: scale * Math.LOG2E,
    outTokenStride: partial ? heads * outHead : tokenStride(out!, 2)! / outUnit,
    outHeadStride: outHead,
    lseTokenStride: tokenStride(lse!, 1)!,
    maxLogitsTokenStride: tokenStride(maxLogits!, 1)!,
  }
}

/** Blocks of a launch: one a multiprocessor, each walking through the items. */
export const callGrid = ({ problem, limits }: Request, { parts }: CallPart): readonly [number, number] => [
  Math.min(limits.workers, tokensOf(problem) * groupsOf(problem.heads) * parts),
  1,
]

export const groupsOf = (heads: number): number => Math.ceil(heads / itemHeads)
