// Logical position -> slot through the block table of a sequence.

/** Where the sequences of a batch keep their keys. */
@unmanaged
export class SlotMap {
  blockTable: usize; // u32 [batch, maxPages], or 0: no map
  tableStride: u32; // entries
  maxPages: u32;
  pageSize: u32;
  blocks: u32;
}

/** Slot of a position of a sequence; -1 when the position, its page or its block does not exist. */
// @ts-ignore: decorator
@inline
export function slotOf(m: SlotMap, sequence: u32, position: i32): i32 {
  const page = <u32>position / m.pageSize;
  if (position < 0 || page >= m.maxPages) return -1;
  const block = load<u32>(m.blockTable + ((sequence * m.tableStride + page) << 2));
  return block < m.blocks ? <i32>(block * m.pageSize + (<u32>position - page * m.pageSize)) : -1;
}
