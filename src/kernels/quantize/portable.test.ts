import * as fc from 'fast-check'
import { afterAll, describe, expect, test } from 'vitest'
import { bitsOf } from '../../../test/gates.ts'
import { assembles } from '../../../test/gpu-cases.ts'
import { embedded, normals, poisonedOut } from '../../../test/row-cases.ts'
import { openCpuDevice } from '../../cpu/device.ts'
import { decodeValue } from '../../dtypes/convert.ts'
import { bitsFromF32, f32FromBits } from '../../dtypes/f32-bits.ts'
import { type QuantizeArgs, quantize } from '../../ops/quantize.ts'
import { SimDevice } from '../../sim/device.ts'
import { fromFloats, type Tensor, tensor } from '../../tensor/tensor.ts'
import { quantizeReference } from './reference.ts'

const device = new SimDevice('sm_90a')
const cpu = await openCpuDevice({ threads: 1 })
afterAll(() => Promise.all([device.dispose(), cpu.dispose()]))

type HostArgs = Omit<QuantizeArgs, 'x'> & { readonly x: Tensor<'f32' | 'bf16'> }

/** Codes and scales from a view into poisoned views, bit for bit those of the host. */
async function expectQuantized({ x, scaleBlock, powerOfTwoScales = false }: HostArgs): Promise<void> {
  const width = x.shape.at(-1)!
  const expected = quantizeReference(x, { scaleBlock: Math.min(scaleBlock, width), powerOfTwoScales })
  const wide = (perRow: number): number[] => [...x.shape.slice(0, -1), perRow + 3]
  const last = x.shape.length - 1
  const codes = poisonedOut(device, 'e4m3', wide(width)).narrow(last, 1, width)
  const perRow = scaleBlock === 0 ? 0 : Math.ceil(width / scaleBlock)
  const scales = scaleBlock === 0 ? undefined : poisonedOut(device, 'f32', wide(perRow)).narrow(last, 2, perRow)
  const into = { codes, ...(scales === undefined ? {} : { scales }) }
  quantize(device, { x: embedded(device, x, NaN), scaleBlock, powerOfTwoScales, into })
  expect((await codes.read()).codes()).toEqual(expected.codes)
  expect((await scales?.read())?.codes() ?? new Float32Array()).toEqual(expected.scales)
}

describe('quantize, bit for bit the host', () => {
  test.each([1, 5, 16, 100, 576, 1100])('width %i', async width => {
    for (const scaleBlock of [1, 30, 128, width])
      for (const powerOfTwoScales of [false, true])
        await expectQuantized({ x: normals('bf16', [2, width], width, 3), scaleBlock, powerOfTwoScales })
  })

  test.each([1e-12, 0.04, 1e4, 3e37])('values about %d, three axes', async scale => {
    await expectQuantized({ x: normals('f32', [2, 2, 96], 1, scale), scaleBlock: 32 })
    await expectQuantized({ x: normals('f32', [2, 2, 96], 1, scale), scaleBlock: 0 })
  })

  test('any bits, NaN and infinities among them', () =>
    fc.assert(
      fc.asyncProperty(
        fc.uint32Array({ minLength: 1, maxLength: 40 }),
        fc.nat(20),
        fc.boolean(),
        async (bits, scaleBlock, powerOfTwoScales) => {
          const x = tensor('f32', [1, bits.length], new Float32Array(Uint32Array.from(bits).buffer))
          await expectQuantized({ x, scaleBlock, powerOfTwoScales })
        },
      ),
      { seed: 7, numRuns: 60 },
    ))

  test('every tie and its neighbours between e4m3 values', async () => {
    const ties = Array.from({ length: 126 }, (_, c) => (decodeValue('e4m3', c) + decodeValue('e4m3', c + 1)) / 2)
    const near = (tie: number, step: number): number => f32FromBits(bitsFromF32(tie) + step)
    const values = ties.flatMap(tie => [tie, near(tie, 1), near(tie, -1)]).flatMap(value => [value, -value])
    await expectQuantized({ x: fromFloats('f32', [1, values.length], values), scaleBlock: 0 })
  })
})

test('NaN keeps its sign, as on the cpu device', async () => {
  const bits = Uint32Array.of(0x7fc00000, 0xffc00000, 0x3f800000, 0xffffffff, 0xff800000)
  const x = tensor('f32', [1, 5], new Float32Array(bits.buffer))
  for (const scaleBlock of [0, 5]) {
    const [here, there] = [quantize(device, { x, scaleBlock }), quantize(cpu, { x, scaleBlock })]
    expect(bitsOf(await here.codes.read())).toEqual(bitsOf(await there.codes.read()))
  }
})

assembles({
  'blocks of 128': d => quantize.plan(d, { x: normals('bf16', [2, 256], 1), scaleBlock: 128 }),
  'one scale a row': d =>
    quantize.plan(d, { x: normals('f32', [2, 2048], 1), scaleBlock: 2048, powerOfTwoScales: true }),
})
