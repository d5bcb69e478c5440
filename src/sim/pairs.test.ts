import { expect, test } from 'vitest'
import { here, runKernel } from '../../test/sim-kernel.ts'
import { kernel } from '../lang/kernel.ts'
import { addPairs, bothOf, fmaPairs, mulPairs, packPair, unpackPair } from '../lang/pairs.ts'
import { input, output } from '../lang/params.ts'
import { loadWords, storeWords } from '../lang/wide.ts'

const params = { x: input('f32', 'x'), out: output('f32', 'out') }

test('both halves are rounded once, in the active lanes only', () => {
  const traced = kernel({ name: 'probe', target: 'sm_100a', threads: 32, params }, (k, { x, out }) => {
    const [a, b, c] = [0, 1, 2].map(i =>
      packPair(x.load(k.lane.mul(8).add(2 * i)), x.load(k.lane.mul(8).add(2 * i + 1))),
    )
    const total = k.var('f32x2', bothOf(x.load(0)))
    k.when(k.lane.lt(16), () => total.set(fmaPairs(a!, b!, c!)))
    const results = [total, addPairs(a!, b!), mulPairs(a!, b!)].flatMap(pair => [...unpackPair(pair)])
    results.forEach((value, j) => out.store(k.lane.mul(8).add(j), value))
  })
  const x = Float32Array.from({ length: 256 }, (_, i) => Math.fround(Math.sin(i) * 2 ** ((i * 7) % 20)))
  x[0] = Math.fround(1 / 3)
  const out = new Float32Array(256)
  expect(runKernel(traced, { buffers: { x, out } }).findings).toEqual([])
  const { fround } = Math
  for (let lane = 0; lane < 32; lane++) {
    const at = (i: number): number => x[8 * lane + i]!
    for (const half of [0, 1]) {
      const [a, b, c] = [at(half), at(2 + half), at(4 + half)]
      // Sums that a double holds exactly, so that one rounding is all there is; the others are of f32 fma's own test.
      const exact = a * b + c
      if (lane >= 16) expect(out[8 * lane + half]).toBe(x[0])
      else if (exact - a * b === c) expect(out[8 * lane + half]).toBe(fround(exact))
      expect(out[8 * lane + 2 + half]).toBe(fround(a + b))
      expect(out[8 * lane + 4 + half]).toBe(fround(a * b))
    }
  }
})

test('32 bytes of a thread at once, from a multiple of 32', () => {
  let bug = ''
  const copy = (first: number) =>
    kernel({ name: 'probe', target: 'sm_100a', threads: 32, params }, (k, { x, out }) => {
      bug = here(1)
      const words = loadWords('f32', 8, x.address(k.lane.mul(8).add(first)))
      storeWords(out.address(k.lane.mul(8)), words.toReversed())
    })
  const x = Float32Array.from({ length: 264 }, (_, i) => i)
  const out = new Float32Array(256)
  expect(runKernel(copy(0), { buffers: { x, out } }).findings).toEqual([])
  expect(Array.from(out)).toEqual(Array.from({ length: 256 }, (_, i) => i - (i % 8) + 7 - (i % 8)))
  expect(runKernel(copy(4), { buffers: { x, out } }).findings).toMatchObject([{ rule: 'misaligned', at: bug }])
})
