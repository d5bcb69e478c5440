import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { prefillCase, slotList } from '../../test/latent-cases.ts'
import { type Refusal, refuses } from '../../test/refusals.ts'
import { ints, normals } from '../conformance/data.ts'
import { seeded } from '../conformance/random.ts'
import { type CpuDevice, openCpuDevice } from '../cpu/device.ts'
import { latentLayouts } from '../tensor/cache-layout.ts'
import { allocLatentPool } from '../tensor/pool-alloc.ts'
import { logical, rows } from '../tensor/spaces.ts'
import { fromFloats, type Tensor, zeros } from '../tensor/tensor.ts'
import { type SparsePrefillArgs, sparsePrefill } from './sparse-prefill.ts'

let device: CpuDevice
beforeAll(async () => {
  device = await openCpuDevice({ threads: 1 })
})
afterAll(() => device.dispose())

const extents = { blocks: 2, layers: 1, pageSize: 4 }
const pool = (name: keyof typeof latentLayouts) => allocLatentPool(latentLayouts[name], extents, zeros)
const f32 = (...shape: number[]) => zeros('f32', shape)

const { args: prefill } = prefillCase({ tokens: 2, heads: 64, topk: 8 })
const indices = prefill.indices as Tensor<'i32'> & SparsePrefillArgs['indices']
const plainIndices = ints('i32', indices.shape, indices.codes())

describe('sparsePrefill refuses', () => {
  test.each<Refusal>([
    [
      'SA-17: no scale',
      { scale: undefined },
      'E_OPTION',
      'scale is missing; expected a finite number (1/sqrt(192) * mscale^2 for DeepSeek-V3.2)',
    ],
    ['a NaN scale', { scale: NaN }, 'E_VALUE', 'scale is NaN; expected a finite number'],
    ['an infinite scale', { scale: -Infinity }, 'E_VALUE', 'scale is -Infinity; expected a finite number'],
    ['a scale beyond f32', { scale: 1e39 }, 'E_VALUE', 'scale is 1e+39; expected a finite number'],
    ['a scale of another type', { scale: '0.07' }, 'E_VALUE', 'scale is 0.07; expected a finite number'],
    [
      'an unknown option',
      { softmaxScale: 1 },
      'E_OPTION',
      'softmaxScale is an unknown option; expected one of q, qScale,',
    ],
    ['no q', { q: undefined }, 'E_OPTION', 'q is missing; expected f32 or bf16 or e4m3 [tokens, heads, width]'],
    [
      'q of f16',
      { q: prefill.q.narrow(0, 0, 2) && (prefill.q as Tensor<'bf16'>).cast('f16') },
      'E_DTYPE',
      'q is f16; expected f32 or bf16 or e4m3',
    ],
    [
      'a typed array',
      { q: new Float32Array(4) },
      'E_DTYPE',
      'q is Float32Array; expected a tensor of f32 or bf16 or e4m3 [tokens, heads, width]',
    ],
    ['q of two axes', { q: zeros('bf16', [2, 576]) }, 'E_SHAPE', 'q is [2, 576]; expected [tokens, heads, width]'],
    ['129 heads', { q: zeros('bf16', [2, 129, 576]) }, 'E_SHAPE', 'heads is 129 (q [2, 129, 576]); expected 1..128'],
    ['no heads', { q: zeros('bf16', [2, 0, 576]) }, 'E_SHAPE', 'heads is 0 (q [2, 0, 576]); expected 1..128'],
    [
      'another width',
      { q: zeros('bf16', [2, 64, 128]) },
      'E_SHAPE',
      'q is [2, 64, 128]; expected width 576, or 512 without rope',
    ],
    [
      'q of 512 over rows of 576',
      { q: zeros('bf16', [2, 64, 512]) },
      'E_SHAPE',
      'cache.values is [4, 2, 16, 576]; expected',
    ],
    ['qScale beside bf16', { qScale: f32(2, 64) }, 'E_OPTION', 'qScale is a tensor; expected none unless q is e4m3'],
    [
      'no cache',
      { cache: undefined },
      'E_OPTION',
      'cache is missing; expected an object of format, values, scales, scaleBlock, layer',
    ],
    ['a cache that is not one', { cache: prefill.cache.values }, 'E_OPTION', 'cache.'],
    [
      'an unknown member of the cache',
      { cache: { ...prefill.cache, pageSize: 64 } },
      'E_OPTION',
      'cache.pageSize is an unknown option',
    ],
    [
      'another format',
      { cache: { ...prefill.cache, format: 'paged' } },
      'E_OPTION',
      'cache.format is paged; expected plain or packed656',
    ],
    ['f32 rows for q of bf16', { cache: pool('f32') }, 'E_DTYPE', 'cache.values is f32; expected bf16 or e4m3'],
    [
      'packed rows for q of f32',
      { q: f32(2, 64, 576), cache: pool('packed656') },
      'E_OPTION',
      'cache.format is packed656; expected plain',
    ],
    [
      'packed rows of 640 bytes',
      { cache: { ...pool('packed656'), values: zeros('u8', [2, 1, 4, 640]) } },
      'E_SHAPE',
      'cache.values is [2, 1, 4, 640]',
    ],
    [
      'a layer beyond the pool',
      { cache: { ...prefill.cache, layer: 2 } },
      'E_VALUE',
      'cache.layer is 2; expected an integer in 0..1',
    ],
    [
      'no layer',
      { cache: { ...prefill.cache, layer: undefined } },
      'E_OPTION',
      'cache.layer is missing; expected an integer in 0..1',
    ],
    [
      'pages of no rows',
      { cache: { ...prefill.cache, values: zeros('bf16', [2, 1, 0, 576]), layer: 0 } },
      'E_SHAPE',
      'pageSize of cache is 0',
    ],
    [
      'scales without scaleBlock',
      { cache: { ...pool('fp8'), scales: f32(2, 1, 4, 1) } },
      'E_OPTION',
      'cache.scales is a tensor; expected none',
    ],
    [
      'scaleBlock without scales',
      { cache: { ...pool('fp8'), scaleBlock: 576 } },
      'E_OPTION',
      'cache.scales is missing; expected f32',
    ],
    [
      'too few scales',
      { cache: { ...pool('fp8-block128'), scales: f32(2, 1, 4, 4) } },
      'E_SHAPE',
      'cache.scales is [2, 1, 4, 4]; expected',
    ],
    [
      'FQ-15: scales of bf16',
      { cache: { ...pool('fp8-token'), scales: zeros('bf16', [2, 1, 4, 1]) } },
      'E_DTYPE',
      'cache.scales is bf16; expected f32',
    ],
    [
      'blocks of 100 columns',
      { cache: { ...pool('fp8'), scaleBlock: 100 } },
      'E_VALUE',
      'cache.scaleBlock is 100; expected 0, a multiple of 16, or at least 576',
    ],
    [
      'block scales beside q of e4m3',
      { q: zeros('e4m3', [2, 64, 576]), cache: pool('fp8-block128') },
      'E_VALUE',
      'cache.scaleBlock is 128; expected 0 or at least 576 with q of e4m3',
    ],
    [
      'scaled bf16',
      { cache: { ...prefill.cache, scaleBlock: 576 } },
      'E_VALUE',
      'cache.scaleBlock is 576; expected 0 for rows that are not e4m3',
    ],
    ['no indices', { indices: undefined }, 'E_OPTION', 'indices is missing; expected i32 or u32 [tokens, topk]'],
    [
      'SA-13: indices of no declared space',
      { indices: plainIndices },
      'E_SPACE',
      'indices is not declared; expected slot indices (declare the space with logical(), slots() or rows())',
    ],
    [
      'SA-13: logical indices',
      { indices: logical(plainIndices) },
      'E_SPACE',
      'indices is logical; expected slot indices',
    ],
    ['SA-13: row indices', { indices: rows(plainIndices) }, 'E_SPACE', 'indices is row; expected slot indices'],
    [
      'indices of other tokens',
      { indices: slotList([3, 8], new Array<number>(24).fill(0)) },
      'E_SHAPE',
      'indices is [3, 8]; expected 2 tokens (as in q [2, 64, 576]) in [tokens, topk]',
    ],
    [
      'indices of f32',
      { indices: fromFloats('f32', [2, 8], new Float32Array(16)).withSpace('slot') },
      'E_DTYPE',
      'indices is f32; expected i32 or u32',
    ],
    [
      'lists of nothing',
      { indices: slotList([2, 0], []), topkLength: undefined },
      'E_SHAPE',
      'topk is 0 (indices [2, 0]); expected 1..2147483647',
    ],
    [
      'topkLength of others',
      { topkLength: ints('i32', [3], [1, 1, 1]) },
      'E_SHAPE',
      'topkLength is [3]; expected 2 tokens',
    ],
    [
      'SA-08: 63 sinks for 64 heads',
      { sink: f32(63) },
      'E_SHAPE',
      'sink is [63]; expected 64 heads (as in q [2, 64, 576]) in [heads]',
    ],
    ['SA-08: sinks of bf16', { sink: zeros('bf16', [64]) }, 'E_DTYPE', 'sink is bf16; expected f32'],
    ['e4m3 output', { outDtype: 'e4m3' }, 'E_OPTION', 'outDtype is e4m3; expected f32 or bf16'],
    [
      'an unknown output',
      { into: { output: 1 } },
      'E_OPTION',
      'into.output is an unknown option; expected one of out, lse, maxLogits',
    ],
    [
      'a host tensor as output',
      { into: { lse: f32(2, 64) } },
      'E_DEVICE',
      'into.lse is a host tensor; expected a device tensor to write into',
    ],
  ])('%s', (_, args, code, message) =>
    refuses(
      device,
      () => sparsePrefill(device, { ...prefill, ...args } as SparsePrefillArgs),
      code,
      `sparsePrefill: ${message}`,
    ),
  )

  test('device tensors that are disposed, of another device, too small, or over an input', async () => {
    await using other = await openCpuDevice({ threads: 1 })
    const random = seeded(1)
    const q = normals(random, 'bf16', [2, 64, 576])
    const gone = device.upload(q)
    gone.dispose()
    const cases: readonly Refusal[] = [
      ['', { q: gone }, 'E_DISPOSED', 'q is disposed bf16 [2, 64, 576]; expected a tensor not yet disposed'],
      ['', { q: other.upload(q) }, 'E_DEVICE', 'q is on cpu; expected a tensor of the device cpu given'],
      ['', { into: { out: other.alloc('bf16', [2, 64, 512]) } }, 'E_DEVICE', 'out is on cpu'],
      ['', { into: { out: device.alloc('f32', [2, 64, 512]) } }, 'E_DTYPE', 'into.out is f32; expected bf16'],
      [
        '',
        { into: { out: device.alloc('bf16', [2, 63, 512]) } },
        'E_SHAPE',
        'into.out is [2, 63, 512]; expected 64 heads',
      ],
    ]
    for (const [, args, code, message] of cases)
      refuses(device, () => sparsePrefill(device, { ...prefill, ...args } as SparsePrefillArgs), code, message)
    const shared = device.upload(normals(random, 'bf16', [2, 64, 576 + 512]))
    const overlapping = { ...prefill, q: shared.narrow(2, 0, 576), into: { out: shared.narrow(2, 576, 512) } }
    refuses(
      device,
      () => sparsePrefill(device, overlapping),
      'E_OVERLAP',
      'is memory of q; expected an output that shares no memory',
    )
    const pair = device.alloc('f32', [2, 64])
    const twice = { ...prefill, into: { lse: pair, maxLogits: pair } }
    refuses(
      device,
      () => sparsePrefill(device, twice),
      'E_OVERLAP',
      'is memory of into.lse; expected an output that shares no memory',
    )
  })

  test('a disposed device', async () => {
    const closed = await openCpuDevice({ threads: 1 })
    await closed.dispose()
    expect(() => sparsePrefill(closed, prefill)).toThrow(expect.objectContaining({ code: 'E_DISPOSED' }))
  })
})
