import { afterAll, expect, test } from 'vitest'
import { compare, expectGate, f32Output, sameBits } from '../../../test/gates.ts'
import { assembles } from '../../../test/gpu-cases.ts'
import { seeded } from '../../../test/random.ts'
import { collect, normals, poisonedOutputs } from '../../conformance/data.ts'
import { type MergeStatesArgs, mergeStates } from '../../ops/merge-states.ts'
import { SimDevice } from '../../sim/device.ts'
import { fromFloats, type Tensor } from '../../tensor/tensor.ts'
import { mergeStatesReference } from './reference.ts'

const device = new SimDevice('sm_90a')
afterAll(() => device.dispose())

const [tokens, heads, dim] = [3, 2, 133]

/** Every third state of a row is empty and holds NaN; row 1 has keys in one of the last parts alone, row 4 in none. */
function manyParts(count: number): { readonly out: Tensor<'f32'>[]; readonly lse: Tensor<'f32'>[] } {
  const random = seeded(count)
  const out = Array.from({ length: count }, () => normals(random, 'f32', [tokens, heads, dim]))
  const lse = Array.from({ length: count }, () => normals(random, 'f32', [tokens, heads], 3))
  for (let i = 0; i < count; i++)
    for (let row = 0; row < tokens * heads; row++) {
      const empty = row === 4 || (row === 1 ? i !== count - 2 : (i + row) % 3 === 0)
      if (!empty) continue
      lse[i]!.data[row] = i % 2 === 0 ? -Infinity : Infinity
      out[i]!.data.fill(NaN, row * dim, (row + 1) * dim)
    }
  return { out, lse }
}

const merged = async (on: SimDevice, args: MergeStatesArgs) => {
  const into = poisonedOutputs(on, { out: ['f32', [tokens, heads, dim]], lse: ['f32', [tokens, heads]] })
  mergeStates(on, { ...args, into })
  return collect(into)
}

test.each([8, 9, 19])('%i parts, several launches beyond 8', async count => {
  const { out, lse } = manyParts(count)
  const sink = fromFloats('f32', [heads], [0.5, 30])
  const actual = await merged(device, { out, lse, sink })
  const rows = Array.from({ length: tokens * heads }, (_, row) =>
    mergeStatesReference(
      out.map((t, i) => ({ out: t.data.subarray(row * dim, (row + 1) * dim), lse: lse[i]!.data[row]! })),
      sink.data[row % heads],
    ),
  )
  const expected = rows.flatMap(row => [...row.out])
  const bound = (): number => 5 * f32Output
  expectGate(compare({ gate: 'merged out', actual: actual.out, expected, bound }))
  const logs = rows.map(row => row.lse)
  expectGate(compare({ gate: 'lse', actual: actual.lse, expected: logs, bound: i => 1e-6 + 1e-6 * Math.abs(logs[i]!) }))
  expect(actual.out.floats().subarray(4 * dim, 5 * dim)).toEqual(new Float32Array(dim))
})

test('windows of tokens that fit a small budget: the same bits', async () => {
  const args = manyParts(11)
  const small = new SimDevice('sm_90a', { scratchBytes: 2 * 4 * heads * (dim + 2), seed: 9 })
  expect(mergeStates.plan(device, args).scratchBytes).toBeGreaterThan(small.limits.scratchBytes)
  expect(mergeStates.plan(small, args).scratchBytes).toBeLessThanOrEqual(small.limits.scratchBytes)
  const [few, all] = [await merged(small, args), await merged(device, args)]
  expectGate(sameBits(few.out, all.out))
  expectGate(sameBits(few.lse, all.lse))
})

assembles({
  'eight parts and more': target => mergeStates.plan(target, { ...manyParts(9), outDtype: 'bf16' }),
  'one part': target => mergeStates.plan(target, manyParts(1)),
})
