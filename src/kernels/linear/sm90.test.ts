import { afterAll, describe, expect, test } from 'vitest'
import { assemble, hasPtxas, rolesAlone } from '../../../test/ptxas.ts'
import { expectRounded, expectSameBits, normals, poisonedOut } from '../../../test/row-cases.ts'
import type { Device } from '../../device.ts'
import type { GpuPlan } from '../../lang/launch.ts'
import { type LinearArgs, linear } from '../../ops/linear.ts'
import { printPtx } from '../../ptx/print.ts'
import { SimDevice } from '../../sim/device.ts'
import type { DeviceTensor } from '../../tensor/device-tensor.ts'
import { type Tensor, tensor } from '../../tensor/tensor.ts'
import { linearReference } from './reference.ts'
import { traceLinearFew } from './sm90-few.ts'
import { traceLinearMany } from './sm90-many.ts'

const device = new SimDevice('sm_90a')
afterAll(() => device.dispose())

type HostArgs = Omit<LinearArgs, 'x' | 'weight'> & {
  readonly x: Tensor<'bf16'>
  readonly weight: Tensor<'bf16'>
}

/** Tensor cores cut sums off instead of rounding them: one unit for each step of 16 columns, and one for the result. */
const roundingsOf = (inputs: number): number => Math.ceil(inputs / 16) + 4

const kernelOf = (on: Device, args: LinearArgs): string => (linear.plan(on, args) as GpuPlan).launches[0]!.kernel.name

/** A view of a wider tensor that holds NaN elsewhere, its start and rows at multiples of 16 bytes. */
function embedded(on: Device, source: Tensor<'bf16'>): DeviceTensor<'bf16'> {
  const width = source.shape.at(-1)!
  const wide = Math.ceil(width / 8) * 8 + 16
  const rows = source.size / width
  const codes = new Uint16Array(rows * wide).fill(0x7fc0)
  for (let row = 0; row < rows; row++) codes.set(source.data.subarray(row * width, (row + 1) * width), row * wide + 8)
  const shape = [...source.shape.slice(0, -1), wide]
  return on.upload(tensor('bf16', shape, codes)).narrow(shape.length - 1, 8, width)
}

/** Views with NaN around into a view of poison, against float64. */
async function expectLinear(
  { x, weight, outDtype = 'bf16', ...options }: HostArgs,
  on: Device = device,
): Promise<Tensor> {
  const shape = [...x.shape.slice(0, -1), weight.shape.at(-2)!]
  const target = poisonedOut(on, outDtype, [...shape.slice(0, -1), shape.at(-1)! + 16])
  const out = target.narrow(shape.length - 1, 8, shape.at(-1)!)
  const args = { x: embedded(on, x), weight: embedded(on, weight), outDtype, into: { out }, ...options }
  expect(kernelOf(on, args)).toContain('sm90')
  linear(on, args)
  const host = (await out.read()).clone()
  const expected = linearReference({ x, weight })
  expectRounded(host, expected.out, roundingsOf(x.shape.at(-1)!), expected.absolute)
  return host
}

const random = (tokens: number, inputs: number, outputs: number): { x: Tensor<'bf16'>; weight: Tensor<'bf16'> } => ({
  x: normals('bf16', [tokens, inputs], inputs),
  weight: normals('bf16', [outputs, inputs], outputs),
})

describe('few tokens, on the simulator without findings', () => {
  test.each([
    [1, 64, 128],
    [3, 72, 131],
    [9, 520, 40],
    [128, 16, 136],
    [33, 16, 130],
  ])('%i tokens, %i inputs, %i outputs', async (tokens, inputs, outputs) => {
    for (const outDtype of ['bf16', 'f32'] as const)
      await expectLinear({ ...random(tokens, inputs, outputs), outDtype })
  })

  test('blocks of a cluster share the columns', async () => {
    const args = { ...random(2, 1032, 20), outDtype: 'f32' } as const
    expect(kernelOf(device, args)).toBe('linear_sm90_few_f32_8_8')
    await expectLinear(args)
    await expectLinear(args, new SimDevice('sm_90a', { seed: 3 }))
  })

  test('a weight per head', async () => {
    await expectLinear({ x: normals('bf16', [3, 2, 40], 5), weight: normals('bf16', [2, 136, 40], 6), outDtype: 'f32' })
  })
})

describe('many tokens, on the simulator without findings', () => {
  test.each([
    [257, 72, 8, 'bf16'],
    [130, 40, 136, 'f32'],
  ] as const)('%i tokens, %i inputs, %i outputs to %s', async (tokens, inputs, outputs, outDtype) => {
    await expectLinear({ ...random(tokens, inputs, outputs), outDtype })
  })

  test('tiles of 256 outputs, several a pair of blocks, more stages than the ring has', async () => {
    const args = { ...random(129, 328, 264), batchInvariant: true }
    const two = new SimDevice('sm_90a', { seed: 5 })
    await expectLinear(args, Object.assign(two, { limits: { ...two.limits, workers: 2 } }))
  })

  test('a weight per head', async () => {
    const [x, weight] = [normals('bf16', [131, 2, 24], 5), normals('bf16', [2, 16, 24], 6)]
    await expectLinear({ x, weight })
  })

  test('batch-invariant: a token alone has the bits it has among many', async () => {
    const { x, weight } = random(140, 72, 16)
    const options = { weight, batchInvariant: true, outDtype: 'f32' } as const
    const whole = await linear(device, { x, ...options }).out.read()
    for (const t of [0, 139])
      expectSameBits(await linear(device, { x: x.narrow(0, t, 1), ...options }).out.read(), whole.narrow(0, t, 1))
  })
})

test('other dtypes and strides that tensor maps do not take go to the portable kernel', () => {
  const { x, weight } = random(2, 72, 8)
  expect(kernelOf(device, { x: x.cast('f32'), weight })).toContain('linear_few')
  expect(kernelOf(device, { x, weight: weight.cast('f32') })).toContain('linear_few')
  const odd = device.upload(x).narrow(1, 1, 70)
  expect(kernelOf(device, { x: odd, weight: weight.narrow(1, 0, 70) })).toContain('linear_few')
  expect(kernelOf(new SimDevice('sm_80'), { x, weight })).toContain('linear_few')
})

describe.runIf(hasPtxas)('ptxas keeps every register and every multiply asynchronous', () => {
  const outDtypes = ['bf16', 'f32'] as const
  const kernels = [
    ...outDtypes.flatMap(outDtype => ([128, 256] as const).map(outputs => traceLinearMany({ outDtype, outputs }))),
    ...([8, 32, 128] as const).map(tokens =>
      traceLinearFew({ outDtype: 'f32', tokens, splits: 4, settled: tokens === 8, aligned: tokens > 8 }),
    ),
    traceLinearFew({ outDtype: 'bf16', tokens: 16, splits: 1, settled: true, aligned: true }),
  ]
  test.each(kernels.map(kernel => [kernel.name, kernel] as const))('%s', async (_name, kernel) => {
    const clean = { spilledBytes: 0, complaints: [] }
    expect(await assemble(printPtx(kernel), 'sm_90a')).toMatchObject(clean)
    for (const { registers, ptx } of rolesAlone(kernel)) {
      const alone = await assemble(ptx, 'sm_90a')
      expect(alone).toMatchObject(clean)
      expect(alone.registers).toBeLessThanOrEqual(registers)
    }
  })
})
