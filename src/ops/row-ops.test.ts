import { afterAll, describe, expect, test } from 'vitest'
import { normals } from '../../test/row-cases.ts'
import { openCpuDevice } from '../cpu/device.ts'
import {
  DeviceError,
  DisposedError,
  DtypeError,
  IndexSpaceError,
  OptionError,
  OverlapError,
  ShapeError,
  ValueError,
} from '../errors.ts'
import { DeviceTensor } from '../tensor/device-tensor.ts'
import { logical, slots } from '../tensor/spaces.ts'
import { fromFloats, type Tensor, tensor, zeros } from '../tensor/tensor.ts'
import { appendToCache } from './append-to-cache.ts'
import { cast } from './cast.ts'
import { gatherFromCache } from './gather-from-cache.ts'
import { hadamard } from './hadamard.ts'
import { layerNorm } from './layer-norm.ts'
import { linear } from './linear.ts'
import { quantize } from './quantize.ts'
import { rmsNorm } from './rms-norm.ts'
import { rope } from './rope.ts'

const device = await openCpuDevice({ threads: 1 })
const other = await openCpuDevice({ threads: 1 })
afterAll(() => Promise.all([device.dispose(), other.dispose()]))

const x = normals('f32', [4, 8], 1)
const weight = normals('f32', [8], 2)
const remote = device.upload(x)
const gone = device.upload(x)
gone.dispose()
const i32 = (...values: number[]): Tensor<'i32'> => tensor('i32', [values.length], Int32Array.from(values))

type Kind = new (facts: never) => Error
/** What is wrong, the arguments that say so beside good ones, the error, and the argument it names. */
type Refusals = readonly (readonly [string, object, Kind, string])[]

function refuses(
  name: string,
  op: (target: typeof device, args: never) => unknown,
  good: object,
  cases: Refusals,
): void {
  describe(`${name} refuses`, () => {
    test('nothing of a good call', () => {
      expect(() => op(device, good as never)).not.toThrow()
    })

    test.each(cases)('%s', (_, wrong, kind, argument) => {
      const inUse = device.bytesInUse
      const call = (): unknown => op(device, { ...good, ...wrong } as never)
      expect(call).toThrow(kind)
      expect(call).toThrow(argument)
      expect(device.bytesInUse).toBe(inUse)
    })
  })
}

/** Of every operation whose first argument is x and whose output is like x. */
const common: Refusals = [
  ['an unknown option', { scale: 1 }, OptionError, 'scale'],
  ['a missing x', { x: undefined }, OptionError, 'x'],
  ['a typed array for x', { x: new Float32Array(32) }, DtypeError, 'x'],
  ['x of i32', { x: zeros('i32', [4, 8]) }, DtypeError, 'x'],
  ['x with four axes', { x: zeros('f32', [1, 1, 4, 8]) }, ShapeError, 'x'],
  ['a disposed x', { x: gone }, DisposedError, 'x'],
  ['x on another device', { x: other.upload(x) }, DeviceError, 'x'],
  ['an unknown output', { into: { result: remote } }, OptionError, 'into.result'],
  ['a host tensor to write into', { into: { out: x } }, DeviceError, 'into.out'],
  ['an output of another shape', { into: { out: device.alloc('f32', [4, 9]) } }, ShapeError, 'into.out'],
  ['an output of another dtype', { into: { out: device.alloc('i32', [4, 8]) } }, DtypeError, 'into.out'],
  ['an output over x', { x: remote, into: { out: remote } }, OverlapError, 'into.out'],
]

const norms: Refusals = [
  ['another output dtype', { outDtype: 'e4m3' }, OptionError, 'outDtype'],
  ['a missing eps', { eps: undefined }, OptionError, 'eps'],
  ['eps 0', { eps: 0 }, ValueError, 'eps'],
  ['an eps that is 0 in f32', { eps: 1e-50 }, ValueError, 'eps'],
  ['eps NaN', { eps: Number.NaN }, ValueError, 'eps'],
  ['a weight of another length', { weight: normals('f32', [7], 1) }, ShapeError, 'weight'],
  ['a missing weight', { weight: undefined }, OptionError, 'weight'],
  ['rows of no columns', { x: zeros('f32', [4, 0]), weight: zeros('f32', [0]) }, ShapeError, 'dim'],
]

refuses('rmsNorm', rmsNorm, { x, weight, eps: 1e-6 }, [...common, ...norms])
refuses('layerNorm', layerNorm, { x, weight, eps: 1e-6 }, [
  ...common,
  ...norms,
  ['a bias of another length', { bias: normals('f32', [1], 1) }, ShapeError, 'bias'],
])

refuses('hadamard', hadamard, { x }, [
  ...common,
  ['12 columns', { x: normals('f32', [2, 12], 1) }, ShapeError, 'x'],
  ['no columns', { x: zeros('f32', [2, 0]) }, ShapeError, 'dim'],
])

const table = { cos: normals('f32', [5, 2], 3), sin: normals('f32', [5, 2], 4) }
const turn = { x, ...table, positions: i32(0, 1, 4, 0), style: 'interleaved', start: 2, length: 4 }
refuses('rope', rope, turn, [
  ...common,
  ['a missing style', { style: undefined }, OptionError, 'style'],
  ['an unknown style', { style: 'neox' }, OptionError, 'style'],
  ['a missing start', { start: undefined }, OptionError, 'start'],
  ['a start past the columns', { start: 9 }, ValueError, 'start'],
  ['columns past the end', { start: 5 }, ValueError, 'length'],
  ['an odd length', { length: 3 }, ValueError, 'length'],
  ['a table of another width', { length: 6 }, ShapeError, 'cos'],
  ['sines of other positions', { sin: normals('f32', [6, 2], 1) }, ShapeError, 'sin'],
  ['positions of another length', { positions: i32(0, 1) }, ShapeError, 'positions'],
  ['f32 positions', { positions: normals('f32', [4], 1) }, DtypeError, 'positions'],
  ['a position past the table', { positions: i32(0, 5, 1, 1) }, ValueError, 'positions[1]'],
  ['a negative position', { positions: i32(0, 0, 1, -1) }, ValueError, 'positions[3]'],
])

/** e4m3 codes in the memory of `remote`. */
const cover = new DeviceTensor(
  { dtype: 'e4m3', shape: [4, 8], strides: [8, 1], offset: 0, dims: undefined, space: undefined },
  remote.allocation,
)
const noOut = common.filter(([, wrong]) => !('into' in wrong))
refuses('quantize', quantize, { x, scaleBlock: 4 }, [
  ...noOut,
  ['a missing scaleBlock', { scaleBlock: undefined }, OptionError, 'scaleBlock'],
  ['a negative scaleBlock', { scaleBlock: -1 }, ValueError, 'scaleBlock'],
  ['a broken scaleBlock', { scaleBlock: 1.5 }, ValueError, 'scaleBlock'],
  ['powerOfTwoScales as a number', { powerOfTwoScales: 1 }, OptionError, 'powerOfTwoScales'],
  ['FQ-15: bf16 scales', { into: { scales: device.alloc('bf16', [4, 2]) } }, DtypeError, 'into.scales'],
  ['scales of another shape', { into: { scales: device.alloc('f32', [4, 1]) } }, ShapeError, 'into.scales'],
  [
    'scales without a scaleBlock',
    { scaleBlock: 0, into: { scales: device.alloc('f32', [4, 1]) } },
    OptionError,
    'scales',
  ],
  ['codes over x', { x: remote, into: { codes: cover } }, OverlapError, 'codes'],
])

refuses('cast', cast, { x, dtype: 'f32' }, [
  ...common,
  ['a missing dtype', { dtype: undefined }, OptionError, 'dtype'],
  ['an integer dtype', { dtype: 'i32' }, OptionError, 'dtype'],
])

const square = normals('bf16', [8, 8], 5)
refuses('linear', linear, { x, weight: square }, [
  ...common,
  ['a weight of other inputs', { weight: normals('f32', [3, 7], 1) }, ShapeError, 'weight'],
  ['a weight per head for rows without heads', { weight: normals('f32', [2, 3, 8], 1) }, ShapeError, 'weight'],
  ['one weight for rows with heads', { x: normals('f32', [2, 3, 8], 1) }, ShapeError, 'weight'],
  ['a weight of e5m2', { weight: square.cast('e5m2') }, DtypeError, 'weight'],
  ['scales of a bf16 weight', { weightScale: normals('f32', [1, 1], 1) }, OptionError, 'weightScale'],
  [
    'scales of another shape',
    { weight: square.cast('e4m3'), weightScale: normals('f32', [1, 2], 1) },
    ShapeError,
    'weightScale',
  ],
  [
    'FQ-15: bf16 scales',
    { weight: square.cast('e4m3'), weightScale: normals('bf16', [1, 1], 1) },
    DtypeError,
    'weightScale',
  ],
  ['another output dtype', { outDtype: 'f16' }, OptionError, 'outDtype'],
  ['no outputs', { weight: zeros('f32', [0, 8]) }, ShapeError, 'out'],
])

const pool = { format: 'plain', values: device.alloc('f32', [2, 1, 4, 576]), scaleBlock: 0, layer: 0 }
const keys = { format: 'pools', values: device.alloc('e4m3', [2, 1, 4, 64]), depth: 64, layer: 0 }
const scales = device.alloc('f32', [2, 1, 4])
const rows = normals('f32', [3, 576], 6)
const at = slots(i32(0, 1, 2))
const append = { latent: pool, latentRows: rows, slots: at }

refuses('appendToCache', appendToCache, append, [
  ['no pool', { latent: undefined }, OptionError, 'latent'],
  ['a pool without rows', { latentRows: undefined }, OptionError, 'latentRows'],
  ['rows without a pool', { indexRows: rows }, OptionError, 'indexRows'],
  ['rows of another width', { latentRows: normals('f32', [3, 512], 1) }, ShapeError, 'latentRows'],
  ['rows of e4m3', { latentRows: rows.cast('e4m3') }, DtypeError, 'latentRows'],
  ['slots of another length', { slots: slots(i32(0, 1)) }, ShapeError, 'slots'],
  ['logical positions', { slots: logical(i32(0, 1, 2)) }, IndexSpaceError, 'slots'],
  ['undeclared slots', { slots: i32(0, 1, 2) }, IndexSpaceError, 'slots'],
  ['missing slots', { slots: undefined }, OptionError, 'slots'],
  ['a pool on the host', { latent: { ...pool, values: zeros('f32', [2, 1, 4, 576]) } }, DeviceError, 'latent.values'],
  ['a typed array as pool', { latent: { ...pool, values: new Float32Array(9) } }, DtypeError, 'latent.values'],
  [
    'a pool of another width',
    { latent: { ...pool, values: device.alloc('f32', [1, 1, 4, 500]) } },
    ValueError,
    'width',
  ],
  ['a layer past the pool', { latent: { ...pool, layer: 1 } }, ValueError, 'layer'],
  ['scales of f32 rows', { latent: { ...pool, scales } }, OptionError, 'scales'],
  ['an unknown part of a pool', { latent: { ...pool, offset: 4 } }, OptionError, 'latent.offset'],
  ['e4m3 keys without scales', { index: keys, indexRows: normals('f32', [3, 64], 1) }, OptionError, 'scales'],
  ['FQ-15: bf16 scales', { index: { ...keys, scales: device.alloc('bf16', [2, 1, 4]) } }, DtypeError, 'scales'],
  ['rows that lie in the pool', { latentRows: pool.values.reshape([8, 576]).narrow(0, 0, 3) }, OverlapError, 'latent'],
  ['powerOfTwoScales as a word', { powerOfTwoScales: 'yes' }, OptionError, 'powerOfTwoScales'],
  ['an unknown option', { blockTable: at }, OptionError, 'blockTable'],
])

refuses('gatherFromCache', gatherFromCache, { latent: pool, slots: at }, [
  ['no pool', { latent: undefined }, OptionError, 'latent'],
  ['two pools', { index: { ...keys, scales } }, OptionError, 'latent'],
  ['logical positions', { slots: logical(i32(0)) }, IndexSpaceError, 'slots'],
  ['slots with three axes', { slots: slots(zeros('i32', [1, 1, 1])) }, ShapeError, 'slots'],
  ['an output of another width', { into: { out: device.alloc('f32', [3, 512]) } }, ShapeError, 'into.out'],
  ['an output in the pool', { into: { out: pool.values.reshape([8, 576]).narrow(0, 0, 3) } }, OverlapError, 'into.out'],
])

test('packed bytes that begin off a multiple of 4 are refused, since their scales could not be read', () => {
  const bytes = device.alloc('u8', [1, 1, 2, 657]).narrow(3, 1, 656)
  const latent = { format: 'packed656', values: bytes, scaleBlock: 128, layer: 0 } as const
  expect(() => gatherFromCache(device, { latent, slots: at })).toThrow(ShapeError)
  expect(() =>
    appendToCache(device, { latent, latentRows: fromFloats('f32', [3, 576], rows.data), slots: at }),
  ).toThrow(ShapeError)
})
