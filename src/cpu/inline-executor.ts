/** Runs jobs on the calling thread in slices of a few milliseconds, so that the page or server stays responsive. */

import { FaultError } from '../errors.ts'
import { abortedError, type Executor, type Job } from './job.ts'
import type { Kernel } from './modules.ts'

const sliceMs = 12

const nextTask = (): Promise<void> =>
  new Promise(resolve => {
    const { port1, port2 } = new MessageChannel()
    port1.onmessage = () => {
      port1.close()
      resolve()
    }
    port2.postMessage(null)
  })

export class InlineExecutor implements Executor {
  readonly workers = 1
  private readonly kernels: WebAssembly.Exports

  constructor(module: WebAssembly.Module, memory: WebAssembly.Memory) {
    this.kernels = new WebAssembly.Instance(module, { env: { memory } }).exports
  }

  /** First byte after the kernels' static data. */
  get staticBytes(): number {
    return (this.kernels.staticBytes as WebAssembly.Global<'i32'>).value
  }

  async ready(): Promise<void> {}

  async run(job: Job, signal: AbortSignal | undefined): Promise<void> {
    let sliceEnd = performance.now() + sliceMs
    for (const { kernel, items, args } of job.stages) {
      const run = this.kernels[kernel] as Kernel
      for (let item = 0; item < items; item++) {
        if (signal?.aborted) throw abortedError(job, signal)
        try {
          run(args, item, job.scratch)
        } catch (cause) {
          throw new FaultError({ where: job.op, allowed: `kernel ${kernel} to finish item ${item}`, cause })
        }
        if (performance.now() < sliceEnd) continue
        await nextTask()
        sliceEnd = performance.now() + sliceMs
      }
    }
  }

  async dispose(): Promise<void> {}
}
