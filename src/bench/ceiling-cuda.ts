/**
 * The ceilings of a Hopper card: bare multiplies on data in shared memory, and a bare read of memory.
 *
 *   D[64, 256] += A[64, 128 B] · B[256, 128 B]ᵀ           two warpgroups a block, one block a multiprocessor, nothing else
 */

import type { Device } from '../device.ts'
import type { MatrixDtype } from '../lang/isa/wgmma.ts'
import { type Kernel, kernel } from '../lang/kernel.ts'
import { gpuPlan, type KernelLaunch, specialize } from '../lang/launch.ts'
import { input, output, tensorMap, u32 } from '../lang/params.ts'
import type { CeilingProbe } from './ceiling.ts'
import { noise } from './data.ts'

const [rows, columns, warpgroups] = [128, 256, 2]
/** Bytes of an operand row: four multiplies deep. */
const rowBytes = 128
/** Four multiplies each; about 2 ms. */
const rounds = 8192

const traceMultiply = specialize(({ dtype }: { readonly dtype: MatrixDtype }): Kernel => {
  const depth = dtype === 'e4m3' ? rowBytes : rowBytes / 2
  const params = {
    a: tensorMap({ dtype, box: [depth, rows], swizzle: 128 }, 'A [128, depth]'),
    b: tensorMap({ dtype, box: [depth, columns], swizzle: 128 }, 'B [256, depth]'),
    sums: output('f32', '[blocks, 256]'),
    rounds: u32('groups of four multiplies'),
  }
  return kernel({ name: `bench_multiply_${dtype}`, target: 'sm_90a', threads: 128 * warpgroups, params }, (k, p) => {
    const a = k.tile({ dtype, rows, columns: depth })
    const b = k.tile({ dtype, rows: columns, columns: depth })
    const arrived = k.barriers(1)
    k.when(k.threadIdx.eq(0), () => {
      arrived.init(1)
      k.fenceBarrierInit()
      arrived.arriveExpect(0, p.a.boxBytes + p.b.boxBytes)
      p.a.load(a.address(), [0, 0], arrived.address(0))
      p.b.load(b.address(), [0, 0], arrived.address(0))
    })
    k.barrier()
    arrived.wait(0, 0)
    for (let group = 0; group < warpgroups; group++) {
      k.role(`multiply_${group}`, { warps: [4 * group, 4 * group + 4] }, () => {
        const d = k.accumulator(columns)
        for (const _ of k.range(p.rounds)) {
          k.warpgroup.fence()
          d.multiply({ tile: a, row: 64 * group }, { tile: b }, { accumulate: true })
          k.warpgroup.commit()
          k.warpgroup.wait(0)
        }
        const sum = Array.from({ length: d.length }, (_, j) => d.get(j)).reduce((x, y) => x.add(y))
        p.sums.store(k.offset(k.threadIdx, k.blockIdx.x, 128 * warpgroups), sum)
      })
    }
  })
})

/** All multiprocessors multiply, `dtype` operands and f32 sums. */
export function tensorProbe(device: Device, dtype: MatrixDtype): CeilingProbe {
  const { workers } = device.limits
  const depth = dtype === 'bf16' ? rowBytes / 2 : rowBytes
  const a = device.upload(noise(dtype, [rows, depth], 1))
  const b = device.upload(noise(dtype, [columns, depth], 2))
  const sums = device.alloc('f32', [workers, 128 * warpgroups])
  const launch: KernelLaunch = { kernel: traceMultiply({ dtype }), grid: [workers, 1], args: { a, b, sums, rounds } }
  return {
    amount: workers * rounds * 2 * rows * columns * depth,
    run: () => device.submit(gpuPlan('benchMultiply', [launch]), { inputs: { a, b }, outputs: { sums } }),
    dispose: () => {
      for (const t of [a, b, sums]) t.dispose()
    },
  }
}

const readBytes = 2 ** 31
const readThreads = 1024
/** 16-byte loads that a thread has under way. */
const readsAtOnce = 8

const traceRead = specialize(({ target }: { readonly target: 'sm_90a' }): Kernel => {
  const params = {
    source: input('u32', '[words]'),
    sums: output('u32', '[blocks, 1024]'),
    words: u32('a multiple of what all threads read at once'),
  }
  return kernel({ name: 'bench_read', target, threads: readThreads, residentBlocks: 2, params }, (k, p) => {
    const sum = k.var('u32', 0)
    const start = k.blockIdx.x.mul(4 * readThreads * readsAtOnce).add(k.threadIdx.mul(4))
    for (const at of k.range(p.words, { start, step: k.gridDim.x.mul(4 * readThreads * readsAtOnce) })) {
      const loads = Array.from({ length: readsAtOnce }, (_load, i) => p.source.load4(at.add(4 * readThreads * i)))
      sum.set(loads.flat().reduce((x, y) => x.bitXor(y), sum as never))
    }
    p.sums.store(k.offset(k.threadIdx, k.blockIdx.x, readThreads), sum)
  })
})

/** All multiprocessors read 2 GiB of memory once. */
export function cardReadProbe(device: Device): CeilingProbe {
  const blocks = 2 * device.limits.workers
  const words =
    Math.floor(readBytes / 4 / (blocks * 4 * readThreads * readsAtOnce)) * blocks * 4 * readThreads * readsAtOnce
  const source = device.alloc('u32', [words])
  const sums = device.alloc('u32', [blocks, readThreads])
  const launch: KernelLaunch = {
    kernel: traceRead({ target: 'sm_90a' }),
    grid: [blocks, 1],
    args: { source, sums, words },
  }
  return {
    amount: 4 * words,
    run: () => device.submit(gpuPlan('benchRead', [launch]), { inputs: { source }, outputs: { sums } }),
    dispose: () => {
      source.dispose()
      sums.dispose()
    },
  }
}
