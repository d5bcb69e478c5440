import { describe, test } from 'vitest'
import { here } from '../../test/sim-kernel.ts'
import { expectBug, issuing, planted } from '../../test/tensor-bugs.ts'
import { type TensorCase } from '../../test/tensor-kernel.ts'
import type { SmemTile } from '../lang/smem-tile.ts'

const plain: TensorCase = { dtype: 'bf16', m: 128, n: 32, depth: 32 }

describe('descriptors of shared memory', () => {
  test.each([
    ['has the version of Hopper', -(1n << 46n), /version 0; 1 on this architecture/],
    ['has reserved bits set', 1n << 53n, /reserved bits/],
    ['has bits beside the address', 1n << 14n, /reserved bits/],
    ['has a base offset', 1n << 49n, /base offset 1/],
    ['has absolute offsets', 1n << 52n, /absolute leading offsets/],
    ['has the layout of tf32', -(1n << 61n), /layout type 1/],
    ['has a layout that does not exist', 1n << 61n, /layout type 3/],
    ['leaves out where shared memory begins', -64n, /shared byte -/],
    ['starts inside the swizzle pattern', 8n, /inside the 128-byte swizzle/],
    ['has groups of rows that break the swizzle', 8n << 32n, /break the 128-byte swizzle/],
  ])('one that %s', (_, change, message) => {
    const c: TensorCase = { ...plain, depth: 64 }
    const rule = /shared byte/.test(message.source) ? 'out-of-bounds' : 'descriptor'
    expectBug(
      rule,
      message,
      {
        issue: issuing(({ d, a, b, memory, done }) => {
          const moved: SmemTile = Object.create(a, {
            descriptors: {
              value: () => (row: number, byte: number) => a.descriptors(0)(row, byte).add(BigInt.asUintN(64, change)),
            },
          })
          planted.at = here(1)
          d.multiply({ tile: moved }, { tile: b }, { depth: 16 })
          memory.commit(done.address(0))
        }),
        wait: () => {},
        read: () => {},
      },
      c,
    )
  })

  test('an MN-major tile that starts inside its panels', () => {
    expectBug(
      'descriptor',
      /expected multiples of 512 for MN-major tiles/,
      {
        issue: issuing(({ d, a, b, memory, done }) => {
          const moved: SmemTile = Object.create(b, {
            transposedDescriptors: {
              value: () => (row: number, byte: number) => b.transposedDescriptors(0)(row, byte).add(2n),
            },
          })
          planted.at = here(1)
          d.multiply({ tile: a }, { tile: moved, transposed: true })
          memory.commit(done.address(0))
        }),
      },
      { dtype: 'e4m3', m: 128, n: 64, depth: 64, swizzle: 64, transposed: { b: true } },
    )
  })
})

describe('instruction descriptors', () => {
  test.each([
    ['says sparse', 1 << 2, /says sparse/],
    ['selects sparsity', 1, /says sparse/],
    ['saturates', 1 << 3, /saturation/],
    ['has reserved bits set', 1 << 23, /reserved bits/],
    ['has a maximum shift', 1 << 30, /maximum shift/],
    ['wants f16 results', -(1 << 4), /results of type 0/],
    ['has operands of the other kind', 1 << 8, /operands of types 3 and 1/],
    ['has 192 rows', 4 << 24, /192 rows/],
    ['has 40 columns for 128 rows', 1 << 17, /40 columns of 128 rows/],
  ])('one that %s', (_, change, message) => {
    expectBug('descriptor', message, {
      issue: issuing(({ d, operands, memory, done }) => {
        const trace = d['trace']
        const changed = Object.create(trace, {
          emit: {
            value: (record: never, given: { readonly descriptor: { readonly value: number } }) => {
              const descriptor = { type: 'u32', value: (given.descriptor.value + change) >>> 0 }
              planted.at = here(1)
              trace.emit(record, { ...given, descriptor } as never)
            },
          },
        })
        const other = Object.assign(Object.create(d), { trace: changed }) as typeof d
        other.multiply(...operands)
        memory.commit(done.address(0))
      }),
      wait: () => {},
      read: () => {},
    })
  })
})
