import { describe, expect, test } from 'vitest'
import { type ResultForm, resultColumns, resultPlace, type TensorShape, tensorShapes } from './tensor-shape.ts'
import { fragmentColumn, fragmentRow } from './wgmma.ts'

/** Modes of a layout as (size, stride), the first fastest: an index becomes the sum of its digits times the strides. */
type Modes = readonly (readonly [size: number, stride: number])[]

const at = (modes: Modes, index: number): number => {
  let [rest, sum] = [index, 0]
  for (const [size, stride] of modes) {
    sum += (rest % size) * stride
    rest = Math.floor(rest / size)
  }
  return sum
}

describe('registers of a load, from two other descriptions', () => {
  /** CUTLASS, `Copy_Traits<SM100_TMEM_LOAD_…1x>::DstLayout`: thread and register bit to a bit of `width`-bit rows. */
  const cute: Readonly<Record<Exclude<TensorShape, '16x32bx2'>, { thread: Modes; bit: Modes; width: number }>> = {
    '32x32b': { thread: [[32, 32]], bit: [[32, 1]], width: 32 },
    '16x64b': {
      thread: [
        [2, 512],
        [2, 32],
        [8, 64],
      ],
      bit: [[32, 1]],
      width: 64,
    },
    '16x128b': {
      thread: [
        [4, 32],
        [8, 128],
      ],
      bit: [
        [32, 1],
        [2, 1024],
      ],
      width: 128,
    },
    '16x256b': {
      thread: [
        [4, 64],
        [8, 256],
      ],
      bit: [
        [64, 1],
        [2, 2048],
      ],
      width: 256,
    },
  }
  /** Triton, `getTileLayout`: (row, column) that each bit of the lane and of the register number adds. */
  const bases: Readonly<Record<keyof typeof cute, { lane: readonly number[][]; register: readonly number[][] }>> = {
    '32x32b': {
      lane: [
        [1, 0],
        [2, 0],
        [4, 0],
        [8, 0],
        [16, 0],
      ],
      register: [],
    },
    '16x64b': {
      lane: [
        [8, 0],
        [0, 1],
        [1, 0],
        [2, 0],
        [4, 0],
      ],
      register: [],
    },
    '16x128b': {
      lane: [
        [0, 1],
        [0, 2],
        [1, 0],
        [2, 0],
        [4, 0],
      ],
      register: [[8, 0]],
    },
    '16x256b': {
      lane: [
        [0, 2],
        [0, 4],
        [1, 0],
        [2, 0],
        [4, 0],
      ],
      register: [
        [0, 1],
        [8, 0],
      ],
    },
  }

  test.each(Object.keys(cute) as (keyof typeof cute)[])('%s', name => {
    const { registers, lane, column, columns } = tensorShapes[name]
    const { thread, bit, width } = cute[name]
    const { lane: laneBases, register: registerBases } = bases[name]
    expect(columns).toBe(width / 32)
    for (let t = 0; t < 32; t++)
      for (let j = 0; j < 2 * registers; j++) {
        const place = [lane(t, j), column(t, j)]
        const [repetition, own] = [Math.floor(j / registers), j % registers]
        const address = at(thread, t) + at(bit, 32 * own)
        expect(place).toEqual([Math.floor(address / width), (address % width) / 32 + repetition * columns])
        const sum = [0, repetition * columns]
        laneBases.forEach(([row, col], i) => {
          if ((t >> i) & 1) sum.splice(0, 2, sum[0]! + row!, sum[1]! + col!)
        })
        registerBases.forEach(([row, col], i) => {
          if ((own >> i) & 1) sum.splice(0, 2, sum[0]! + row!, sum[1]! + col!)
        })
        expect(place).toEqual(sum)
      }
  })

  test('16x256b is the fragment of the matrix instructions before', () => {
    const { lane, column } = tensorShapes['16x256b']
    for (let t = 0; t < 32; t++)
      for (let j = 0; j < 128; j++)
        expect([lane(t, j), column(t, j)]).toEqual([fragmentRow(t, j), fragmentColumn(t, j)])
  })
})

describe('results of multiplies, from CUTLASS', () => {
  const n = 64
  const lanes = 128
  /** `tmem_frg`, `tmem_frg_ws`: modes of the row of a block and of the column; an address is lane + 128 · column. */
  const atoms: readonly (readonly [ResultForm, rows: Modes, columns: Modes])[] = [
    [
      { m: 64, n, stationary: false, pair: false },
      [
        [16, 1],
        [4, 32],
      ],
      [[n, lanes]],
    ],
    [{ m: 128, n, stationary: false, pair: false }, [[128, 1]], [[n, lanes]]],
    [{ m: 128, n, stationary: true, pair: false }, [[128, 1]], [[n, lanes]]],
    [{ m: 256, n, stationary: false, pair: true }, [[128, 1]], [[n, lanes]]],
    [
      { m: 64, n, stationary: true, pair: false },
      [[64, 1]],
      [
        [n / 2, lanes],
        [2, 64],
      ],
    ],
    [
      { m: 128, n, stationary: false, pair: true },
      [[64, 1]],
      [
        [n / 2, lanes],
        [2, 64],
      ],
    ],
    [
      { m: 32, n, stationary: true, pair: false },
      [[32, 1]],
      [
        [n / 4, lanes],
        [4, 32],
      ],
    ],
  ]

  test.each(atoms)('%o', (form, rows, columns) => {
    const own = form.pair ? form.m / 2 : form.m
    for (let row = 0; row < form.m; row++)
      for (let column = 0; column < n; column++) {
        const address = at(rows, row % own) + at(columns, column)
        expect(resultPlace(form, row, column)).toEqual({
          rank: Math.floor(row / own),
          lane: address % lanes,
          column: Math.floor(address / lanes),
        })
      }
    expect(resultColumns(form)).toBe(
      1 + Math.max(...Array.from({ length: n }, (_, j) => resultPlace(form, 0, j).column)),
    )
  })
})
