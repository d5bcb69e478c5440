/** An mbarrier as an instruction of a warp sees it. */

import type { MachineBarrier } from '../lang/machine.ts'
import { byteOf, rankOf } from './cluster-address.ts'
import type { MbarrierState } from './mbarrier.ts'
import type { Warp } from './warp.ts'

/** The barrier at an address; what the warp waits for is named by it from now on. */
export function machineBarrier(
  warp: Warp,
  address: number,
  space: 'shared' | 'cluster',
  initialized: MbarrierState[],
): MachineBarrier {
  const { site, actor, clock } = warp
  const { cluster } = warp.block
  const block = space === 'shared' ? warp.block : (cluster.blockOf(rankOf(address), warp) ?? warp.block)
  const isRemote = block !== warp.block
  const state = block.mbarrier(warp, space === 'shared' ? address : byteOf(address))
  if (isRemote) cluster.remoteAccess(block, { ...warp.accessor(), clock: clock.copy() }, warp)
  warp.missing = () => state.missing
  const check = (): void => (isRemote ? state.checkVisible(clock, site) : state.checkInitialized(clock, site))
  return {
    init: arrivals => {
      state.init(arrivals, { warp: actor, step: clock.seen[actor]!, site })
      initialized.push(state)
    },
    expect: bytes => {
      check()
      state.expect(bytes, site)
    },
    arrive: () => {
      check()
      state.arrive(clock, site)
      clock.seen[actor]!++
    },
    passed: parity => {
      check()
      const learned = state.passed(parity, actor, clock.seen[actor]!, site)
      if (learned !== undefined) clock.join(learned)
      return learned !== undefined
    },
  }
}
