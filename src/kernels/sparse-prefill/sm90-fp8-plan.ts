/**
 * When and how the Hopper sparse attention over fp8 rows runs: by a kernel that converts the rows it gathers, or, where lists
 * name the rows of the pool often, by one that converts all of them, named or not,
 * and the kernel over bf16 rows. The bits are the same.
 */

import type { KernelLaunch } from '../../lang/launch.ts'
import type { PlanRequest } from '../../ops/op.ts'
import type { DeviceTensor } from '../../tensor/device-tensor.ts'
import { aligned } from '../aligned.ts'
import { dequantizeThreads, traceDequantizeRows } from '../fp8-rows/dequantize-rows.ts'
import type { KeySourceProblem, LatentAttentionProblem } from '../latent-attention/problem.ts'
import { traceSparsePrefillSm90 } from './sm90.ts'
import {
  type CallPart,
  callArgs,
  callConfig,
  callGrid,
  placeOf,
  type RowPlace,
  tokensOf,
  unitBytes,
} from './sm90-call.ts'
import { traceSparsePrefillFp8Sm90 } from './sm90-fp8.ts'

type Request = PlanRequest<LatentAttentionProblem>

/** Launches of a call, and the scratch that they share. */
export interface RowsPlan {
  readonly launches: readonly KernelLaunch[]
  readonly scratch: Readonly<Record<string, number>>
}

/** Entries of lists for each row of the pool, from which on all rows are converted first. */
const leastUses = 4
/** Blocks of the conversion on a multiprocessor. */
const dequantizeBlocks = 8

/** The launch of a part of a call that fits; undefined where another kernel must serve its rows. */
export function fp8RowsLaunch(request: Request, part: CallPart): KernelLaunch | undefined {
  const rows = rowsOf(request, part.source)
  if (rows === undefined) return undefined
  const { place, format, args } = rows
  return {
    kernel: traceSparsePrefillFp8Sm90({ ...callConfig(request, part, place), ...format }),
    grid: callGrid(request, part),
    args: { ...callArgs(request, part, place), ...args },
  }
}

/** The same for a whole call by way of bf16 rows in scratch; undefined where that does not pay, or does not fit. */
export function convertedRowsPlan(request: Request, part: CallPart): RowsPlan | undefined {
  const { problem, limits } = request
  const { pageSize, blocks, topk } = part.source
  const slots = blocks * pageSize
  const rows = rowsOf(request, part.source)
  if (rows === undefined || part.allParts > 1 || leastUses * slots > tokensOf(problem) * topk) return undefined
  const { place, format, args } = rows
  const width = problem.width as 512 | 576
  const scratch = { rows: 2 * width * slots, ...(format.keyScales ? { rowScales: 4 * slots } : {}) }
  if (Object.values(scratch).reduce((a, b) => a + b, 0) > limits.scratchBytes) return undefined
  const dense: RowPlace = { rowStride: width, blockGap: 0 }
  const rowScales = format.keyScales ? { scratch: 'rowScales' } : undefined
  const pieces = slots * (width / 16)
  return {
    scratch,
    launches: [
      {
        kernel: traceDequantizeRows({ ...format, width }),
        grid: [Math.min(dequantizeBlocks * limits.workers, Math.ceil(pieces / dequantizeThreads)), 1],
        args: { ...args, pageSize, blockGap: place.blockGap, slots, rows: { scratch: 'rows' }, rowScales },
      },
      {
        kernel: traceSparsePrefillSm90({
          ...callConfig(request, part, dense),
          ...(format.keyScales ? { keyScales: true } : {}),
        }),
        grid: callGrid(request, part),
        args: {
          ...callArgs(request, part, dense),
          ...{ values: { scratch: 'rows' }, rowStride: width },
          ...(format.keyScales ? { scales: rowScales } : {}),
        },
      },
    ],
  }
}

/** How the rows of a source lie, where the kernels take them. */
function rowsOf({ problem, inputs }: Request, source: KeySourceProblem) {
  const { name, layer, pageSize, format, dtype, scaleBlock } = source
  const packed = format === 'packed656'
  if (!packed && dtype !== 'e4m3') return undefined
  const values = inputs[`${name}.values`]!.select(1, layer)
  const scales = packed ? undefined : inputs[`${name}.scales`]?.select(1, layer)
  const place = placeOf(values, pageSize)
  if (place === undefined || !aligned(values, unitBytes) || !sameRows(scales, place, source)) return undefined
  const keyScales = scales !== undefined && scaleBlock >= problem.width
  return {
    place,
    format: { packed, scaleBlock: scales === undefined || keyScales ? 0 : scaleBlock, keyScales },
    args: { values, rowBytes: place.rowStride, scales, scaleStride: scales?.strides[1] ?? 0 },
  }
}

/** Whether the scales of a layer lie in the same memory rows as its values. */
function sameRows(scales: DeviceTensor | undefined, { blockGap }: RowPlace, { pageSize }: KeySourceProblem): boolean {
  return scales === undefined || (scales.strides[2] === 1 && placeOf(scales, pageSize)?.blockGap === blockGap)
}
