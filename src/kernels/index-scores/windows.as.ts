// Which keys a query token sees: its sequence, its position in it, and the window [lo, hi) of keys (spec sections 0, 1).
// Everything is clamped to what exists, so lengths and offsets that only the device knows cannot lead out of a tensor.

const CAUSAL: u32 = 0;
const GIVEN: u32 = 2;

@unmanaged
export class TokenWindows {
  tokens: u32;
  rowOffsets: usize; // u32 [batch + 1], or 0
  validLength: usize; // u32 [batch]: sequences are `rows` tokens apart; or 0
  batch: u32;
  rows: u32;
  kvRowOffsets: usize; // u32 [batch + 1] into the contiguous keys, or 0
  cacheLength: usize; // u32 [batch] for paged keys, or 0
  lengthsIncludeNew: u32;
  keys: u32; // contiguous keys in all
  pool: u32; // tokens a key stands for
  width: u32; // columns
  kind: u32; // 0 causal, 1 all, 2 given
  lo: usize; // [tokens], or 0
  loSigned: u32;
  hi: usize;
  hiSigned: u32;
}

/** The run of tokens [token, runEnd) that share a sequence, as the last `enterRun` found it. */
export let runEnd: u32 = 0;
export let sequence: u32 = 0;
/** Keys of the sequence; 0 for tokens that no sequence holds. */
export let numKeys: u32 = 0;
/** Row of the sequence's first key among contiguous keys. */
export let firstRow: u32 = 0;
/** Position + 1 of token t in its sequence is t + visibleBase. */
let visibleBase: i64 = 0;

/** The window of a token, as the last `enterWindow` found it; lo <= hi. */
export let windowLo: u32 = 0;
export let windowHi: u32 = 0;

// @ts-ignore: decorator
@inline
function entry(list: usize, i: u32): u32 {
  return load<u32>(list + (i << 2));
}

/** Smallest b with rowOffsets[b + 1] > token, or batch. */
function sequenceOf(w: TokenWindows, token: u32): u32 {
  let low: u32 = 0;
  let high = w.batch;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (entry(w.rowOffsets, middle + 1) > token) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** Tokens [token, end) belong to no sequence: they see nothing. */
function enterNothing(end: u32): void {
  runEnd = min(runEnd, end);
  numKeys = 0;
}

/** Finds the sequence of `token` and how many tokens after it, before `limit`, share it. */
export function enterRun(w: TokenWindows, token: u32, limit: u32): void {
  let first: u32 = 0;
  let length = w.tokens;
  sequence = 0;
  runEnd = limit;
  if (w.rowOffsets) {
    sequence = sequenceOf(w, token);
    // Every token is searched for, so that offsets that fall give the same sequences wherever a run begins.
    for (runEnd = token + 1; runEnd < limit && sequenceOf(w, runEnd) == sequence; ) runEnd++;
    if (sequence == w.batch) return enterNothing(limit);
    first = entry(w.rowOffsets, sequence);
    if (first > token) return enterNothing(first);
    length = entry(w.rowOffsets, sequence + 1) - first;
  } else if (w.validLength) {
    sequence = token / w.rows;
    first = sequence * w.rows;
    length = min(w.rows, entry(w.validLength, sequence));
    if (token - first >= length) return enterNothing(first + w.rows);
    runEnd = min(limit, first + length);
  }
  enterKeys(w, length);
  visibleBase += 1 - <i64>first - <i64>length;
}

/** Sets numKeys and firstRow, and visibleBase to the number of tokens in the sequence. */
function enterKeys(w: TokenWindows, length: u32): void {
  let all = <u64>w.keys;
  firstRow = 0;
  if (w.cacheLength) {
    all = entry(w.cacheLength, sequence);
    if (!w.lengthsIncludeNew) all += length;
    numKeys = <u32>min<u64>(all / w.pool, 0x7fffffff);
  } else {
    if (w.kvRowOffsets) {
      firstRow = min(w.keys, entry(w.kvRowOffsets, sequence));
      all = max(min(w.keys, entry(w.kvRowOffsets, sequence + 1)), firstRow) - firstRow;
    }
    numKeys = <u32>all;
  }
  visibleBase = <i64>all;
}

function bound(list: usize, token: u32, signed: u32, most: u32): u32 {
  const value = entry(list, token);
  return signed && <i32>value < 0 ? 0 : min(value, most);
}

/** Finds the window of a token of the run entered last. */
export function enterWindow(w: TokenWindows, token: u32): void {
  const most = min(numKeys, w.width);
  windowLo = 0;
  windowHi = most;
  if (w.kind == CAUSAL) {
    windowHi = <u32>min<i64>(max<i64>(visibleBase + token, 0) / w.pool, most);
  } else if (w.kind == GIVEN) {
    windowHi = bound(w.hi, token, w.hiSigned, most);
    if (w.lo) windowLo = min(windowHi, bound(w.lo, token, w.loSigned, most));
  }
}
