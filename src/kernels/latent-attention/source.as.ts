// Which rows of a cache a token attends to, and how they become f32.

import { decodeE4m3, decodeRow, BF16 } from "../../cpu/as/decode.as";
import { queriesOf, AttendArgs, KeySource, NOPE } from "./args.as";

/** No slot: the entry does not count. */
export const NONE: u32 = 0xffffffff;

/** Entries or positions of a source that a token may attend to. */
export function candidates(a: AttendArgs, s: KeySource, sequence: u32, query: u32): u32 {
  if (s.indices) {
    if (!s.lengths) return s.topk;
    const length = load<u32>(s.lengths + ((sequence * s.lengthSequenceStride + query * s.lengthQueryStride) << 2));
    return s.lengthsSigned && <i32>length < 0 ? 0 : min(length, s.topk);
  }
  const rows = queriesOf(a, sequence);
  let visible = <i64>load<u32>(s.cacheLength + (sequence << 2));
  if (s.newKeys) visible += rows;
  if (s.causal) visible -= <i64>rows - query - 1;
  return <u32>min(max(visible, 0), <i64>s.topk);
}

/** The slot of a list's entry j. A negative slot or position is, as u32, beyond every bound. */
export function listed(s: KeySource, list: usize, positions: usize, bound: u64, j: u32): u32 {
  const slot = load<u32>(list + (j << 2));
  if (slot >= s.slots) return NONE;
  if (s.logical) {
    const position = load<u32>(positions + (j << 2));
    if (<i32>position < 0 || <u64>position > bound) return NONE;
  }
  return slot;
}

/** The slot of position j. */
export function paged(s: KeySource, pages: usize, j: u32): u32 {
  const block = load<u32>(pages + ((j / s.pageSize) << 2));
  const slot = <u64>block * s.pageSize + (j % s.pageSize);
  return slot < s.slots ? <u32>slot : NONE;
}

/** Decodes the row of `slot` to f32 at `to`. Returns the scale of the whole row, which is left out of it. */
export function gatherRow(s: KeySource, slot: u32, width: u32, to: usize): f32 {
  const block = slot / s.pageSize;
  const offset = slot % s.pageSize;
  const from = s.values + block * s.blockBytes + offset * s.rowBytes;
  if (s.packed) {
    for (let b: u32 = 0; b < 4; b++) decodeE4m3(from + (b << 7), 128, load<f32>(from + NOPE + (b << 2)), to + (b << 9));
    decodeRow(from + NOPE + 16, BF16, width - NOPE, to + (NOPE << 2));
    return 1;
  }
  if (s.scales == 0) {
    decodeRow(from, s.dtype, width, to);
    return 1;
  }
  const scales = s.scales + block * s.scaleBlockBytes + offset * s.scaleRowBytes;
  const step = s.scaleBlock;
  if (step >= width) {
    decodeRow(from, s.dtype, width, to);
    return load<f32>(scales);
  }
  for (let c: u32 = 0, i: usize = scales; c < width; c += step, i += 4)
    decodeE4m3(from + c, min(step, width - c), load<f32>(i), to + (c << 2));
  return 1;
}
