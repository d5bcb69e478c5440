// slots[t, j] = block * pageSize + i mod pageSize      i = indices[t, j], block = blockTable[sequence of t, i / pageSize]
//
// A position, page or block that does not exist gives -1, as does every entry of a token that no sequence holds.
// remapRow: one item = one token.

import { enterRun, numKeys, sequence, TokenWindows } from "../index-scores/windows.as";
import { slotOf, SlotMap } from "./slot.as";

@unmanaged
class RemapArgs {
  indices: usize; // i32 [tokens, topk]
  indexStride: u32; // elements
  slots: usize; // i32 [tokens, topk]
  slotStride: u32;
  topk: u32;
}

export function remapRow(args: usize, item: i32, scratch: usize): void {
  const a = changetype<RemapArgs>(args);
  const m = changetype<SlotMap>(args + offsetof<RemapArgs>());
  const w = changetype<TokenWindows>(args + offsetof<RemapArgs>() + offsetof<SlotMap>());
  enterRun(w, item, item + 1);
  const held = numKeys > 0;
  const from = a.indices + ((item * a.indexStride) << 2);
  const to = a.slots + ((item * a.slotStride) << 2);
  for (let j: u32 = 0; j < a.topk; j++)
    store<i32>(to + (j << 2), held ? slotOf(m, sequence, load<i32>(from + (j << 2))) : -1);
}
