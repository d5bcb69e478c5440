import { describe, expect, test } from 'vitest'
import { here } from '../../test/sim-kernel.ts'
import { expectBug, findingsOf, issuing, loading, loadingTooEarly, planted } from '../../test/tensor-bugs.ts'
import type { Bench, Steps, TensorCase } from '../../test/tensor-kernel.ts'

const plain: TensorCase = { dtype: 'bf16', m: 128, n: 32, depth: 32 }

/** The multiply, at the planted line, and its commit. */
function multiplying({ d, operands, memory, done }: Bench, commit: 0 | 1): void {
  planted.at = here(1)
  d.multiply(...operands)
  memory.commit(done.address(commit))
}

/** Loads the result, then overwrites it by a second multiply. */
const overwriting =
  (between: (x: Bench) => void): Steps['read'] =>
  x => {
    loading(x)
    between(x)
    issuing(() => multiplying(x, 1))(x)
    x.done.wait(1, 0)
    x.memory.afterSync()
  }

describe('order', () => {
  test('results are loaded without a fence after the wait', () => {
    expectBug('tensor-fence', /after a multiply of warp 0 without tcgen05.fence::after_thread_sync/, {
      wait: ({ done }) => done.wait(0, 0),
      read: loadingTooEarly,
    })
  })

  test('results are loaded without a wait for the commit', () => {
    expectBug('race', /while a multiply of warp 0 may still be under way/, {
      wait: ({ memory }) => memory.afterSync(),
      read: loadingTooEarly,
    })
  })

  test('a commit before the multiplies covers none of them', () => {
    expectBug('race', /while a multiply/, {
      issue: issuing(({ d, operands, memory, done }) => {
        memory.commit(done.address(0))
        d.multiply(...operands)
      }),
      read: loadingTooEarly,
    })
  })

  test('a commit by another thread covers none of them', () => {
    expectBug('race', /while a multiply/, {
      issue: x => {
        const { k, d, operands, memory, done } = x
        k.when(k.threadIdx.eq(0), () => d.multiply(...operands))
        k.when(k.threadIdx.eq(1), () => memory.commit(done.address(0)))
      },
      read: loadingTooEarly,
    })
  })

  test('nobody commits', () => {
    expectBug('deadlock', /waits for ever at mbarrier.wait/, {
      issue: issuing(({ d, operands }) => d.multiply(...operands)),
      wait: ({ done, memory }) => {
        planted.at = here(1)
        done.wait(0, 0)
        memory.afterSync()
      },
    })
  })

  test('nobody waits for the multiplies before the block ends', () => {
    expectBug('in-flight', /a multiply is still under way/, {
      issue: issuing(({ d, operands }) => {
        planted.at = here(1)
        d.multiply(...operands)
      }),
      wait: () => {},
      read: () => {},
    })
  })

  test('a register of a load is used before the wait', () => {
    expectBug('matrix-registers', /touches a register of a tcgen05.ld before/, {
      read: x => {
        const registers = x.d.load('32x32b', 32)
        planted.at = here(1)
        registers[3]!.add(1)
        x.memory.waitLoads()
        x.keep(registers)
      },
    })
  })

  test('a load is never waited for', () => {
    expectBug('in-flight', /a tcgen05.ld is still under way/, {
      read: x => {
        planted.at = here(1)
        x.d.load('32x32b', 32)
      },
      free: () => {},
    })
  })

  test('a multiply overwrites what another warp still loads', () => {
    expectBug('race', /overwritten while a load of warp \d may still be under way/, {
      read: overwriting(({ k }) => k.barrier()),
    })
  })

  test('the same with fences around the barrier is right', () => {
    const findings = findingsOf({
      read: overwriting(({ k, memory }) => {
        memory.beforeSync()
        k.barrier()
        memory.afterSync()
      }),
    })
    expect(findings).toEqual([])
  })

  test('without the fence after the barrier it is not', () => {
    expectBug('tensor-fence', /overwritten after a load/, {
      read: overwriting(({ k, memory }) => {
        memory.beforeSync()
        k.barrier()
      }),
    })
  })

  test('one lane fences for the loads of all', () => {
    expectBug('tensor-fence', /after a multiply of warp 0 without tcgen05.fence::after_thread_sync/, {
      wait: ({ k, done, memory }) => {
        done.wait(0, 0)
        k.when(k.elect(), () => memory.afterSync())
        k.warpBarrier()
      },
      read: loadingTooEarly,
    })
  })

  test('one lane tells of the loads of all', () => {
    expectBug('race', /overwritten while a load of warp \d/, {
      read: overwriting(({ k, memory }) => {
        k.when(k.elect(), () => memory.beforeSync())
        k.barrier()
        memory.afterSync()
      }),
    })
  })

  test('stores are not waited for before a load of the same thread', () => {
    expectBug('race', /read while a store of warp \d/, {
      read: x => {
        const registers = x.d.load('32x32b', 32)
        x.memory.waitLoads()
        x.d.store('32x32b', registers)
        planted.at = here(1)
        const again = x.d.load('32x32b', 32)
        x.memory.waitLoads()
        x.memory.waitStores()
        x.keep(again)
      },
    })
  })

  test('A in tensor memory is overwritten while multiplies read it', () => {
    const c = { ...plain, a: 'tensor' } as const
    expectBug(
      'race',
      /overwritten while a multiply/,
      {
        wait: x => {
          const words = Array.from({ length: 16 }, () => x.k.const('u32', 0))
          planted.at = here(1)
          x.memory.store('32x32b', words, { column: 384 })
          x.memory.waitStores()
          x.done.wait(0, 0)
          x.memory.afterSync()
        },
      },
      c,
    )
  })

  test('operands are overwritten before the commit arrives', () => {
    expectBug('race', /shared memory of block 0 byte \d+ is overwritten while warp 0 may still read it/, {
      wait: ({ a, k, done, memory }) => {
        planted.at = here(1)
        a.storeWord(a.at(0, k.threadIdx, 0), k.const('u32', 0))
        done.wait(0, 0)
        memory.afterSync()
      },
    })
  })

  test('operands are written without a proxy fence', () => {
    expectBug('missing-proxy-fence', /written by ordinary stores/, {
      fence: () => {},
      issue: issuing(x => multiplying(x, 0)),
    })
  })

  test('the address of the columns is read without the fences', () => {
    expectBug('race', /used while the allocation of warp 0/, {
      share: ({ memory, barrier }) => {
        barrier()
        memory.open()
      },
      issue: x => x.k.when(x.k.threadIdx.eq(32), () => multiplying(x, 0)),
    })
  })

  test('several lanes issue', () => {
    expectBug('divergence', /several lanes issue/, {
      issue: ({ k, first, d, operands, memory, done }) =>
        k.whenUniform(first, () => {
          planted.at = here(1)
          d.multiply(...operands)
          k.when(k.elect(), () => memory.commit(done.address(0)))
        }),
    })
  })
})
