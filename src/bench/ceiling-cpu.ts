/** The ceilings of the cpu device; the kernels are in cpu.as.ts. */

import { argStruct, type CpuPlan, type CpuStage, lines } from '../cpu/plan.ts'
import type { Device } from '../device.ts'
import { zeros } from '../tensor/tensor.ts'
import type { CeilingProbe } from './ceiling.ts'

const benchTileArgs = argStruct('BenchTileArgs', {
  depth: 'u32',
  repeats: 'u32',
})

const benchReadArgs = argStruct('BenchReadArgs', {
  from: 'ptr',
  bytes: 'u32',
  sums: 'ptr',
})

/** 3 KiB of rows and panel. Depths from 64 to 576, all inside a first-level cache of 32 KiB, differ by 10 %; this is the fastest. */
const depth = 64
const repeats = 1 << 14
/** Short items, so that a worker that loses its core for a moment does not hold up the end. */
const itemsPerWorker = 16

const plan = (op: string, workers: number, workerBytes: number, stages: CpuPlan['stages']): CpuPlan => ({
  kind: 'cpu',
  op,
  sharedBytes: 0,
  workerBytes,
  scratchBytes: workers * lines(workerBytes),
  stages,
})

/** Every worker runs bare register tiles on data in its first-level cache. */
export function tileProbe(device: Device): CeilingProbe {
  const { workers } = device.limits
  const stage: CpuStage = {
    kernel: 'benchTile',
    items: workers * itemsPerWorker,
    args: benchTileArgs.pack({ depth, repeats }),
  }
  const launch = plan('benchTile', workers, 4 * (12 * depth + 32), () => [stage])
  return {
    amount: workers * itemsPerWorker * repeats * 2 * 4 * 8 * depth,
    run: () => device.submit(launch, { inputs: {}, outputs: {} }),
    dispose: () => {},
  }
}

const readBytes = 128 << 20
const readItems = 64

/** All workers together read memory that no cache holds. */
export function readProbe(device: Device): CeilingProbe {
  const source = device.upload(zeros('f32', [readBytes / 4]))
  const sums = device.alloc('f32', [readItems])
  const launch = plan('benchRead', device.limits.workers, 64, at => [
    {
      kernel: 'benchRead',
      items: readItems,
      args: benchReadArgs.pack({ from: at.input('source'), bytes: readBytes / readItems, sums: at.output('sums') }),
    },
  ])
  return {
    amount: readBytes,
    run: () => device.submit(launch, { inputs: { source }, outputs: { sums } }),
    dispose: () => {
      source.dispose()
      sums.dispose()
    },
  }
}
