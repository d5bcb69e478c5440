/**
 * Conformance of what only the device sees: tables and positions that a host check would refuse follow the data rules of
 * the specification. The reference takes the same tensors from the host.
 */

import type { Device } from '../device.ts'
import { causal } from '../kernels/dense-prefill/masks.ts'
import { densePrefillReference } from '../kernels/dense-prefill/reference.ts'
import { indexScoresReference } from '../kernels/index-scores/reference.ts'
import { denseDecodeReference } from '../kernels/latent-attention/reference.ts'
import { denseDecode } from '../ops/dense-decode.ts'
import { type DensePrefillArgs, densePrefill } from '../ops/dense-prefill.ts'
import { type IndexScoresArgs, indexScores } from '../ops/index-scores.ts'
import { rope } from '../ops/rope.ts'
import type { AnyTensor } from '../tensor/device-tensor.ts'
import { fromFloats, type Tensor } from '../tensor/tensor.ts'
import { type ConformanceCase, judge, type Verdict } from './case.ts'
import { collect, ints, nans, normals, poisonedOutputs } from './data.ts'
import { compare } from './gate.ts'
import { attentionF32, attentionLse, indexScoresF32 } from './gates.ts'
import { f32Variant, judgeLatent, latentQueries, softmaxScale } from './latent.ts'
import { filledIndexPool, filledLatentPool } from './pools.ts'
import { seeded } from './random.ts'

/** The same arguments with some tensors uploaded; whoever calls frees `uploads`. */
function uploaded<T extends object>(device: Device, args: T, names: readonly (keyof T)[]): { args: T; free(): void } {
  const uploads = names.map(name => [name, device.upload(args[name] as unknown as Tensor)] as const)
  return {
    args: { ...args, ...Object.fromEntries(uploads) },
    free: () => uploads.forEach(([, t]) => t.dispose()),
  }
}

/** A block table whose second page of the first sequence is no block of the pool. */
function withHole(table: Tensor<'u32'>): Tensor<'u32'> {
  const copy = table.clone()
  copy.data[1] = 0xffff_ffff
  return copy
}

async function denseDecodeHole(device: Device): Promise<Verdict> {
  const random = seeded(31)
  const { pool, blockTable } = filledLatentPool(random, f32Variant.layout, { lengths: [50], pageSize: 16 })
  const host = {
    ...latentQueries(random, f32Variant, [1, 2], 3),
    cache: pool,
    blockTable: withHole(blockTable),
    cacheLength: ints('u32', [1], [48]),
    scale: softmaxScale,
  }
  const { args, free } = uploaded(device, host, ['blockTable', 'cacheLength'])
  const actual = await collect({ ...denseDecode(device, args) })
  free()
  return judgeLatent(f32Variant, actual as never, denseDecodeReference(host))
}

async function indexScoresHole(device: Device): Promise<Verdict> {
  const random = seeded(32)
  const { pool, blockTable } = filledIndexPool(
    random,
    { format: 'pools', dtype: 'f32', depth: 32 },
    { lengths: [50], pageSize: 16 },
  )
  const paging = { blockTable: withHole(blockTable), cacheLength: ints('u32', [1], [48]) }
  const host: IndexScoresArgs = {
    q: normals(random, 'f32', [2, 3, 32]),
    qScale: normals(random, 'f32', [2, 3]),
    keys: { pool, ...paging },
    window: 'causal',
    width: 50,
  }
  const { args, free } = uploaded(device, paging, ['blockTable', 'cacheLength'])
  const { scores } = await collect({ ...indexScores(device, { ...host, keys: { pool, ...args } }) })
  free()
  return judge(indexScoresF32(scores, indexScoresReference(host).scores))
}

async function densePrefillHole(device: Device): Promise<Verdict> {
  const random = seeded(33)
  const filled = filledLatentPool(random, f32Variant.layout, { lengths: [40], pageSize: 16, layers: 1 })
  const rowsOf = (width: number): AnyTensor<'f32'> => normals(random, 'f32', [filled.blocks, 1, 16, 2, width])
  const paging = { blockTable: withHole(filled.blockTable), cacheLength: ints('u32', [1], [38]) }
  const keys = {
    nope: { pool: rowsOf(16), layer: 0 },
    v: { pool: rowsOf(24), layer: 0 },
    rope: filled.pool,
    ...paging,
  }
  const host = { q: normals(random, 'f32', [2, 2, 80]), keys, mask: causal(), scale: 0.1 } as DensePrefillArgs
  const { args, free } = uploaded(device, paging, ['blockTable', 'cacheLength'])
  const call = { ...host, keys: { ...keys, ...args } } as DensePrefillArgs
  const actual = await collect({ ...densePrefill(device, call) })
  free()
  const ref = densePrefillReference(host)
  return judge(attentionF32(actual.out, ref), attentionLse(actual.lse, ref))
}

/** A position outside the tables: NaN in the rotated columns, the others copied. */
async function ropeOutside(device: Device): Promise<Verdict> {
  const x = normals(seeded(34), 'f32', [3, 20])
  const angles = nans('f32', [2, 8])
  const [cos, sin] = [
    fromFloats(
      'f32',
      [2, 8],
      angles.data.map(() => 1),
    ),
    fromFloats(
      'f32',
      [2, 8],
      angles.data.map(() => 0),
    ),
  ]
  const positions = device.upload(ints('i32', [3], [1, 2, -1]))
  const into = poisonedOutputs(device, { out: ['f32', [3, 20]] })
  rope(device, { x, cos, sin, positions, style: 'interleaved', start: 4, length: 16, into })
  const { out } = await collect(into)
  positions.dispose()
  const expected = x.data.map((value, i) => (i >= 20 && i % 20 >= 4 ? NaN : value))
  return judge(compare({ gate: 'rope', actual: out, expected, bound: () => 0 }))
}

export const deviceDataCases: readonly ConformanceCase[] = [
  { op: 'denseDecode', name: 'f32, a page that is no block: its keys do not count', run: denseDecodeHole },
  { op: 'indexScores', name: 'f32, a page that is no block: its keys score -inf', run: indexScoresHole },
  { op: 'densePrefill', name: 'f32, a page that is no block: its keys are not visible', run: densePrefillHole },
  { op: 'rope', name: 'positions outside the tables give NaN', run: ropeOutside },
]
