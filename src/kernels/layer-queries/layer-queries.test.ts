import { expect, test } from 'vitest'
import { assemble, hasPtxas } from '../../../test/ptxas.ts'
import { expectSameBits, normals } from '../../../test/row-cases.ts'
import type { GpuPlan } from '../../lang/launch.ts'
import { type LayerQueriesArgs, layerQueries } from '../../ops/layer-queries.ts'
import { multiply } from '../../ops/multiply.ts'
import { quantize } from '../../ops/quantize.ts'
import { rope } from '../../ops/rope.ts'
import { printPtx } from '../../ptx/print.ts'
import { SimDevice } from '../../sim/device.ts'
import type { DeviceTensor } from '../../tensor/device-tensor.ts'
import { tensor } from '../../tensor/tensor.ts'

const device = new SimDevice('sm_90a')
const [tokens, heads, indexHeads, factor] = [3, 5, 6, 0.03]

function argsOf(dtype: 'f32' | 'bf16', outDtype: 'f32' | 'bf16'): LayerQueriesArgs {
  const wide = device.upload(normals(dtype, [tokens, heads, 200], 1))
  const x = normals(dtype, [tokens, indexHeads, 128], 2)
  x.data.fill(0, 0, 128)
  x.data[128 + 70] = dtype === 'f32' ? Infinity : 0x7f80
  x.data[256 + 90] = dtype === 'f32' ? Number.NaN : 0x7fc0
  const weights = device.upload(normals('f32', [tokens, indexHeads + 3], 3)).narrow(1, 2, indexHeads)
  return {
    q: wide.narrow(2, 130, 64),
    x: device.upload(x),
    weights,
    cos: device.upload(normals('f32', [9, 32], 4)),
    sin: device.upload(normals('f32', [9, 32], 5)),
    positions: device.upload(tensor('i32', [tokens], Int32Array.of(8, 0, 9))),
    mlaStyle: 'interleaved',
    indexerStyle: 'half-split',
    factor,
    into: { out: device.alloc(outDtype, [tokens, heads, 70]).narrow(2, 3, 64) },
  }
}

test.each([
  ['bf16', 'bf16', 'interleaved', 'half-split'],
  ['f32', 'f32', 'half-split', 'interleaved'],
  ['bf16', 'f32', 'interleaved', 'interleaved'],
] as const)(
  '%s to %s, %s and %s: the bits of the operations one by one',
  async (dtype, outDtype, mlaStyle, indexerStyle) => {
    const args = { ...argsOf(dtype, outDtype), mlaStyle, indexerStyle }
    const { q, x, weights, cos, sin, positions } = args
    const made = layerQueries(device, args)
    const angles = { cos, sin, positions, start: 0, length: 64 }
    const out = rope(device, { x: q, ...angles, style: mlaStyle, outDtype }).out
    const turned = rope(device, { x, ...angles, style: indexerStyle, outDtype: 'f32' }).out
    const { codes, scales } = quantize(device, { x: turned, scaleBlock: 128 })
    const flat = (scales as DeviceTensor<'f32'>).reshape([tokens, indexHeads])
    const qScale = multiply(device, { x: weights, y: flat, factor }).out
    expectSameBits((await made.out.read()).clone(), await out.read())
    expect((await made.codes.read()).codes()).toEqual((await codes.read()).codes())
    expectSameBits(await made.qScale.read(), await qScale.read())
  },
)

test('GPUs alone have it', () => expect(layerQueries.devices).toEqual(['cuda', 'sim']))

test.runIf(hasPtxas)('ptxas accepts it without spills', async () => {
  const { launches } = layerQueries.plan(device, argsOf('bf16', 'bf16')) as GpuPlan
  expect(await assemble(printPtx(launches[0]!.kernel), 'sm_90a')).toMatchObject({ spilledBytes: 0, complaints: [] })
})
