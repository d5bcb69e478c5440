/** How many entries of a list of slots count. */

import type { Val } from '../lang/value.ts'

/** All `topk` without lengths; else as many as `length` loads, of an i32 below 0 none, and never more than there are. */
export function entriesOf(lengths: 'none' | 'i32' | 'u32', topk: Val<'u32'>, length: () => Val<'u32'>): Val<'u32'> {
  if (lengths === 'none') return topk
  const given = length()
  return (lengths === 'i32' ? given.to('i32').max(0).to('u32') : given).min(topk)
}
