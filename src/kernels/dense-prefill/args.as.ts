// What the kernels of dense prefill share in memory: arguments, scheduled blocks, a worker's scratch.
//
// Arguments of a launch: DenseArgs | DenseRows of nope, v, rope, rope scales, key scales | f32 slope of each head, if
// alibi | DenseMaskStep of each step.

/** Keys of a tile. Tiles start at multiples of 64 of a sequence's keys, so a row's bits do not depend on its block. */
export const TILE: u32 = 64;
/** Leaves of a mask. */
export const MAX_LEAVES: u32 = 16;
/** Bytes of a set of keys: a count, then [first, end) pairs. */
export const SET_BYTES: u32 = 4 + 8 * MAX_LEAVES;
export const ROPE: u32 = 64;

export const ALIBI: u32 = 1;
export const SOFTCAP: u32 = 2;

@unmanaged
export class DenseArgs {
  qNope: usize;
  qNopeDtype: u32;
  qNopeTokenStride: u32; // elements
  qNopeHeadStride: u32;
  qRope: usize;
  qRopeDtype: u32;
  qRopeTokenStride: u32;
  qRopeHeadStride: u32;
  qScale: usize; // f32 [tokens] or 0
  tokens: u32;
  batch: u32;
  paddedRows: u32; // rows of each sequence; 0: ragged, or one sequence
  rowOffsets: usize; // u32 [batch + 1] or 0
  validLength: usize; // u32 [batch] or 0
  cacheLength: usize; // u32 [batch]; 0: contiguous keys give the lengths
  lengthsIncludeNew: u32;
  kvRowOffsets: usize; // u32 [batch + 1]; 0: one sequence has all contiguous keys
  contiguousKeys: u32;
  blockTable: usize; // u32 [batch, maxPages] or 0
  tableStride: u32;
  maxPages: u32;
  pageSize: u32;
  blocks: u32; // of the smallest pool
  heads: u32;
  kvHeads: u32;
  nope: u32;
  vDim: u32;
  ropeScaleBlock: u32; // columns of a cached row under one scale
  ropeFirst: u32; // the cached row's column where rope starts
  scale: f32;
  scoreMod: u32;
  cap: f32;
  maskSteps: u32;
  biases: u32; // materialized leaves
  scoreUnit: f32; // scores are held in units of this power of two, so that sums of biases stay finite
  sink: usize; // f32 [heads] or 0
  out: usize;
  outDtype: u32;
  outTokenStride: u32; // elements
  outHeadStride: u32;
  lse: usize; // f32, one per token and head
  lseTokenStride: u32;
  order: u32; // 0 longest first, 1 as given, 2 last block of a sequence first
  lanes: u32; // of a block: query heads of one kv head at consecutive positions
  maxBlocks: u32;
  work: usize; // u32 count, at 16 u64 order [maxBlocks], then DenseBlock [maxBlocks]
  splits: u32; // of a sequence's keys
  firstPair: u32; // pair = kv head * maxBlocks + place in the order
  partial: usize; // splits > 1: f32 [pairs of the stage][splits][lanes][vDim rounded up to 8, then m, l]
}

/** One row a key: contiguous, or in the pages of a pool. */
@unmanaged
export class DenseRows {
  base: usize; // row 0, or row 0 of block 0 of the layer; 0: none
  dtype: u32;
  blockBytes: u32; // 0: contiguous
  rowBytes: u32;
  headBytes: u32;
}

@unmanaged
export class DenseMaskStep {
  kind: u32;
  window: u32;
  tensor: usize; // valid u32 [batch], or bias
  dtype: u32;
  batchStride: u32; // elements
  headStride: u32;
  rowStride: u32;
  rows: u32;
  columns: u32;
}

/** Consecutive lanes of one sequence; lane = row * group + head within the group. */
@unmanaged
export class DenseBlock {
  sequence: u32;
  firstToken: u32; // of the sequence
  rows: u32; // of the sequence, padding included
  queries: u32; // rows that are tokens
  firstLane: u32;
  firstKey: u32; // row of key 0 in contiguous tensors
  numKeys: u32;
  cost: u32;
}

/** A worker's scratch: first this table of its parts, then they. */
@unmanaged
export class DenseScratch {
  lanes: u32;
  lanes8: u32; // rounded up to 8
  width: u32; // nope + 64, rounded up to 4
  v8: u32; // vDim rounded up to 8
  keyEnd: u32; // keys that have a page
  panels: usize; // Q^T [lanes/8][width][8]
  keys: usize; // K [64][width]
  values: usize; // V [64][v8]
  scores: usize; // S^T, then P^T [64][lanes]
  bias: usize; // [64][lanes]
  output: usize; // O [lanes][v8]
  rowMax: usize; // [lanes], as the next five
  rowSum: usize;
  alpha: usize;
  factor: usize; // scale * qScale
  slope: usize;
  position: usize; // i32
  keyScale: usize; // f32 [64]
  bits: usize; // u64 [lanes]: which keys of the tile a lane sees
  groups: usize; // u32 [lanes/4][2]: hull of the keys that four lanes see; the high bit of the second: not all see all
  sets: usize; // [lanes] sets of visible keys
  stack: usize; // [17] sets
}

// @ts-ignore: decorator
@inline
export function denseRows(a: DenseArgs, index: u32): DenseRows {
  return changetype<DenseRows>(changetype<usize>(a) + offsetof<DenseArgs>() + index * offsetof<DenseRows>());
}

// @ts-ignore: decorator
@inline
export function denseSlopes(a: DenseArgs): usize {
  return changetype<usize>(a) + offsetof<DenseArgs>() + 5 * offsetof<DenseRows>();
}

// @ts-ignore: decorator
@inline
export function denseMaskSteps(a: DenseArgs): usize {
  return denseSlopes(a) + (a.scoreMod == ALIBI ? <usize>a.heads << 2 : 0);
}

// @ts-ignore: decorator
@inline
export function denseMaskStep(steps: usize, index: u32): DenseMaskStep {
  return changetype<DenseMaskStep>(steps + index * offsetof<DenseMaskStep>());
}

// @ts-ignore: decorator
@inline
export function denseOrder(a: DenseArgs, index: u32): usize {
  return a.work + 16 + (index << 3);
}

// @ts-ignore: decorator
@inline
export function denseBlock(a: DenseArgs, index: u32): DenseBlock {
  return changetype<DenseBlock>(a.work + 16 + (a.maxBlocks << 3) + index * offsetof<DenseBlock>());
}

/** Bits of the keys [first, end) of a tile, `first < end <= 64`. */
// @ts-ignore: decorator
@inline
export function denseHull(first: u32, end: u32): u64 {
  return (~(<u64>0) >> (<u64>(TILE - (end - first)))) << <u64>first;
}

/** Keys of a block's sequence that have a row: all, or as many as the block table has room for. */
export function denseKeyEnd(a: DenseArgs, block: DenseBlock): u32 {
  if (!a.blockTable) return block.numKeys;
  return <u32>min(<u64>block.numKeys, <u64>a.maxPages * a.pageSize);
}
