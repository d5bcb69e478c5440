import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type DenseCase, denseOperands, nanTensor, offsetsOf, pagedOperands, u32 } from '../../test/dense-cases.ts'
import { bitsOf, poisoned } from '../../test/gates.ts'
import { type CpuDevice, openCpuDevice } from '../cpu/device.ts'
import type { ErrorCode, SparseMlaError } from '../errors.ts'
import { causal, causalPadding, materialized } from '../kernels/dense-prefill/masks.ts'
import { alibi } from '../kernels/dense-prefill/score-mods.ts'
import { fromFloats, type Tensor, tensor } from '../tensor/tensor.ts'
import { type DensePrefillArgs, densePrefill } from './dense-prefill.ts'

let device: CpuDevice
beforeAll(async () => {
  device = await openCpuDevice({ threads: 1 })
})
afterAll(() => device.dispose())

const shape: DenseCase = { queries: [3, 4], keys: [5, 6], heads: 4, kvHeads: 2 }
const plain = (variant?: DenseCase['variant']): Record<string, unknown> => ({
  ...denseOperands({ ...shape, ...(variant === undefined ? {} : { variant }) }),
  mask: causal(),
})
const paged = (variant: DenseCase['variant'] = 'bf16'): Record<string, unknown> => ({
  ...pagedOperands(denseOperands({ ...shape, variant }), shape, { pageSize: 4 }),
  mask: causal(),
})
type Change = Record<string, unknown>
const withKeys = (args: Change, change: Change): Change => ({ ...args, keys: { ...(args.keys as Change), ...change } })
const withRope = (args: Change, change: Change): Change =>
  withKeys(args, { rope: { ...((args.keys as Change).rope as Change), ...change } })
const f32 = (...dims: number[]): Tensor<'f32'> =>
  fromFloats('f32', dims, new Float32Array(dims.reduce((a, b) => a * b, 1)))
const bf16 = (...dims: number[]): Tensor<'bf16'> => f32(...dims).cast('bf16')

/** What is wrong, the call, and the code and argument of its refusal. */
const refusals: readonly (readonly [string, () => Change, ErrorCode, string])[] = [
  ['an unknown option', () => ({ ...plain(), causal: true }), 'E_OPTION', 'causal'],
  ['an unknown key option', () => withKeys(plain(), { values: f32(1) }), 'E_OPTION', 'keys.values'],
  ['no q', () => ({ ...plain(), q: undefined }), 'E_OPTION', 'q'],
  ['q as a typed array', () => ({ ...plain(), q: new Float32Array(8) }), 'E_DTYPE', 'q'],
  ['q of e4m3', () => ({ ...plain(), q: f32(7, 4, 96).cast('e4m3') }), 'E_DTYPE', 'q'],
  ['q of rank 2', () => ({ ...plain(), q: f32(7, 96) }), 'E_SHAPE', 'q'],
  ['q without nope', () => ({ ...plain(), q: f32(7, 4, 64) }), 'E_SHAPE', 'width'],
  ['q beside qNope', () => ({ ...plain('perTokenScale'), q: f32(7, 4, 96) }), 'E_OPTION', 'q'],
  ['qScale beside q', () => ({ ...plain(), qScale: f32(7) }), 'E_OPTION', 'qScale'],
  ['no qScale', () => ({ ...plain('perTokenScale'), qScale: undefined }), 'E_OPTION', 'qScale'],
  ['FQ-15: qScale of bf16', () => ({ ...plain('perTokenScale'), qScale: bf16(7) }), 'E_DTYPE', 'qScale'],
  ['qScale per head', () => ({ ...plain('perTokenScale'), qScale: f32(7, 4) }), 'E_SHAPE', 'qScale'],
  ['qRope of another width', () => ({ ...plain('perTokenScale'), qRope: bf16(7, 4, 32) }), 'E_SHAPE', 'qRope'],
  ['no keys', () => ({ ...plain(), keys: undefined }), 'E_OPTION', 'keys'],
  ['no nope', () => withKeys(plain(), { nope: undefined }), 'E_OPTION', 'keys.nope'],
  ['nope of another dtype', () => withKeys(plain(), { nope: bf16(11, 2, 32) }), 'E_DTYPE', 'keys.nope'],
  ['nope of another width', () => withKeys(plain(), { nope: f32(11, 2, 33) }), 'E_SHAPE', 'keys.nope'],
  ['v of fewer keys', () => withKeys(plain(), { v: f32(10, 2, 24) }), 'E_SHAPE', 'keys.v'],
  ['v of other heads', () => withKeys(plain(), { v: f32(11, 4, 24) }), 'E_SHAPE', 'keys.v'],
  ['v without columns', () => withKeys(plain(), { v: f32(11, 2, 0) }), 'E_SHAPE', 'vDim'],
  [
    'heads no multiple of kvHeads',
    () => withKeys(plain(), { nope: f32(11, 3, 32), v: f32(11, 3, 24) }),
    'E_SHAPE',
    'kvHeads',
  ],
  ['rope per head', () => withKeys(plain(), { rope: f32(11, 2, 64) }), 'E_SHAPE', 'keys.rope'],
  ['rope of another width', () => withKeys(plain(), { rope: f32(11, 576) }), 'E_SHAPE', 'keys.rope'],
  ['e4m3 rope with f32 q', () => withKeys(plain(), { rope: f32(11, 64).cast('e4m3') }), 'E_DTYPE', 'keys.rope'],
  [
    'rope of an unknown format',
    () => withRope(plain('blockscale'), { format: 'dense' }),
    'E_OPTION',
    'keys.rope.format',
  ],
  [
    'a rope scale block of 20',
    () => withRope(plain('blockscale'), { scaleBlock: 20 }),
    'E_VALUE',
    'keys.rope.scaleBlock',
  ],
  [
    'no rope scale block',
    () => withRope(plain('blockscale'), { scaleBlock: undefined }),
    'E_OPTION',
    'keys.rope.scaleBlock',
  ],
  ['rope scales of block 0', () => withRope(plain('blockscale'), { scaleBlock: 0 }), 'E_OPTION', 'keys.rope.scales'],
  ['no rope scales', () => withRope(plain('blockscale'), { scales: undefined }), 'E_OPTION', 'keys.rope.scales'],
  [
    'rope scales of another shape',
    () => withRope(plain('blockscale'), { scales: f32(11, 8) }),
    'E_SHAPE',
    'keys.rope.scales',
  ],
  ['packed rope with f32 q', () => withRope(paged('f32'), { format: 'packed656' }), 'E_OPTION', 'keys.rope.format'],
  ['a key scale beside q', () => withKeys(plain(), { scale: f32(11) }), 'E_OPTION', 'keys.scale'],
  ['no key scale', () => withKeys(plain('perTokenScale'), { scale: undefined }), 'E_OPTION', 'keys.scale'],
  ['no kvRowOffsets', () => withKeys(plain(), { kvRowOffsets: undefined }), 'E_OPTION', 'keys.kvRowOffsets'],
  [
    'kvRowOffsets of another batch',
    () => withKeys(plain(), { kvRowOffsets: offsetsOf([11]) }),
    'E_SHAPE',
    'keys.kvRowOffsets',
  ],
  [
    'kvRowOffsets that miss keys',
    () => withKeys(plain(), { kvRowOffsets: u32(0, 5, 10) }),
    'E_VALUE',
    'keys.kvRowOffsets[2]',
  ],
  [
    'a block table of contiguous keys',
    () => withKeys(plain(), { blockTable: u32(0, 0).reshape([2, 1]) }),
    'E_OPTION',
    'keys.blockTable',
  ],
  [
    'cacheLength of contiguous keys',
    () => withKeys(plain(), { cacheLength: u32(1, 1) }),
    'E_OPTION',
    'keys.cacheLength',
  ],
  ['maxKeys too small', () => withKeys(plain(), { maxKeys: 5 }), 'E_VALUE', 'keys.maxKeys'],
  [
    'kvRowOffsets of paged keys',
    () => withKeys(paged(), { kvRowOffsets: u32(0, 5, 11) }),
    'E_OPTION',
    'keys.kvRowOffsets',
  ],
  ['no block table', () => withKeys(paged(), { blockTable: undefined }), 'E_OPTION', 'keys.blockTable'],
  ['no cacheLength', () => withKeys(paged(), { cacheLength: undefined }), 'E_OPTION', 'keys.cacheLength'],
  [
    'a cacheLength beyond the table',
    () => withKeys(paged(), { cacheLength: u32(2, 9) }),
    'E_VALUE',
    'keys.cacheLength[1]',
  ],
  [
    'a page that names no block',
    () => withKeys(paged(), { blockTable: tensor('u32', [2, 3], Uint32Array.of(0, 1, 9, 2, 99, 9)) }),
    'E_VALUE',
    'keys.blockTable[1, 1]',
  ],
  [
    'pools of other page sizes',
    () => withKeys(paged(), { v: { pool: bf16(5, 2, 8, 2, 24), layer: 1 } }),
    'E_SHAPE',
    'keys.v.pool',
  ],
  [
    'a layer the pool lacks',
    () => withKeys(paged(), { v: { ...((paged().keys as Change).v as Change), layer: 2 } }),
    'E_VALUE',
    'keys.v.layer',
  ],
  ['no layer', () => withKeys(paged(), { v: { pool: bf16(5, 2, 4, 2, 24) } }), 'E_VALUE', 'keys.v.layer'],
  ['rowOffsets that fall', () => ({ ...plain(), rowOffsets: u32(0, 8, 7) }), 'E_VALUE', 'rowOffsets[2]'],
  ['DP-07: rowOffsets that start at 1', () => ({ ...plain(), rowOffsets: u32(1, 3, 7) }), 'E_VALUE', 'rowOffsets[0]'],
  ['DP-07: rowOffsets past the tokens', () => ({ ...plain(), rowOffsets: u32(0, 3, 8) }), 'E_VALUE', 'rowOffsets[2]'],
  [
    'DP-07: rowOffsets of i32',
    () => ({ ...plain(), rowOffsets: tensor('i32', [3], Int32Array.of(0, 3, 7)) }),
    'E_DTYPE',
    'rowOffsets',
  ],
  [
    'DP-07: rowOffsets of i64',
    () => ({ ...plain(), rowOffsets: tensor('i64', [3], BigInt64Array.of(0n, 3n, 7n)) }),
    'E_DTYPE',
    'rowOffsets',
  ],
  [
    'DP-07: rowOffsets of f64',
    () => ({ ...plain(), rowOffsets: tensor('f64', [3], Float64Array.of(0, 3, 7)) }),
    'E_DTYPE',
    'rowOffsets',
  ],
  ['DP-07: rowOffsets as numbers', () => ({ ...plain(), rowOffsets: [0, 3, 7] }), 'E_DTYPE', 'rowOffsets'],
  [
    'DP-07: rowOffsets as an Int32Array',
    () => ({ ...plain(), rowOffsets: Int32Array.of(0, 3, 7) }),
    'E_DTYPE',
    'rowOffsets',
  ],
  ['rowOffsets and validLength', () => ({ ...plain(), validLength: u32(3, 4) }), 'E_OPTION', 'validLength'],
  ['a maxPromptLen too small', () => ({ ...plain(), maxPromptLen: 3 }), 'E_VALUE', 'maxPromptLen'],
  ['no mask', () => ({ ...plain(), mask: undefined }), 'E_OPTION', 'mask'],
  ['a mask by name', () => ({ ...plain(), mask: 'causal' }), 'E_OPTION', 'mask'],
  [
    'valid lengths of another batch',
    () => ({ ...plain(), mask: causalPadding(u32(1, 2, 3)) }),
    'E_SHAPE',
    'mask.valid',
  ],
  ['a bias of another batch', () => ({ ...plain(), mask: materialized(f32(1, 4, 6)) }), 'E_SHAPE', 'mask.bias'],
  ['a bias of other heads', () => ({ ...plain(), mask: materialized(f32(2, 2, 4, 6)) }), 'E_SHAPE', 'mask.bias'],
  ['alibi of other heads', () => ({ ...plain(), scoreMod: alibi(2) }), 'E_VALUE', 'scoreMod'],
  ['no scale', () => ({ ...plain(), scale: undefined }), 'E_OPTION', 'scale'],
  ['a scale of NaN', () => ({ ...plain(), scale: Number.NaN }), 'E_VALUE', 'scale'],
  ['SA-08: a sink of other heads', () => ({ ...plain(), sink: f32(3) }), 'E_SHAPE', 'sink'],
  ['SA-08: a sink of bf16', () => ({ ...plain(), sink: bf16(4) }), 'E_DTYPE', 'sink'],
  ['a partition of 0', () => ({ ...plain(), partition: 0 }), 'E_VALUE', 'partition'],
  ['an unknown scheduler', () => ({ ...plain(), scheduler: 'greedy' }), 'E_OPTION', 'scheduler'],
  ['an unknown output dtype', () => ({ ...plain(), outDtype: 'f16' }), 'E_OPTION', 'outDtype'],
  ['an unknown output', () => ({ ...plain(), into: { maxLogits: undefined } }), 'E_OPTION', 'into.maxLogits'],
  ['a host output', () => ({ ...plain(), into: { out: f32(7, 4, 24) } }), 'E_DEVICE', 'into.out'],
]

describe('refused before anything is written', () => {
  test.each(refusals)('%s', async (_, make, code, argument) => {
    const out = device.upload(poisoned('f32', [7, 4, 24]))
    const args = { into: { out }, ...make() }
    let error: Partial<SparseMlaError> = {}
    try {
      densePrefill(device, args as unknown as DensePrefillArgs)
    } catch (thrown) {
      error = thrown as SparseMlaError
    }
    expect({ code: error.code, argument: error.argument, where: error.where }).toEqual({
      code,
      argument,
      where: 'densePrefill',
    })
    expect(bitsOf(await out.read())).toEqual(bitsOf(poisoned('f32', [7, 4, 24])))
    out.dispose()
  })

  test('outputs of another shape or dtype, over an input, over each other, disposed', () => {
    const code = (change: Change): ErrorCode | undefined => {
      try {
        densePrefill(device, { ...plain(), ...change } as unknown as DensePrefillArgs)
      } catch (thrown) {
        return (thrown as SparseMlaError).code
      }
      return undefined
    }
    const q = device.upload(plain().q as Tensor<'f32'>)
    const small = device.alloc('f32', [7, 4, 23])
    const half = device.alloc('bf16', [7, 4, 24])
    const whole = device.alloc('f32', [7, 4, 24])
    const gone = device.alloc('f32', [7, 4, 24])
    gone.dispose()
    expect(code({ into: { out: small } })).toBe('E_SHAPE')
    expect(code({ into: { out: half } })).toBe('E_DTYPE')
    expect(code({ q, into: { out: q.narrow(2, 0, 24) } })).toBe('E_OVERLAP')
    expect(code({ into: { out: whole, lse: whole.narrow(2, 0, 1).select(0, 0).narrow(1, 0, 1) } })).toBe('E_SHAPE')
    expect(code({ into: { out: whole, lse: whole.narrow(0, 0, 7).select(1, 0).narrow(1, 0, 4) } })).toBe('E_OVERLAP')
    expect(code({ into: { out: gone } })).toBe('E_DISPOSED')
    for (const t of [q, small, half, whole]) t.dispose()
  })

  test('tensors of another device', async () => {
    const other = await openCpuDevice({ threads: 1 })
    const mask = materialized(other.upload(f32(2, 4, 6)))
    expect(() => densePrefill(device, { ...plain(), mask } as unknown as DensePrefillArgs)).toThrow(/mask\.0/)
    await other.dispose()
  })
})

describe('a call', () => {
  test('needs no offsets for one sequence, and gives bf16 unless q is f32', async () => {
    const { q, keys, scale } = denseOperands({ queries: [3], keys: [5], variant: 'bf16' }) as unknown as Record<
      string,
      Change
    >
    const { nope, v, rope } = keys as Change
    const args = { q, keys: { nope, v, rope }, scale, mask: causal() } as unknown as DensePrefillArgs
    const { out, lse } = densePrefill(device, args)
    expect([out.dtype, out.shape, lse.dtype, lse.shape]).toEqual(['bf16', [3, 4, 24], 'f32', [3, 4]])
    expect(densePrefill(device, { ...args, outDtype: 'f32' }).out.dtype).toBe('f32')
  })

  test('can be planned without running', () => {
    const plan = densePrefill.plan(device, plain() as unknown as DensePrefillArgs)
    expect(plan).toMatchObject({ kind: 'cpu', op: 'densePrefill' })
    expect(plan.scratchBytes).toBeGreaterThan(0)
  })

  test('nanTensor holds NaN in every dtype that keys take', () => {
    for (const dtype of ['f32', 'bf16', 'e4m3'] as const)
      expect(nanTensor(dtype, [2]).floats().every(Number.isNaN)).toBe(true)
  })
})
