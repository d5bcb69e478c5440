/** Cluster addresses: a byte of a block's shared memory, under the block's rank. */

const rankShift = 24

export const rankOf = (address: number): number => address >>> rankShift
export const byteOf = (address: number): number => address & ((1 << rankShift) - 1)
