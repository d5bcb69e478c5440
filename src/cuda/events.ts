/** Events: marks in the stream that the host can look at. Marks that only order are used again. */

import type { CudaContext } from './context.ts'
import { result } from './result.ts'

const [timing, withoutTiming] = [0, 2]
/** Looks before the host goes to sleep between looks. */
const busyLooks = 200

/** The stretch of the stream between two timing events. */
export interface Span extends Disposable {
  end(): void
  /** Once the end has been reached. */
  milliseconds(): number
}

export class Events {
  private readonly context: CudaContext
  private readonly idle: bigint[] = []

  constructor(context: CudaContext) {
    this.context = context
  }

  /** Resolves when the work queued before the call has ended. @throws the error that the card reports */
  async reached(where: string): Promise<void> {
    const { context } = this
    const event = this.idle.pop() ?? this.create(where, withoutTiming)
    try {
      context.call(where, 'cuEventRecord', event, context.stream)
      for (let looks = 0; ; looks++) {
        const code = context.driver.call('cuEventQuery', event)
        if (code === result.ok) return
        if (code !== result.notReady) throw context.failure(where, 'cuEventQuery', code)
        await new Promise(resolve => (looks < busyLooks ? setImmediate(resolve) : setTimeout(resolve, 1)))
        context.enter()
      }
    } finally {
      this.idle.push(event)
    }
  }

  /** A stretch that starts here. */
  span(): Span {
    const { context } = this
    const [start, end] = [this.create('time', timing), this.create('time', timing)]
    context.call('time', 'cuEventRecord', start, context.stream)
    return {
      end: () => context.call('time', 'cuEventRecord', end, context.stream),
      milliseconds: () => {
        const value = new Float32Array(1)
        context.call('time', 'cuEventElapsedTime', value, start, end)
        return value[0]!
      },
      [Symbol.dispose]: () => {
        for (const event of [start, end]) context.driver.call('cuEventDestroy_v2', event)
      },
    }
  }

  dispose(): void {
    for (const event of this.idle.splice(0)) this.context.driver.call('cuEventDestroy_v2', event)
  }

  private create(where: string, flags: number): bigint {
    const event = new BigUint64Array(1)
    this.context.call(where, 'cuEventCreate', event, flags)
    return event[0]!
  }
}
