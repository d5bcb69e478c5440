/** Indexer scoring on a GPU, of the tokens of a call or of some that follow each other. */

import type { DeviceLimits } from '../../device.ts'
import type { KernelLaunch, LaunchArg, ScratchRef } from '../../lang/launch.ts'
import type { DeviceTable } from '../../ops/op.ts'
import type { IndexScoresProblem } from './problem.ts'

export interface ScoreRequest {
  /** `windows.tokens` counts these tokens alone. */
  readonly problem: IndexScoresProblem
  /** As of `indexScores`; `q` and `qScale` of these tokens. */
  readonly inputs: DeviceTable
  readonly limits: DeviceLimits
  /** The windows of these tokens. */
  readonly windows: ScratchRef
  readonly scores: { readonly rows: LaunchArg; readonly rowStride: number }
}

/** Launches after those that fill the windows, and scratch regions of their own. */
export interface Scoring {
  readonly launches: readonly KernelLaunch[]
  readonly scratch: Readonly<Record<string, number>>
}
