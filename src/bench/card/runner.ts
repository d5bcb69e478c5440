/** How calls are timed on a card: recorded as a graph, so that the host's part does not count. */

import type { CudaDevice } from '../../cuda/device.ts'
import type { CudaGraph } from '../../cuda/graph.ts'
import type { Device } from '../../device.ts'
import type { DeviceTensor } from '../../tensor/device-tensor.ts'
import type { Runner } from '../bench.ts'

/** A sample lasts about so long, in milliseconds; short jobs are repeated. */
const sampleMs = 12
const mostCalls = 50

type Call = () => readonly DeviceTensor[]

/** Calls `call` and frees what it returns. */
function once(call: Call): void {
  for (const t of call()) t.dispose()
}

const isCard = (device: Device): device is CudaDevice => 'capture' in device

/**
 * A runner of device calls, one sample the mean of a batch between two events.
 *
 * @param call enqueues and returns what is to be freed
 */
export function cardRunner(device: Device, held: readonly (DeviceTensor | undefined)[], call: Call): Runner {
  let graph: CudaGraph | undefined
  let calls = 1
  const prepare = async (card: CudaDevice): Promise<CudaGraph> => {
    once(call)
    const ms = await card.time(() => once(call))
    calls = Math.max(1, Math.min(mostCalls, Math.round(sampleMs / ms)))
    return card.capture(() => {
      for (let i = 0; i < calls; i++) once(call)
    })
  }
  return {
    async sample() {
      if (!isCard(device)) return device.time(() => once(call))
      graph ??= await prepare(device)
      const recorded = graph
      return (await device.time(() => recorded.replay())) / calls
    },
    [Symbol.dispose]() {
      graph?.dispose()
      for (const t of held) t?.dispose()
    },
  }
}
