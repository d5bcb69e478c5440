import { describe, expect, test } from 'vitest'
import { compareOutputs, compareSelections } from './compare.ts'

describe('compareOutputs', () => {
  test('largest difference, the same against the peak, cosine', () => {
    expect(compareOutputs([1, 2, 3], [1, 2, 3])).toEqual({ maxAbs: 0, maxRelToPeak: 0, cosine: 1 })
    expect(compareOutputs([3, 0], [3, -4])).toEqual({ maxAbs: 4, maxRelToPeak: 1, cosine: 0.6 })
  })

  test('a NaN shows everywhere', () => {
    const { maxAbs, maxRelToPeak, cosine } = compareOutputs([1, Number.NaN], [1, 2])
    expect([maxAbs, maxRelToPeak, cosine]).toEqual([Number.NaN, Number.NaN, Number.NaN])
  })
})

describe('compareSelections', () => {
  const scores = [[1, 0.5, 0.500004, -3]]

  test('sets, not lists', () => {
    const report = compareSelections([[2, 0], [1]], [[0, 2], [1]])
    expect(report).toEqual({ rows: 2, identicalRows: 2, tiedRows: 0, overlap: 1 })
  })

  test('a different key counts, unless it ties', () => {
    const differ = { rows: 1, identicalRows: 0, tiedRows: 0, overlap: 0.5 }
    expect(compareSelections([[0, 1]], [[0, 2]])).toEqual(differ)
    expect(compareSelections([[0, 1]], [[0, 2]], row => scores[row]!)).toEqual({
      ...differ,
      identicalRows: 1,
      tiedRows: 1,
    })
    expect(compareSelections([[0, 3]], [[0, 2]], row => scores[row]!)).toEqual(differ)
  })

  test('a missing or an additional key is never a tie', () => {
    expect(compareSelections([[0]], [[0, 2]], row => scores[row]!).identicalRows).toBe(0)
    expect(compareSelections([[0, 1, 2]], [[0, 2]], row => scores[row]!)).toMatchObject({
      identicalRows: 0,
      overlap: 1,
    })
  })

  test('nothing expected is found', () => {
    expect(compareSelections([[]], [[]])).toEqual({ rows: 1, identicalRows: 1, tiedRows: 0, overlap: 1 })
    expect(compareSelections([], [])).toEqual({ rows: 0, identicalRows: 0, tiedRows: 0, overlap: 1 })
  })
})
