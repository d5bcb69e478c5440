/**
 * When and how the Hopper sparse attention over fp8 rows runs: by a kernel that converts the rows it gathers, or, where lists
 * name the rows of the pool often, by one that converts all of them, named or not,
 * and the kernel over bf16 rows. The bits are the same.
 */

import type { KernelLaunch } from '../../lang/launch.ts'
import type { PlanRequest } from '../../ops/op.ts'
import type { DeviceTensor } from '../../tensor/device-tensor.ts'
import { aligned } from '../aligned.ts'
import { dequantizeThreads, piecesOf, traceDequantizeRows } from '../fp8-rows/dequantize-rows.ts'
import { markThreads, mostPages, traceCountPages, traceJoinPages } from '../fp8-rows/page-marks.ts'
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
/** Blocks of the kernels ahead on a multiprocessor. */
const residentBlocks = 8
/** Pieces are counted in 32 bits, with room for the last step of the grid. */
const mostPieces = 2 ** 31

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

/**
 * The same for a whole call by way of bf16 rows in scratch, of pages that lists name; undefined where that does not pay, or
 * would take more than half of what scratch may.
 */
export function convertedRowsPlan(request: Request, part: CallPart): RowsPlan | undefined {
  const { problem, limits } = request
  const { pageSize, blocks, topk } = part.source
  const slots = blocks * pageSize
  const rows = rowsOf(request, part.source)
  if (rows === undefined || part.allParts > 1 || leastUses * slots > tokensOf(problem) * topk) return undefined
  const { place, format, args } = rows
  const width = problem.width as 512 | 576
  const dense: RowPlace = { rowStride: width, blockGap: 0 }
  const shared = callArgs(request, part, dense)
  const { indices, indicesTokenStride, lengths, lengthsTokenStride, listTokens } = shared
  const lists = tokensOf(problem) / (listTokens as number)
  const counters = Math.min(limits.workers, lists)
  const scratch = {
    counts: 4 * blocks * counters,
    marks: 4 * blocks,
    rows: 2 * width * slots,
    ...(format.keyScales ? { rowScales: 4 * slots } : {}),
  }
  const pieces = slots * piecesOf({ ...format, width })
  const bytes = Object.values(scratch).reduce((a, b) => a + b, 0)
  if (blocks > mostPages || pieces >= mostPieces || bytes > limits.scratchBytes / 2) return undefined
  const rowScales = format.keyScales ? { scratch: 'rowScales' } : undefined
  const config = callConfig(request, part, dense)
  const [counts, marks] = [{ scratch: 'counts' }, { scratch: 'marks' }]
  return {
    scratch,
    launches: [
      {
        kernel: traceCountPages({ lengths: config.lengths }),
        grid: [counters, 1],
        args: {
          ...{ indices, indicesTokenStride, lengths, lengthsTokenStride },
          ...{ lists, topk, slots: shared.slots!, pageSize, pages: blocks, counts },
        },
      },
      {
        kernel: traceJoinPages({}),
        grid: gridFor(limits, blocks / markThreads),
        args: { counts, rows: counters, pages: blocks, marks },
      },
      {
        kernel: traceDequantizeRows({ ...format, width }),
        grid: gridFor(limits, pieces / dequantizeThreads),
        args: { ...args, pageSize, blockGap: place.blockGap, slots, marks, rows: { scratch: 'rows' }, rowScales },
      },
      {
        kernel: traceSparsePrefillSm90({
          ...config,
          ...(format.keyScales ? { keyScales: true } : {}),
        }),
        grid: callGrid(request, part),
        args: {
          ...shared,
          ...{ values: { scratch: 'rows' }, rowStride: width },
          ...(format.keyScales ? { scales: rowScales } : {}),
        },
      },
    ],
  }
}

/** As many blocks as there is work for, up to what the card holds at a time. */
const gridFor = ({ workers }: Request['limits'], blocks: number): readonly [number, number] => [
  Math.min(residentBlocks * workers, Math.ceil(blocks)),
  1,
]

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
