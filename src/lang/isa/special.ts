/** Special registers: who and where a thread is. */

import type { InstRecord } from '../record.ts'
import type { Since } from '../types.ts'

export type SpecialName =
  | 'threadIdx'
  | 'blockIdxX'
  | 'blockIdxY'
  | 'gridDimX'
  | 'lane'
  | 'clusterRank'
  | 'clusterIdxX'
  | 'sharedBase'

const special = (name: string, ptx: string, wgsl: string | undefined, doc: string, since: Since = 75): InstRecord => ({
  name,
  ptx: `mov.u32 {d}, ${ptx};`,
  ...(wgsl === undefined ? {} : { wgsl }),
  since,
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
  clusterRank: special('clusterRank', '%cluster_ctarank', undefined, 'index of the block in its cluster', 90),
  clusterIdxX: special('clusterIdxX', '%clusterid.x', undefined, 'index of the cluster, first dimension', 90),
  sharedBase: special(
    'sharedBase',
    '{smem}',
    '0u',
    'where the shared memory of this kernel begins in the block’s shared window',
  ),
}
