/** Kernels in a row, time: griddepcontrol, clock64, nanosleep (isa.md §8.5). */

import type { InstRecord } from '../record.ts'

const control = (name: string, ptx: string, doc: string): InstRecord => ({
  name,
  ptx,
  since: 90,
  operands: {},
  effect: 'sync',
  cost: { unit: 'control', cycles: 1 },
  run: () => {},
  doc,
})

/** Launches run one after the other in the simulator, so both of these change nothing there. */
export const gridWait: InstRecord = control(
  'grid.wait',
  'griddepcontrol.wait;',
  'waits until the kernels before this one have ended and their writes are visible',
)
export const gridLaunch: InstRecord = control(
  'grid.launch',
  'griddepcontrol.launch_dependents;',
  'lets the next kernel start; it still waits for this one at its own wait',
)

export const clock: InstRecord = {
  name: 'clock',
  ptx: 'mov.u64 {d}, %clock64;',
  since: 75,
  operands: { d: { type: 'u64', use: 'out' } },
  effect: 'sync',
  cost: { unit: 'alu', cycles: 1 },
  run: m => {
    const d = m.operand('d')
    m.eachLane(lane => {
      d[lane] = m.time as never
    })
  },
  doc: 'cycles of the multiprocessor; in the simulator, the cycles that this warp’s instructions so far take',
}

export const sleep: InstRecord = {
  name: 'nanosleep',
  ptx: 'nanosleep.u32 {ns};',
  since: 75,
  operands: { ns: { type: 'u32', use: 'in' } },
  effect: 'sync',
  cost: { unit: 'control', cycles: 1 },
  run: () => {},
  doc: 'suspends the warp for about this many nanoseconds',
}
