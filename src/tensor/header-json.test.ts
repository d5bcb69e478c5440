import * as fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { isSizes, repeatedKey, showJson } from './header-json.ts'

describe('repeatedKey', () => {
  test.each([
    ['in the outer object', '{"a":1,"b":2,"a":3}', 'a'],
    ['in an inner object', '{"a":{"b":1, "b" :2}}', 'b'],
    ['after an inner object has ended', '{"a":{"c":1},"b":[{"c":2}],"a":3}', 'a'],
    ['one written with an escape', String.raw`{"a":1,"\u0061":2}`, 'a'],
    ['a name of Object.prototype', '{"__proto__":1,"__proto__":2}', '__proto__'],
    ['the empty key', '{"":1,"":2}', ''],
  ])('finds a key %s', (_, json, key) => expect(repeatedKey(json)).toBe(key))

  test.each([
    ['the same key in two objects', '{"a":{"x":1},"b":{"x":2},"x":3}'],
    ['equal strings that are values', '{"a":"b","b":"a","c":["a","a"]}'],
    ['braces, quotes and colons inside strings', String.raw`{"{\"a\":":"\\","a":"}\"a\":"}`],
    ['keys of Object.prototype used once', '{"toString":1,"constructor":2}'],
  ])('does not count %s', (_, json) => expect(repeatedKey(json)).toBeUndefined())

  test('finds nothing in what JSON.stringify writes', () => {
    fc.assert(
      fc.property(fc.json(), json => {
        expect(repeatedKey(json)).toBeUndefined()
      }),
    )
  })
})

test('isSizes takes non-negative safe integers only', () => {
  expect([[], [0, 3], [2 ** 53 - 1]].every(isSizes)).toBe(true)
  expect([[-1], [1.5], [2 ** 53], ['1'], [null], null, 3, {}].some(isSizes)).toBe(false)
})

describe('showJson', () => {
  test.each([
    [[1, -2, 'x', null], '[1, -2, "x", null]'],
    [[[1], {}], '[an array, an object]'],
    [{ constructor: { name: 1 } }, 'an object'],
    ['a "name"', String.raw`"a \"name\""`],
    [undefined, 'missing'],
  ])('%j', (value, text) => expect(showJson(value)).toBe(text))

  test('cuts long values and does not follow deep ones', () => {
    expect(showJson('x'.repeat(1e6))).toHaveLength(121)
    expect(showJson(Array(1e6).fill(7))).toHaveLength(121)
    expect(showJson(JSON.parse('['.repeat(1e5) + ']'.repeat(1e5)))).toBe('[an array]')
  })
})
