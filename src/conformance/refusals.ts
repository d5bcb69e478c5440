/** Conformance of the errors: a bad argument is refused by type and name, and nothing is written. */

import type { Device } from '../device.ts'
import { type ErrorCode, SparseMlaError } from '../errors.ts'
import { causal } from '../kernels/dense-prefill/masks.ts'
import { denseDecode } from '../ops/dense-decode.ts'
import { densePrefill } from '../ops/dense-prefill.ts'
import { hadamard } from '../ops/hadamard.ts'
import { indexScores } from '../ops/index-scores.ts'
import { mergeStates } from '../ops/merge-states.ts'
import { remapIndices } from '../ops/remap-indices.ts'
import { rmsNorm } from '../ops/rms-norm.ts'
import { sparseDecode } from '../ops/sparse-decode.ts'
import { sparsePrefill } from '../ops/sparse-prefill.ts'
import { topK } from '../ops/top-k.ts'
import type { DeviceTensor } from '../tensor/device-tensor.ts'
import { logical, slots } from '../tensor/spaces.ts'
import { zeros } from '../tensor/tensor.ts'
import { both, type ConformanceCase, holds, type Verdict } from './case.ts'
import { collect, poisonedOutputs } from './data.ts'
import { countPoison } from './poison.ts'

type Arguments = Readonly<Record<string, unknown>>
type AnyOp = (device: Device, args: never) => unknown

/** An operation, arguments that it takes, and changes that it must refuse. */
interface Refusals {
  readonly op: string
  readonly call: AnyOp
  readonly good: Arguments
  readonly bad: readonly (readonly [change: Arguments, code: ErrorCode, argument: string])[]
}

const latentPool = (width = 576) => ({
  format: 'plain',
  values: zeros('f32', [2, 1, 4, width]),
  scaleBlock: 0,
  layer: 0,
})

const table: readonly Refusals[] = [
  {
    op: 'sparsePrefill',
    call: sparsePrefill as AnyOp,
    good: {
      q: zeros('f32', [2, 3, 576]),
      cache: latentPool(),
      indices: slots(zeros('i32', [2, 5])),
      scale: 0.1,
    },
    bad: [
      [{ scale: undefined }, 'E_OPTION', 'scale'],
      [{ scale: Number.NaN }, 'E_VALUE', 'scale'],
      [{ q: zeros('f16', [2, 3, 576]) }, 'E_DTYPE', 'q'],
      [{ q: zeros('f32', [2, 129, 576]) }, 'E_SHAPE', 'heads'],
      [{ q: zeros('f32', [2, 3, 560]) }, 'E_SHAPE', 'q'],
      [{ cache: latentPool(512) }, 'E_SHAPE', 'cache.values'],
      [{ cache: { ...latentPool(), layer: 1 } }, 'E_VALUE', 'cache.layer'],
      [{ cache: { ...latentPool(), scales: zeros('f32', [2, 1, 4, 1]) } }, 'E_OPTION', 'cache.scales'],
      [{ indices: zeros('i32', [2, 5]) }, 'E_SPACE', 'indices'],
      [{ indices: slots(zeros('i32', [3, 5])) }, 'E_SHAPE', 'indices'],
      [{ sink: zeros('f32', [4]) }, 'E_SHAPE', 'sink'],
      [{ sacle: 1 }, 'E_OPTION', 'sacle'],
    ],
  },
  {
    op: 'sparseDecode',
    call: sparseDecode as AnyOp,
    good: {
      q: zeros('f32', [2, 2, 3, 576]),
      cache: latentPool(),
      indices: slots(zeros('i32', [2, 5])),
      scale: 0.1,
    },
    bad: [
      [{ q: zeros('f32', [2, 9, 3, 576]) }, 'E_SHAPE', 'queries'],
      [{ batchInvariant: 1 }, 'E_OPTION', 'batchInvariant'],
    ],
  },
  {
    op: 'denseDecode',
    call: denseDecode as AnyOp,
    good: {
      q: zeros('f32', [1, 1, 3, 576]),
      cache: latentPool(),
      blockTable: zeros('u32', [1, 2]),
      cacheLength: zeros('u32', [1]),
      scale: 0.1,
    },
    bad: [[{ cacheLength: zeros('u32', [2]) }, 'E_SHAPE', 'cacheLength']],
  },
  {
    op: 'densePrefill',
    call: densePrefill as AnyOp,
    good: {
      q: zeros('f32', [2, 4, 96]),
      keys: { nope: zeros('f32', [5, 2, 32]), v: zeros('f32', [5, 2, 16]), rope: zeros('f32', [5, 64]) },
      mask: causal(),
      scale: 0.1,
    },
    bad: [
      [{ mask: 'causal' }, 'E_OPTION', 'mask'],
      [{ q: zeros('f32', [2, 3, 96]) }, 'E_SHAPE', 'kvHeads'],
      [{ partition: 0 }, 'E_VALUE', 'partition'],
      [{ scheduler: 'fifo' }, 'E_OPTION', 'scheduler'],
    ],
  },
  {
    op: 'indexScores',
    call: indexScores as AnyOp,
    good: {
      q: zeros('bf16', [2, 3, 32]),
      qScale: zeros('f32', [2, 3]),
      keys: { values: zeros('bf16', [7, 32]) },
      window: 'all',
    },
    bad: [
      [{ q: zeros('bf16', [2, 3, 24]) }, 'E_SHAPE', 'depth'],
      [{ keys: { values: zeros('f32', [7, 32]) } }, 'E_DTYPE', 'keys.values'],
      [{ window: 'sliding' }, 'E_OPTION', 'window'],
      [{ width: 3 }, 'E_VALUE', 'width'],
    ],
  },
  {
    op: 'topK',
    call: topK as AnyOp,
    good: { scores: zeros('f32', [2, 9]), k: 3 },
    bad: [
      [{ k: 0 }, 'E_VALUE', 'k'],
      [{ k: 8193 }, 'E_VALUE', 'k'],
      [{ scores: zeros('i32', [2, 9]) }, 'E_DTYPE', 'scores'],
    ],
  },
  {
    op: 'remapIndices',
    call: remapIndices as AnyOp,
    good: {
      indices: logical(zeros('i32', [2, 3])),
      slots: { blockTable: zeros('u32', [1, 2]), pageSize: 4, blocks: 2 },
    },
    bad: [[{ indices: slots(zeros('i32', [2, 3])) }, 'E_SPACE', 'indices']],
  },
  {
    op: 'mergeStates',
    call: mergeStates as AnyOp,
    good: { out: [zeros('f32', [2, 3, 4])], lse: [zeros('f32', [2, 3])] },
    bad: [
      [{ lse: [] }, 'E_OPTION', 'lse'],
      [{ lse: [zeros('f32', [2, 4])] }, 'E_SHAPE', 'lse[0]'],
    ],
  },
  {
    op: 'rmsNorm',
    call: rmsNorm as AnyOp,
    good: { x: zeros('f32', [2, 8]), weight: zeros('f32', [8]), eps: 1e-6 },
    bad: [
      [{ eps: 0 }, 'E_VALUE', 'eps'],
      [{ weight: zeros('f32', [9]) }, 'E_SHAPE', 'weight'],
    ],
  },
  {
    op: 'hadamard',
    call: hadamard as AnyOp,
    good: { x: zeros('f32', [2, 64]) },
    bad: [[{ x: zeros('f32', [2, 48]) }, 'E_SHAPE', 'x']],
  },
]

function refused(device: Device, { op, call, good }: Refusals, change: Arguments, wanted: string): Verdict {
  try {
    call(device, { ...good, ...change } as never)
  } catch (error) {
    const got = error instanceof SparseMlaError ? `${error.code} ${error.argument}` : String(error)
    return holds(got === wanted, `${got}, expected ${wanted}`)
  }
  return holds(false, `${op} ran, expected ${wanted}`)
}

/** The call that the refusals are changes of. */
async function taken(device: Device, { call, good }: Refusals): Promise<Verdict> {
  await collect(call(device, good as never) as Readonly<Record<string, DeviceTensor>>)
  return holds(true, '')
}

/** An output over an input is refused, and the output beside it stays as it was. */
async function overlapRefused(device: Device): Promise<Verdict> {
  const lse = device.upload(zeros('f32', [2, 3]))
  const { out } = poisonedOutputs(device, { out: ['f32', [2, 3, 4]] })
  const parts = { out: [zeros('f32', [2, 3, 4])], lse: [lse] }
  const states: Refusals = { op: 'mergeStates', call: mergeStates as AnyOp, good: parts, bad: [] }
  const verdict = refused(device, states, { into: { out, lse } }, 'E_OVERLAP into.lse')
  const after = await collect({ out, lse })
  return both(verdict, holds(countPoison(after.out) === after.out.size, 'an output was written'))
}

export const refusalCases: readonly ConformanceCase[] = [
  ...table.flatMap(refusals => [
    { op: refusals.op, name: 'takes the arguments below', run: (device: Device) => taken(device, refusals) },
    ...refusals.bad.map(([change, code, argument], i) => ({
      op: refusals.op,
      name: `refuses ${Object.keys(change)[0]}, ${code} ${argument} (${i + 1})`,
      run: async (device: Device) => refused(device, refusals, change, `${code} ${argument}`),
    })),
  ]),
  { op: 'mergeStates', name: 'refuses an output over its input', run: overlapRefused },
]
