/** What a NaN or an infinity in one operand may reach: the queries that see it, and nothing else. */

import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import {
  type DenseCase,
  type DenseVariant,
  denseOperands,
  denseVariants,
  expectSame,
  runDense,
  u32,
} from '../../../test/dense-cases.ts'
import { bitsOf } from '../../../test/gates.ts'
import { seeded } from '../../../test/random.ts'
import { type CpuDevice, openCpuDevice } from '../../cpu/device.ts'
import type { ContiguousRope } from '../../ops/dense-keys.ts'
import type { DensePrefillArgs } from '../../ops/dense-prefill.ts'
import { fromFloats, type Tensor } from '../../tensor/tensor.ts'
import type { Mask } from './mask.ts'
import { and, causal, causalPadding, chunked, materialized, none, or, slidingWindow } from './masks.ts'
import { alibi, softcap } from './score-mods.ts'

let device: CpuDevice
beforeAll(async () => {
  device = await openCpuDevice({ threads: 1 })
})
afterAll(() => device.dispose())

const shape: DenseCase = { queries: [21, 50], keys: [30, 140], heads: 4, kvHeads: 2, vDim: 10 }
const call = (args: object): DensePrefillArgs => args as DensePrefillArgs
const firstRow = (b: number): number => (b === 0 ? 0 : 21)
const firstKey = (b: number): number => (b === 0 ? 0 : 30)

const random = seeded(5)
const bias = fromFloats(
  'f32',
  [2, 50, 140],
  Float32Array.from({ length: 2 * 50 * 140 }, () => (random.uniform() < 0.5 ? -Infinity : 0)),
)
const masks: readonly (() => Mask)[] = [
  none,
  causal,
  () => slidingWindow(9),
  () => chunked(33),
  () => or(slidingWindow(3), causalPadding(u32(5, 7))),
  () => materialized(bias),
  () => and(causal(), materialized(bias)),
]

type Part = 'nope' | 'v' | 'rope' | 'ropeScales' | 'scale'

/** The call with one element of a key's row replaced: NaN as a code of its dtype, or an infinity. */
function poison(args: DensePrefillArgs, part: Part, row: number, head: number, value: number): DensePrefillArgs {
  const keys = { ...args.keys } as unknown as Record<string, unknown>
  const set = (t: Tensor): Tensor => {
    const copy = t.clone()
    const width = copy.size / copy.shape[0]!
    const heads = copy.shape.length === 3 ? copy.shape[1]! : 1
    // The last column, which rope rows and their scales use too.
    const at = row * width + (heads > 1 ? ((head + 1) * width) / heads : width) - 1
    copy.data[at] = fromFloats(copy.dtype as 'f32', [1], [value]).data[0]!
    return copy
  }
  if (part === 'ropeScales') {
    const rope = keys.rope as ContiguousRope
    keys.rope = { ...rope, scales: set(rope.scales as Tensor) }
  } else if (part === 'rope' && 'format' in (keys.rope as object)) {
    const rope = keys.rope as ContiguousRope
    keys.rope = { ...rope, values: set(rope.values as Tensor) }
  } else keys[part] = set(keys[part] as Tensor)
  return { ...args, keys } as unknown as DensePrefillArgs
}

/** Asserts that exactly the rows which see key `k` of sequence `b` under kv head `head` (or any) are NaN in `columns`. */
async function expectContained(
  args: DensePrefillArgs,
  part: Part,
  b: number,
  k: number,
  value = Number.NaN,
): Promise<void> {
  const perHead = part === 'nope' || part === 'v'
  const kvHead = 1
  const clean = await runDense(device, args)
  const run = await runDense(device, poison(args, part, firstKey(b) + k, kvHead, value))
  const heads = 4
  const [out, wanted] = [run.out.floats(), bitsOf(clean.out)]
  const bits = bitsOf(run.out)
  const [lse, wantedLse, lseBits] = [run.lse.floats(), bitsOf(clean.lse), bitsOf(run.lse)]
  const wrong: string[] = []
  for (let token = 0; token < 71; token++)
    for (let h = 0; h < heads; h++) {
      const row = token - firstRow(b)
      const inside = b === 0 ? token < 21 : token >= 21
      const position = shape.keys[b]! - shape.queries[b]! + row
      const reached =
        inside && (!perHead || Math.floor(h / 2) === kvHead) && args.mask.visible(position, k, b, { row, head: h })
      const at = token * heads + h
      const label = `token ${token} head ${h}`
      if (part === 'v' || !reached ? lseBits[at] !== wantedLse[at] : !Number.isNaN(lse[at]))
        wrong.push(`${label}: lse ${lse[at]}`)
      for (let c = 0; c < 10; c++) {
        const i = at * 10 + c
        const poisoned = reached && (part !== 'v' || c === 9)
        if (poisoned ? Number.isFinite(out[i]) : out[i] !== 0 && bits[i] !== wanted[i])
          wrong.push(`${label} column ${c}: ${out[i]}`)
      }
    }
  expect(wrong).toEqual([])
}

describe('a NaN in a key reaches the queries that see it', () => {
  const parts: Readonly<Record<DenseVariant, readonly Part[]>> = {
    f32: ['nope', 'v', 'rope'],
    bf16: ['nope', 'v', 'rope'],
    blockscale: ['nope', 'v', 'rope', 'ropeScales'],
    perTokenScale: ['nope', 'v', 'rope', 'scale'],
  }
  const cells = denseVariants.flatMap(variant => parts[variant].map(part => ({ variant, part })))

  test.each(cells)('$variant, $part', async ({ variant, part }) => {
    for (const [i, mask] of masks.entries()) {
      const scoreMod = [undefined, alibi(4), softcap(2)][i % 3]
      const args = call({ ...denseOperands({ ...shape, variant }), mask: mask(), scoreMod })
      await expectContained(args, part, 1, 100)
      await expectContained(args, part, 0, 12)
    }
  })

  test.each([2, 5])('in %s splits', async partition => {
    for (const mask of masks) {
      const args = call({ ...denseOperands(shape), mask: mask(), partition })
      await expectContained(args, 'v', 1, 97)
      await expectContained(args, 'nope', 1, 97)
    }
  })

  test.each([Infinity, -Infinity])('%s in v', async value => {
    for (const mask of masks) await expectContained(call({ ...denseOperands(shape), mask: mask() }), 'v', 1, 101, value)
  })
})

test('a NaN in a query, its scale or a bias reaches its own row', async () => {
  const operands = denseOperands({ ...shape, variant: 'perTokenScale' })
  const clean = await runDense(device, call({ ...operands, mask: causal() }))
  const qScale = (operands.qScale as Tensor<'f32'>).clone()
  qScale.data[40] = Number.NaN
  const qRope = (operands.qRope as Tensor<'bf16'>).clone()
  qRope.data[(33 * 4 + 2) * 64] = 0x7fc0
  const run = await runDense(device, call({ ...operands, qScale, qRope, mask: causal() }))
  const nan = [...run.lse.floats()].flatMap((x, i) => (Number.isNaN(x) ? [i] : []))
  expect(nan).toEqual([33 * 4 + 2, 160, 161, 162, 163])
  bitsOf(run.lse).forEach((bits, i) => {
    if (!nan.includes(i)) expect(bits).toBe(bitsOf(clean.lse)[i])
  })
})

test('a NaN bias of a pair makes that row NaN', async () => {
  const values = new Float32Array(2 * 50 * 140)
  values[140 * 3 + 2] = Number.NaN
  const mask = materialized(fromFloats('f32', [2, 50, 140], values))
  const { lse } = await runDense(device, call({ ...denseOperands(shape), mask }))
  expect(
    lse
      .floats()
      .map((x, i) => (Number.isNaN(x) ? i : -1))
      .filter(i => i >= 0),
  ).toEqual(Float32Array.of(12, 13, 14, 15))
})

test('keys of another kv head leave a head its bits', async () => {
  const operands = denseOperands(shape)
  const args = call({ ...operands, mask: causal() })
  const clean = await runDense(device, args)
  const spoil = (t: Tensor<'f32'>): Tensor<'f32'> => {
    const copy = t.clone()
    const width = t.shape[2]!
    for (let row = 0; row < t.shape[0]!; row++) copy.data.fill(Number.NaN, (2 * row + 1) * width, (2 * row + 2) * width)
    return copy
  }
  const { nope, v } = operands.keys as { nope: Tensor<'f32'>; v: Tensor<'f32'> }
  const run = await runDense(device, call({ ...args, keys: { ...args.keys, nope: spoil(nope), v: spoil(v) } }))
  const first = (t: Tensor): Tensor<'f32'> => t.narrow(1, 0, 2).clone() as Tensor<'f32'>
  expectSame({ out: first(run.out), lse: first(run.lse) }, { out: first(clean.out), lse: first(clean.lse) })
  expect(run.lse.floats().every((x, i) => i % 4 < 2 || Number.isNaN(x))).toBe(true)
})
