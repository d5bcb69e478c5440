import { describe, expect, test } from 'vitest'
import { here } from '../../test/sim-kernel.ts'
import { expectBug, issuing, planted } from '../../test/tensor-bugs.ts'
import type { TensorCase } from '../../test/tensor-kernel.ts'
import { runTensor, steps, tensorKernel } from '../../test/tensor-kernel.ts'

const plain: TensorCase = { dtype: 'bf16', m: 128, n: 32, depth: 32 }

describe('places', () => {
  test('a warp loads lanes of another', () => {
    expectBug('tensor-memory', /warp \d of the block at lane 0; it reaches lanes (32 to 63|64 to 95|96 to 127)/, {
      read: x => {
        planted.at = here(1)
        const registers = x.memory.load('f32', '32x32b', 32, {
          column: x.k.const('u32', 0).sub(x.k.threadIdx.shr(5).shl(21)),
        })
        x.memory.waitLoads()
        x.keep(registers)
      },
    })
  })

  test('columns beyond the allocation', () => {
    expectBug('tensor-memory', /outside the 128 × 512/, {
      read: x => {
        planted.at = here(1)
        const registers = x.d.load('32x32b', 32, { column: 500 })
        x.memory.waitLoads()
        x.keep(registers)
      },
    })
  })

  test('columns that nothing has written', () => {
    expectBug('uninitialized-read', /column 64, lanes from \d+ are read before anything wrote them/, {
      read: x => {
        planted.at = here(1)
        const registers = x.d.load('32x32b', 32, { column: 64 })
        x.memory.waitLoads()
        x.keep(registers)
      },
    })
  })

  test('lanes that 64 rows leave out', () => {
    expectBug(
      'uninitialized-read',
      /lanes from (16|48|80|112) are read/,
      {
        read: x => {
          planted.at = here(1)
          const registers = x.d.load('32x32b', 16)
          x.memory.waitLoads()
          x.keep(registers)
        },
      },
      { dtype: 'bf16', m: 64, n: 16, depth: 32 },
    )
  })

  test('a multiply adds to columns that nothing has written', () => {
    expectBug('uninitialized-read', /read before anything wrote them/, {
      issue: issuing(({ d, operands, memory, done }) => {
        planted.at = here(1)
        d.multiply(...operands, { accumulate: true })
        memory.commit(done.address(0))
      }),
    })
  })

  test('D of 128 rows begins at lane 16', () => {
    expectBug('descriptor', /D of 128 rows begins at lane 16; expected 0/, {
      issue: issuing(({ d, a, b, memory, done }) => {
        const moved = Object.assign(Object.create(d), { lane: 16 }) as typeof d
        planted.at = here(1)
        moved.multiply({ tile: a }, { tile: b })
        memory.commit(done.address(0))
      }),
    })
  })
})

test('A in tensor memory begins at other lanes than D', () => {
  expectBug(
    'descriptor',
    /A in tensor memory begins at lane 16, D at 0; expected the same/,
    {
      issue: issuing(({ d, operands: [, b], memory, done }) => {
        const a = memory.operand({ dtype: 'bf16', depth: 32, column: 384, lane: 16 })
        planted.at = here(1)
        d.multiply(a, b)
        memory.commit(done.address(0))
      }),
    },
    { dtype: 'bf16', m: 64, n: 16, depth: 32, a: 'tensor' },
  )
})

describe('allocation', () => {
  test('columns are not freed', () => {
    expectBug('tensor-memory', /columns 0 to 511 are not freed when the block ends/, {
      allocate: ({ k, memory, first }) =>
        k.whenUniform(first, () => {
          planted.at = here(1)
          memory.allocate()
        }),
      free: () => {},
    })
  })

  test('columns are freed while another warp still loads them', () => {
    expectBug('race', /freed while a load of warp \d/, {
      free: ({ k, memory, first }) =>
        k.whenUniform(first, () => {
          planted.at = here(1)
          memory.free()
        }),
    })
  })

  test('columns are freed twice', () => {
    expectBug('tensor-memory', /nothing was allocated there/, {
      free: x => {
        steps.free(x)
        x.k.whenUniform(x.first, () => {
          planted.at = here(1)
          x.memory.free()
        })
      },
    })
  })

  test('fewer columns are freed than allocated', () => {
    expectBug('tensor-memory', /256 columns are freed of the 512/, {
      free: ({ k, memory, first, barrier }) => {
        memory.beforeSync()
        barrier()
        k.whenUniform(first, () => {
          memory.afterSync()
          planted.at = here(1)
          Object.assign(Object.create(memory), { columns: 256 }).free()
        })
      },
    })
  })

  test.each([96, 16, 1024])('an allocation of %i columns', columns => {
    expectBug('tensor-memory', /expected a power of two in 32..512/, {
      allocate: x => {
        steps.allocate(x)
        x.k.whenUniform(x.first, () => {
          planted.at = here(1)
          Object.assign(Object.create(x.memory), { columns }).allocate()
        })
      },
    })
  })

  test('an allocation after the right to it was relinquished', () => {
    expectBug('tensor-memory', /after the block relinquished/, {
      allocate: x => {
        x.k.whenUniform(x.first, () => {
          x.memory.relinquish()
          planted.at = here(1)
          x.memory.allocate()
        })
      },
    })
  })

  test('more columns than are free', () => {
    expectBug('deadlock', /waits for ever at tcgen05.alloc.cg1 \(512 free columns/, {
      allocate: x => {
        x.k.whenUniform(x.first, () => {
          x.memory.allocate()
          planted.at = here(1)
          x.memory.allocate()
        })
      },
    })
  })

  test('a later allocation that is larger', () => {
    expectBug('tensor-memory', /an allocation of 512 columns after one of 32/, {
      allocate: x => {
        x.k.whenUniform(x.first, () => {
          const small = Object.assign(Object.create(x.memory), { columns: 32 }) as typeof x.memory
          small.allocate()
          small.open()
          small.free()
          planted.at = here(1)
          x.memory.allocate()
        })
      },
    })
  })

  test('another warp frees: a warning', () => {
    const { findings, warnings } = runTensor(
      plain,
      tensorKernel(plain, {
        free: ({ k, memory, barrier }) => {
          memory.beforeSync()
          barrier()
          k.whenUniform(k.threadIdx.ge(96), () => {
            memory.afterSync()
            planted.at = here(1)
            memory.free()
          })
        },
      }),
    )
    expect(findings).toEqual([])
    expect(warnings).toMatchObject([{ rule: 'tensor-memory', at: planted.at }])
  })

  test('one block of a pair allocates alone', () => {
    expectBug(
      'deadlock',
      /waits for ever at tcgen05.alloc.cg2 \(the other block of the pair\)/,
      {
        allocate: ({ k, memory, first }) =>
          k.whenUniform(first.and(k.cluster.rank.eq(0)), () => {
            planted.at = here(1)
            memory.allocate()
          }),
      },
      { ...plain, pair: true },
    )
  })

  test('groups of one and of two blocks in one kernel', () => {
    expectBug(
      'tensor-memory',
      /cta_group::1 in a kernel that uses cta_group::2/,
      {
        read: x => {
          const alone = Object.assign(Object.create(x.memory), { pair: false }) as typeof x.memory
          x.k.whenUniform(x.first, () => {
            planted.at = here(1)
            alone.relinquish()
          })
        },
      },
      { ...plain, pair: true, n: 32 },
    )
  })
})
