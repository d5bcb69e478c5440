import { describe, expect, test } from 'vitest'
import { here, runKernel } from '../../test/sim-kernel.ts'
import { type Kernel, kernel } from '../lang/kernel.ts'
import { input, output, tensorMap } from '../lang/params.ts'

const rows = 10
const width = 128
const tileRows = 8

interface Plan {
  /** Byte that the second gather's target is moved by. */
  readonly shift?: number
  /** Rows of a box. */
  readonly height?: number
  readonly bytes?: (bytes: number) => number
}

let bug = ''

/** Gathers `indices` rows, 8 of them, columns 64 to 127, and writes the tile out row by row. */
const gathering = ({ shift = 0, height = 1, bytes = x => x }: Plan = {}): Kernel =>
  kernel(
    {
      name: 'gathering',
      target: 'sm_100a',
      threads: 32,
      params: {
        map: tensorMap({ dtype: 'e4m3', box: [64, height], swizzle: 64 }, '[rows, 128]'),
        indices: input('i32', '[8]'),
        out: output('u32', '[8, 16]'),
      },
    },
    (k, { map, indices, out }) => {
      const tile = k.tile({ dtype: 'e4m3', rows: tileRows, columns: 64, stages: 2 })
      const full = k.barriers(1)
      k.when(k.threadIdx.eq(0), () => {
        full.init(1)
        k.fenceBarrierInit()
      })
      k.warpBarrier()
      k.when(k.threadIdx.eq(0), () => {
        full.arriveExpect(0, bytes(2 * map.gatherBytes))
        for (const half of [0, 1]) {
          const [a, b, c, d] = [0, 1, 2, 3].map(i => indices.load(4 * half + i))
          bug = here(1)
          map.gather(tile.address().add(half * (256 + shift)), 64, [a!, b!, c!, d!], full.address(0))
        }
      })
      full.wait(0, 0)
      for (let i = 0; i < 4; i++) {
        const at = k.lane.add(32 * i)
        out.store(at, tile.loadWord(tile.at(0, at.shr(4), at.bitAnd(15).mul(4))))
      }
    },
  )

function run(traced: Kernel, indices: readonly number[], landing: 'early' | 'late' = 'late') {
  const source = Uint8Array.from({ length: rows * width }, (_, i) => (7 * Math.floor(i / width) + (i % width)) & 0xff)
  const out = new Uint32Array(tileRows * 16)
  const result = runKernel(traced, {
    buffers: { source, indices: Int32Array.from(indices), out },
    maps: { map: { buffer: 'source', extents: [width, rows] } },
    landing,
  })
  const expected = indices.flatMap(row =>
    Array.from({ length: 64 }, (_, i) => (row < 0 || row >= rows ? 0 : source[row * width + 64 + i]!)),
  )
  return { ...result, out: Array.from(new Uint8Array(out.buffer)), expected }
}

test.each(['early', 'late'] as const)('rows in any order, twice, and zeros outside the matrix; landing %s', landing => {
  const { out, expected, findings } = run(gathering(), [9, 0, 3, 3, -1, 10, 5, 0x7fffffff], landing)
  expect(findings).toEqual([])
  expect(out).toEqual(expected)
})

describe('planted bugs', () => {
  const all = [0, 1, 2, 3, 4, 5, 6, -1]

  test('a target that is not a multiple of 128', () => {
    expect(run(gathering({ shift: 64 }), all).findings).toContainEqual(
      expect.objectContaining({ rule: 'misaligned', at: bug }),
    )
  })

  test('zero rows count their bytes: a barrier that expects less completes too early or never', () => {
    expect(run(gathering({ bytes: x => x - 64 }), all).findings).toContainEqual(
      expect.objectContaining({ rule: 'deadlock' }),
    )
  })

  test('boxes of several rows are refused at the author’s line', () => {
    expect(() => gathering({ height: 4 })).toThrow(/a gather with boxes of \[64,4\]; expected one row/)
  })
})
