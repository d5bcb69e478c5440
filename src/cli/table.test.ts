import { expect, test } from 'vitest'
import { digits, markdownTable, textTable } from './table.ts'

const table = {
  head: ['name', 'ms'],
  align: 'lr',
  rows: [
    ['a|b', '1.5'],
    ['long name', '12.25'],
  ],
}

test('text: columns aligned, no trailing space', () => {
  expect(textTable(table)).toMatchInlineSnapshot(`
    "name          ms
    ---------  -----
    a|b          1.5
    long name  12.25"
  `)
})

test('Markdown: alignment row, bars escaped', () => {
  expect(markdownTable(table)).toMatchInlineSnapshot(`
    "| name | ms |
    | --- | ---: |
    | a\\|b | 1.5 |
    | long name | 12.25 |"
  `)
})

test.each([
  [0, '0'],
  [1.23456, '1.235'],
  [123.456, '123.5'],
  [43210.9, '43211'],
  [0.00012345, '1.23e-4'],
  [5e9, '5.00e+9'],
  [Infinity, 'Infinity'],
  [NaN, '-'],
  [undefined, '-'],
])('digits(%s) is %s', (value, text) => {
  expect(digits(value)).toBe(text)
})
