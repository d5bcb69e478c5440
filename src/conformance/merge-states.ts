/** Conformance of `mergeStates`: empty parts, sinks, dtypes. */

import type { Device } from '../device.ts'
import { mergeStatesReference } from '../kernels/merge-states/reference.ts'
import { mergeStates } from '../ops/merge-states.ts'
import { fromFloats, type Tensor } from '../tensor/tensor.ts'
import { type ConformanceCase, judge, type Verdict } from './case.ts'
import { collect, normals, poisonedOutputs } from './data.ts'
import { compare, type GateReport } from './gate.ts'
import { bf16Rounding, f32Output, lseAbsolute, lseRelative, sameBits } from './gates.ts'
import { seeded } from './random.ts'

const op = 'mergeStates'
const tokens = 3
const heads = 5
const dim = 37

interface Parts {
  readonly out: readonly Tensor<'f32' | 'bf16'>[]
  readonly lse: readonly Tensor<'f32'>[]
  readonly sink?: Tensor<'f32'> | undefined
}

/** Parts whose lse is empty here and there, with NaN in the out of the empty ones. */
function parts(
  dtype: 'f32' | 'bf16',
  count: number,
  empty: readonly (readonly [part: number, row: number, lse: number])[],
): Parts {
  const random = seeded(count)
  const outs = Array.from({ length: count }, () => normals(random, 'f32', [tokens, heads, dim]))
  const lse = Array.from({ length: count }, () => normals(random, 'f32', [tokens, heads], 4))
  for (const [part, row, value] of empty) {
    lse[part]!.data[row] = value
    outs[part]!.data.fill(NaN, row * dim, (row + 1) * dim)
  }
  return { out: outs.map(t => (dtype === 'f32' ? t : t.cast(dtype))), lse }
}

async function againstReference(device: Device, { out, lse, sink }: Parts, outDtype: 'f32' | 'bf16'): Promise<Verdict> {
  const into = poisonedOutputs(device, { out: [outDtype, [tokens, heads, dim]], lse: ['f32', [tokens, heads]] })
  mergeStates(device, { out, lse, sink, outDtype, into })
  const actual = await collect(into)
  return judge(...compareRows(actual, { out, lse, sink }))
}

/** |err| <= (f32 arithmetic or bf16 rounding) · the largest magnitude of the parts; lse by the gate of attention. */
function compareRows(actual: { out: Tensor; lse: Tensor }, { out, lse, sink }: Parts): GateReport[] {
  const rows = Array.from({ length: tokens * heads }, (_, row) => {
    const states = out.map((t, i) => ({
      out: t.floats().subarray(row * dim, (row + 1) * dim),
      lse: lse[i]!.data[row]!,
    }))
    return mergeStatesReference(states, sink?.data[row % heads])
  })
  const expected = rows.flatMap(row => [...row.out])
  const largest = out.reduce((most, t) => t.floats().reduce((m, x) => Math.max(m, Math.abs(x) || 0), most), 0)
  const relative = actual.out.dtype === 'bf16' ? bf16Rounding : f32Output
  return [
    compare({
      gate: 'merged out',
      actual: actual.out,
      expected,
      bound: i => relative * Math.abs(expected[i]!) + f32Output * largest,
    }),
    compare({
      gate: 'merged lse',
      actual: actual.lse,
      expected: rows.map(row => row.lse),
      bound: i => lseAbsolute + lseRelative * Math.abs(rows[i]!.lse),
    }),
  ]
}

const empties = [
  [0, 2, -Infinity],
  [1, 4, Infinity],
  [0, 7, -Infinity],
  [1, 7, Infinity],
  [2, 7, -Infinity],
] as const

export const mergeStatesCases: readonly ConformanceCase[] = [
  ...(['f32', 'bf16'] as const).flatMap(dtype => [
    {
      op,
      name: `${dtype}, three parts, empty ones with lse -inf and +inf hold NaN, one row all empty`,
      run: (device: Device) => againstReference(device, parts(dtype, 3, empties), dtype),
    },
    {
      op,
      name: `${dtype}, a sink, applied once; empty rows stay 0`,
      run(device: Device) {
        const sink = fromFloats('f32', [heads], [0.5, -Infinity, 12, -1e38, Infinity])
        return againstReference(device, { ...parts(dtype, 3, empties), sink }, dtype)
      },
    },
  ]),
  { op, name: 'f32, one part', run: device => againstReference(device, parts('f32', 1, []), 'f32') },
  { op, name: 'f32 parts, bf16 out', run: device => againstReference(device, parts('f32', 2, []), 'bf16') },
  {
    op,
    name: 'a row alone has the bits of the row in a batch',
    async run(device) {
      const { out, lse } = parts('f32', 3, empties)
      const batch = await collect({ ...mergeStates(device, { out, lse }) })
      const row = (t: Tensor): Tensor<'f32'> => t.narrow(0, 1, 1) as Tensor<'f32'>
      const alone = await collect({ ...mergeStates(device, { out: out.map(row), lse: lse.map(row) }) })
      return judge(
        sameBits(alone.out, batch.out.narrow(0, 1, 1), 'out'),
        sameBits(alone.lse, batch.lse.narrow(0, 1, 1), 'lse'),
      )
    },
  },
]
