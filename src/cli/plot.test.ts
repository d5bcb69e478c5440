import { describe, expect, test } from 'vitest'
import { pageOf } from './plot-page.ts'
import { scorePicture } from './plot-scores.ts'
import { selectionPicture } from './plot-selection.ts'
import { element, ticks } from './plot-svg.ts'

/** Every element closed, in order. */
function expectWellFormed(svg: string): void {
  const open: string[] = []
  for (const [, closing, name, rest] of svg.matchAll(/<(\/?)([a-z]+)((?:[^>"]|"[^"]*")*)>/g)) {
    if (closing === '/') expect(open.pop()).toBe(name)
    else if (!rest!.endsWith('/')) open.push(name!)
  }
  expect(open).toEqual([])
}

const base = { title: 'T', subtitle: 's', keys: 6, firstPosition: 2 }

describe('selection', () => {
  const svg = selectionPicture({
    ...base,
    selected: [
      [0, 1],
      [1, 3, -1],
    ],
    stored: [
      [0, 2],
      [1, 3],
    ],
  })

  test('colours what only one side selected, and counts it', () => {
    expectWellFormed(svg)
    expect(svg).toContain('selected in both: 3')
    expect(svg).toContain('only in this run: 1')
    expect(svg).toContain('only in the file: 1')
    expect(svg).toContain('d="M0 0h1v1h-1zM1 1h1v1h-1zM3 1h1v1h-1z" fill="#4a6785"')
    expect(svg).toContain('d="M1 0h1v1h-1z" fill="#d9822b"')
    expect(svg).toContain('d="M2 0h1v1h-1z" fill="#2a9d8f"')
  })

  test('has axes with titles, a causal edge and a legend', () => {
    for (const text of ['key (position in the sequence)', 'query token', 'causal edge', 'later than the token'])
      expect(svg).toContain(text)
    // Two tokens at positions 2 and 3 of six keys, 560 pixels wide from 72 on: edges at 3/6 and 4/6.
    expect(svg).toContain('M352 70L352 350L445.33 350L445.33 630')
  })

  test('keys beyond the sequence and negative entries are not drawn', () => {
    const wild = selectionPicture({ ...base, selected: [[-1, 6, 99, 2]] })
    expect(wild).toContain('d="M2 0h1v1h-1z"')
    expect(wild.match(/M\d+ 0h1v1/g)).toEqual(['M2 0h1v1'])
  })

  test('a large matrix is drawn in shaded cells', () => {
    const selected = Array.from({ length: 2048 }, (_, t) => Array.from({ length: 64 }, (__, i) => (t + i * 31) % 4096))
    const large = selectionPicture({ ...base, keys: 4096, firstPosition: 2048, selected, stored: selected })
    expectWellFormed(large)
    expect(large).toContain('of a cell of 16 tokens by 16 keys')
    expect(large.length).toBeLessThan(600_000)
  })
})

describe('scores', () => {
  const panel = { token: 3, scores: [1, -2, 3, 0.5, -Infinity], selected: [2, 0] }
  const svg = scorePicture({ title: 'T', subtitle: 's', panels: [panel] })

  test('counts visible and selected keys, and draws the lowest selected score', () => {
    expectWellFormed(svg)
    expect(svg).toContain('token 3: 2 of 4 visible keys selected')
    expect(svg).toContain('lowest selected score')
    expect(svg).toContain('stroke-dasharray="5 4"')
  })

  test('a token that sees nothing still has a panel', () => {
    const empty = scorePicture({ title: 'T', subtitle: 's', panels: [{ token: 0, scores: [-Infinity], selected: [] }] })
    expectWellFormed(empty)
    expect(empty).toContain('0 of 0 visible keys selected')
    expect(empty).not.toContain('NaN')
  })
})

test('the page escapes its texts and carries the figures', () => {
  const page = pageOf({ title: 'a < b', facts: [['x & y', '"1"']], figures: [{ svg: '<svg/>', caption: 'how' }] })
  expect(page).toContain('<h1>a &lt; b</h1>')
  expect(page).toContain('<th>x &amp; y</th><td>&quot;1&quot;</td>')
  expect(page).toContain('<figure>\n<svg/><figcaption>how</figcaption>')
})

test('attributes are escaped and rounded', () => {
  expect(element('a', { b: 1.23456, c: '"<' }, 'x')).toBe('<a b="1.23" c="&quot;&lt;">x</a>')
})

test.each([
  [0, 160, 7, [0, 50, 100, 150]],
  [-3.2, 5.1, 4, [0, 5]],
  [0, 1, 5, [0, 0.2, 0.4, 0.6000000000000001, 0.8, 1]],
])('ticks(%s, %s, %s)', (low, high, count, expected) => {
  expect(ticks(low, high, count)).toEqual(expected)
})
