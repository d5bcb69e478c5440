import { describe, expect, test } from 'vitest'
import { ValueError } from '../../errors.ts'
import { alibi, identity, softcap } from './score-mods.ts'

describe('alibi', () => {
  test('a power of two of heads: 2^(-8 (h+1) / H)', () => {
    expect(alibi(8).slopes).toEqual([1, 2, 3, 4, 5, 6, 7, 8].map(i => 2 ** -i))
    expect(alibi(1).slopes).toEqual([2 ** -8])
  })

  test('else the slopes of P heads, then every other one of 2P', () => {
    expect(alibi(12).slopes).toEqual([...alibi(8).slopes, 2 ** -0.5, 2 ** -1.5, 2 ** -2.5, 2 ** -3.5])
    expect(alibi(3).slopes).toEqual([2 ** -4, 2 ** -8, 2 ** -2])
  })

  test('falls with the distance to the past and leaves the future', () => {
    const { apply } = alibi(2)
    expect([apply(1, 5, 5, 0), apply(1, 5, 3, 0), apply(1, 5, 3, 1), apply(1, 5, 9, 0)]).toEqual([
      1,
      1 - 2 / 16,
      1 - 2 / 256,
      1,
    ])
  })

  test.each([0, 2.5, -1, Number.NaN])('refuses %s heads', heads => {
    expect(() => alibi(heads)).toThrow(ValueError)
  })
})

test('identity leaves the score', () => {
  expect(identity().apply(-3.25, 1, 2, 0)).toBe(-3.25)
})

describe('softcap', () => {
  test('is cap tanh(s / cap)', () => {
    const { apply } = softcap(2)
    expect([apply(0, 0, 0, 0), apply(1e9, 0, 0, 0), apply(-1e9, 0, 0, 0)]).toEqual([0, 2, -2])
    expect(apply(1, 0, 0, 0)).toBeCloseTo(2 * Math.tanh(0.5), 15)
  })

  test.each([0, -1, Infinity, Number.NaN])('refuses a cap of %s', cap => {
    expect(() => softcap(cap)).toThrow(ValueError)
  })
})
