/**
 * Shared-memory swizzles (isa.md §3.2): 16-byte chunks of a row move by an exclusive-or with the row's number within
 * the pattern. The function acts on absolute byte addresses and is its own inverse.
 */

/** Bytes of a row of the pattern: 0 keeps addresses as they are. */
export type Swizzle = 0 | 32 | 64 | 128

/** Where the byte at `address` of an unswizzled tile lies. */
export const swizzled = (address: number, swizzle: Swizzle): number =>
  swizzle === 0 ? address : address ^ (((address >> 7) & (swizzle / 16 - 1)) << 4)

/** Bytes after which the pattern repeats: the alignment of a swizzled tile. */
export const swizzleRepeat = (swizzle: Swizzle): number => Math.max(16, 8 * swizzle)
