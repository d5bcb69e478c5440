/** Lightning-indexer scores: how well each cached key fits each query token (spec §1). */

import { indexScoresKernels } from '../kernels/index-scores/index.ts'
import type { IndexScoresProblem } from '../kernels/index-scores/problem.ts'
import type { DeviceTensor } from '../tensor/device-tensor.ts'
import { Contract } from './contract.ts'
import { type CheckedCall, defineOp, type Op } from './op.ts'
import { checkScoring, type ScoringArgs, scoringKeys } from './scoring-args.ts'

export interface IndexScoresArgs extends ScoringArgs {
  /** Write -inf outside the windows (default), or leave those columns as they are: whatever was in a new output. */
  readonly fill?: boolean | undefined
  /** Dtype of the scores, default f32; bf16 is the f32 result rounded once. */
  readonly dtype?: 'f32' | 'bf16' | undefined
  /** The caller's own output tensor, any row stride. */
  readonly into?: { readonly scores?: DeviceTensor | undefined } | undefined
  readonly signal?: AbortSignal | undefined
}

export interface IndexScoresResult {
  /** `[tokens, width]`: column j belongs to key j of the token's own sequence. */
  readonly scores: DeviceTensor<'f32' | 'bf16'>
}

const known = [...scoringKeys, 'fill', 'dtype', 'into', 'signal']

function check(args: IndexScoresArgs): CheckedCall<IndexScoresProblem> {
  const c = new Contract('indexScores', args, known)
  const { problem, inputs } = checkScoring(c, args)
  const fill = c.flag('fill', args.fill, true)
  const outDtype = c.choice('dtype', args.dtype ?? 'f32', ['f32', 'bf16'])
  const into = args.into === undefined ? {} : c.object('into', args.into, ['scores'])
  const scores = c.output('into.scores', into.scores, outDtype, ['tokens', problem.windows.width])
  return {
    problem: { ...problem, fill, outDtype },
    inputs,
    outputs: { scores: { ...scores, dims: ['tokens', 'keys'] } },
    signal: args.signal,
  }
}

/**
 * Scores of cached keys for each query token.
 *
 *   scores[t, j] = kScale[j] · Σ_h max(0, q[t,h]·k[j]) · qScale[t,h]        lo[t] <= j < hi[t], else -inf
 *
 * Sums are f32, kScale multiplies once at the end. A NaN key or a kScale that is not finite reaches its own column, a NaN
 * in q or qScale its own row. Keys that no window holds are never read. A key whose page is missing from the block table,
 * or is no block of the pool, scores -inf. Tokens that no sequence holds, such as padding rows, see no key.
 *
 * @throws ShapeError | DtypeError | ValueError | OptionError | OverlapError | DeviceError | DisposedError before anything
 *   is launched
 * @example const { scores } = indexScores(device, { q, qScale, keys: { values, scales }, window: 'causal' })
 */
export const indexScores: Op<IndexScoresArgs, IndexScoresResult> = defineOp({
  name: 'indexScores',
  kernels: indexScoresKernels,
  check,
  result: outputs => outputs as unknown as IndexScoresResult,
})
