/** Sizes of the Blackwell indexers. */

/** Columns of the score tile: token-heads. */
export const columns = 128
/** Keys of a tile: rows of the score tile. */
export const residentKeys = 64
export const streamedKeys = 128

/** Tokens of a tile. */
export const tileTokens = (paddedHeads: number): number => columns / paddedHeads

/** A power of two, 4..128. */
export const paddedHeadsFor = (heads: number): number => Math.max(4, 2 ** Math.ceil(Math.log2(heads)))
