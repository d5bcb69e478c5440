import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { expectGate, type GateReport, sameBits } from '../../test/gates.ts'
import { widened } from '../../test/widened.ts'
import { collect, normals, poisonedOutputs } from '../conformance/data.ts'
import { compare } from '../conformance/gate.ts'
import { seeded } from '../conformance/random.ts'
import { type CpuDevice, openCpuDevice } from '../cpu/device.ts'
import { type AttentionState, mergeStatesReference } from '../kernels/merge-states/reference.ts'
import { fromFloats, type Tensor } from '../tensor/tensor.ts'
import { type MergeStatesArgs, mergeStates } from './merge-states.ts'

let device: CpuDevice
beforeAll(async () => {
  device = await openCpuDevice({ threads: 1 })
})
afterAll(() => device.dispose())

interface Merged {
  readonly out: Tensor<'f32' | 'bf16'>
  readonly lse: Tensor<'f32'>
}

async function merge(args: MergeStatesArgs, on: CpuDevice = device): Promise<Merged> {
  const shape = args.out[0]!.shape
  const dtype = args.outDtype ?? (args.out.some(t => t.dtype === 'f32') ? 'f32' : 'bf16')
  const into = poisonedOutputs(on, { out: [dtype, shape], lse: ['f32', shape.slice(0, 2)] })
  mergeStates(on, { ...args, into })
  return collect(into)
}

/** One token, one head. */
const row = (lse: number, ...out: number[]) => ({
  out: fromFloats('f32', [1, 1, out.length], out),
  lse: fromFloats('f32', [1, 1], [lse]),
})

const mergeRows = async (parts: ReturnType<typeof row>[], sink?: number): Promise<number[]> => {
  const { out, lse } = await merge({
    out: parts.map(p => p.out),
    lse: parts.map(p => p.lse),
    sink: sink === undefined ? undefined : fromFloats('f32', [1], [sink]),
  })
  return [...out.floats(), ...lse.floats()]
}

describe('by hand', () => {
  test('SA-09: sums of 2 and 8, outputs 0 and 1, natural logarithms: 0.8', async () => {
    const [out, lse] = await mergeRows([row(Math.log(2), 0), row(Math.log(8), 1)])
    expect(out).toBeCloseTo(0.8, 6)
    expect(lse).toBeCloseTo(Math.log(10), 6)
  })

  test('the sink joins once, and not the lse', async () => {
    const [out, lse] = await mergeRows([row(Math.log(2), 0), row(Math.log(8), 1)], Math.log(10))
    expect(out).toBeCloseTo(0.4, 6)
    expect(lse).toBeCloseTo(Math.log(10), 6)
  })

  test('DP-01: all parts empty give 0 and -inf, whatever their outputs and the sink', async () => {
    const parts = [row(-Infinity, NaN, 3), row(-Infinity, -Infinity, 1)]
    for (const sink of [undefined, 0, Infinity, -Infinity])
      expect(await mergeRows(parts, sink)).toEqual([0, 0, -Infinity])
  })

  test('DP-01: a later part with keys restores the row', async () => {
    const parts = [row(-Infinity, NaN, NaN), row(-Infinity, 1, 1), row(-2.5, 0.75, -3)]
    expect(await mergeRows(parts)).toEqual([0.75, -3, -2.5])
  })

  test('DP-03: +inf marks an empty part as -inf does', async () => {
    expect(await mergeRows([row(Infinity, NaN), row(1, 5), row(-Infinity, NaN)])).toEqual([5, 1])
    expect(await mergeRows([row(Infinity, 7), row(Infinity, 8)])).toEqual([0, -Infinity])
  })

  test('one part alone keeps its bits', async () =>
    expect(await mergeRows([row(3.25, 0.1, -7)])).toEqual([Math.fround(0.1), -7, 3.25]))

  test('lse far from 0 and far apart', async () => {
    expect(await mergeRows([row(-3e38, 1), row(-3e38, 3)])).toEqual([2, Math.fround(-3e38)])
    expect(await mergeRows([row(3e38, 1), row(-3e38, 3)])).toEqual([1, Math.fround(3e38)])
    expect((await mergeRows([row(100, 1), row(0, 3)], 180))[0]! / Math.exp(-80)).toBeCloseTo(1, 6)
  })

  test('sinks of -inf and -1e38 are neutral, +inf gives 0', async () => {
    const parts = [row(0.3, 1), row(-0.4, 2)]
    const plain = await mergeRows(parts)
    for (const sink of [-Infinity, -1e38]) expect(await mergeRows(parts, sink)).toEqual(plain)
    expect(await mergeRows(parts, Infinity)).toEqual([0, plain[1]])
  })

  test('NaN of a part that is not empty propagates, in out and in lse', async () => {
    expect(await mergeRows([row(0, NaN, 1), row(0, 2, 3)])).toEqual([NaN, 2, Math.fround(Math.log(2))])
    expect(await mergeRows([row(NaN, 1), row(0, 2)])).toEqual([NaN, NaN])
  })
})

interface Parts extends MergeStatesArgs {
  readonly out: readonly Tensor<'f32' | 'bf16'>[]
  readonly lse: readonly Tensor<'f32'>[]
  readonly sink: Tensor<'f32'>
}

function randomParts(shape: readonly [number, number, number], dtypes: readonly ('f32' | 'bf16')[]): Parts {
  const random = seeded(shape[2])
  const lse = dtypes.map(() => normals(random, 'f32', shape.slice(0, 2), 3))
  for (const t of lse)
    for (const i of t.data.keys()) if (random.int(4) === 0) t.data[i] = random.int(2) === 0 ? -Infinity : Infinity
  return { out: dtypes.map(dtype => normals(random, dtype, shape)), lse, sink: normals(random, 'f32', [shape[1]]) }
}

/** Within 8 roundings of f32, or the one of bf16, of the sum of absolute terms. */
function expectMerged({ out, lse }: Merged, { out: parts, lse: lses, sink }: Parts): void {
  const [tokens, heads, dim] = out.shape as [number, number, number]
  const expected = { out: [] as number[], abs: [] as number[], lse: [] as number[] }
  for (let r = 0; r < tokens * heads; r++) {
    const states: AttentionState[] = parts.map((t, i) => ({
      out: t.floats().subarray(r * dim, (r + 1) * dim),
      lse: lses[i]!.data[r]!,
    }))
    const merged = mergeStatesReference(states, sink.data[r % heads])
    expected.out.push(...merged.out)
    expected.lse.push(merged.lse)
    expected.abs.push(
      ...mergeStatesReference(
        states.map(s => ({ ...s, out: Array.from(s.out, Math.abs) })),
        sink.data[r % heads],
      ).out,
    )
  }
  const unit = 8 * 2 ** -24 + (out.dtype === 'f32' ? 0 : 2 ** -8)
  const reports: GateReport[] = [
    compare({
      gate: 'merged out',
      actual: out,
      expected: expected.out,
      bound: i => unit * expected.abs[i]!,
    }),
    compare({
      gate: 'merged lse',
      actual: lse,
      expected: expected.lse,
      bound: i => 2 ** -23 * Math.abs(expected.lse[i]!) + 2 ** -40,
    }),
  ]
  for (const report of reports) expectGate(report)
}

describe('random parts', () => {
  test.each<[[number, number, number], ('f32' | 'bf16')[]]>([
    [
      [3, 5, 512],
      ['f32', 'f32'],
    ],
    [
      [4, 2, 128],
      ['bf16', 'bf16', 'bf16'],
    ],
    [
      [7, 1, 33],
      ['f32', 'bf16', 'f32', 'bf16', 'f32'],
    ],
    [[2, 3, 1], ['f32']],
    [[2, 128, 7], new Array<'f32'>(40).fill('f32')],
  ])('%j of %j', async (shape, dtypes) => {
    const parts = randomParts(shape, dtypes)
    for (const outDtype of [undefined, 'f32', 'bf16'] as const) expectMerged(await merge({ ...parts, outDtype }), parts)
  })

  test('a token alone, 20 runs and 2 threads give the same bits', async () => {
    const parts = randomParts([5, 6, 100], ['f32', 'bf16', 'f32'])
    const all = await merge(parts)
    await using two = await openCpuDevice({ threads: 2 })
    for (let i = 0; i < 20; i++) {
      const again = await merge(parts, two)
      expectGate(sameBits(again.out, all.out))
      expectGate(sameBits(again.lse, all.lse))
    }
    for (let t = 0; t < 5; t++) {
      const one = await merge({
        ...parts,
        out: parts.out.map(p => p.narrow(0, t, 1)),
        lse: parts.lse.map(p => p.narrow(0, t, 1)),
      })
      expectGate(sameBits(one.out, all.out.narrow(0, t, 1)))
      expectGate(sameBits(one.lse, all.lse.narrow(0, t, 1)))
    }
  })

  test('strides are free', async () => {
    const parts = randomParts([4, 3, 64], ['f32', 'bf16'])
    const strided = {
      ...parts,
      out: parts.out.map(t => widened(device, t, 5)),
      lse: parts.lse.map(t => widened(device, t, 2)),
    }
    const [plain, other] = [await merge(parts), await merge(strided)]
    expectGate(sameBits(other.out, plain.out))
    expectGate(sameBits(other.lse, plain.lse))
  })

  test('no tokens', async () => expect((await merge(randomParts([0, 3, 8], ['f32']))).out.shape).toEqual([0, 3, 8]))
})

describe('refusals', () => {
  const { out, lse } = randomParts([2, 3, 8], ['f32', 'bf16'])
  const wrong = (args: object): MergeStatesArgs => ({ out, lse, ...args })

  test.each<[string, object, string]>([
    ['no parts', { out: [], lse: [] }, 'E_OPTION mergeStates: out is []; expected an array of at least one tensor'],
    [
      'out missing',
      { out: undefined },
      'E_OPTION mergeStates: out is missing; expected an array of at least one tensor',
    ],
    ['fewer lse', { lse: lse.slice(1) }, 'E_SHAPE mergeStates: lse is 1 tensors; expected 2, as many as out'],
    [
      'a hole',
      { out: [out[0], undefined] },
      'E_OPTION mergeStates: out[1] is missing; expected f32 or bf16 [tokens, heads, dim]',
    ],
    [
      'another dim',
      { out: [out[0], fromFloats('f32', [2, 3, 4], new Float32Array(24))] },
      'E_SHAPE mergeStates: out[1] is [2, 3, 4]; expected 8 dim (as in out[0] [2, 3, 8]) in [tokens, heads, dim]',
    ],
    ['lse of bf16', { lse: [lse[0], lse[1]!.cast('bf16')] }, 'E_DTYPE mergeStates: lse[1] is bf16; expected f32'],
    [
      'a sink too short',
      { sink: fromFloats('f32', [2], [0, 0]) },
      'E_SHAPE mergeStates: sink is [2]; expected 3 heads (as in out[0] [2, 3, 8]) in [heads]',
    ],
    [
      'an unknown option',
      { axis: 1 },
      'E_OPTION mergeStates: axis is an unknown option; expected one of out, lse, sink, outDtype, into, signal',
    ],
    ['f16 output', { outDtype: 'f16' }, 'E_OPTION mergeStates: outDtype is f16; expected f32 or bf16'],
  ])('%s', (_, args, message) => {
    const call = (): unknown => mergeStates(device, wrong(args))
    expect(call).toThrow(expect.objectContaining({ code: message.split(' ')[0] }))
    expect(call).toThrow(message.slice(message.indexOf(' ') + 1))
  })

  test('an output over a part', async () => {
    const part = device.upload(out[0] as Tensor<'f32'>)
    const call = (): unknown => mergeStates(device, { out: [part], lse: [lse[0]!], into: { out: part } })
    expect(call).toThrow(
      expect.objectContaining({ code: 'E_OVERLAP', argument: 'into.out', given: 'memory of out[0]' }),
    )
  })
})
