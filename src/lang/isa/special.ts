/** Special registers: who and where a thread is. */

import type { InstRecord } from '../record.ts'

export type SpecialName = 'threadIdx' | 'blockIdxX' | 'blockIdxY' | 'gridDimX' | 'lane'

const special = (name: string, ptx: string, wgsl: string, doc: string): InstRecord => ({
  name,
  ptx: `mov.u32 {d}, ${ptx};`,
  wgsl,
  since: 75,
  operands: { d: { type: 'u32', use: 'out' } },
  effect: 'read',
  cost: { unit: 'alu', cycles: 0.5 },
  run: m => {
    const d = m.operand('d')
    for (let lane = 0; lane < m.width; lane++) if (m.active(lane)) d[lane] = m.special(name, lane)
  },
  doc,
})

export const specials: Readonly<Record<SpecialName, InstRecord>> = {
  threadIdx: special('threadIdx', '%tid.x', 'local_id.x', 'index of the thread in its block'),
  blockIdxX: special('blockIdxX', '%ctaid.x', 'group_id.x', 'index of the block, first dimension'),
  blockIdxY: special('blockIdxY', '%ctaid.y', 'group_id.y', 'index of the block, second dimension'),
  gridDimX: special('gridDimX', '%nctaid.x', 'group_count.x', 'blocks in the first dimension'),
  lane: special('lane', '%laneid', 'subgroup_lane', 'index of the lane in its warp'),
}
