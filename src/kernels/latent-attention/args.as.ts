// What the planner of latent attention hands to its kernels.

/** Columns of V, the first of a row. */
export const NOPE: u32 = 512;

/** The maximum of no scores. */
export const NEG_INF: f32 = -Infinity;

/** Strides count elements. Token t is query t % queries of sequence t / queries. */
@unmanaged
export class AttendArgs {
  q: usize;
  qDtype: u32;
  qSequenceStride: u32;
  qQueryStride: u32;
  qHeadStride: u32;
  qScale: usize; // f32 per token and head, or 0
  qScaleSequenceStride: u32;
  qScaleQueryStride: u32;
  heads: u32;
  width: u32;
  scale: f32;
  sink: usize; // f32 [heads] or 0
  out: usize;
  outDtype: u32;
  outSequenceStride: u32;
  outQueryStride: u32;
  outHeadStride: u32;
  lse: usize; // f32 per token and head
  lseSequenceStride: u32;
  lseQueryStride: u32;
  maxLogits: usize; // f32 per token and head
  maxLogitsSequenceStride: u32;
  maxLogitsQueryStride: u32;
  queries: u32; // per sequence
  validLength: usize; // u32 [sequences]: queries that count, or 0: all
  firstToken: u32; // of this launch
  splits: u32; // items per token
  minSplitKeys: u32; // keys that a split takes at least
  partial: usize; // splits > 1: f32 [tokens of the launch][splits][heads][O 512, m, l]
}

/** One cache and how a token's keys in it are found. Follows AttendArgs in memory, twice. */
@unmanaged
export class KeySource {
  values: usize; // row 0 of the layer; 0 = no such source
  dtype: u32;
  packed: u32; // 656-byte rows
  blockBytes: u32;
  rowBytes: u32;
  scales: usize; // f32 or 0
  scaleBlockBytes: u32;
  scaleRowBytes: u32;
  scaleBlock: u32; // values per scale; >= width: one per row
  pageSize: u32;
  slots: u32; // valid slots are 0 .. slots-1
  topk: u32; // entries of a list, or positions the block table has room for
  indices: usize; // list of slots, or 0: all positions of the sequence, through blockTable
  indexSequenceStride: u32;
  indexQueryStride: u32; // 0 where the queries of a sequence share a list
  lengths: usize; // entries of each list that count, or 0: all
  lengthsSigned: u32; // i32, else u32
  lengthSequenceStride: u32;
  lengthQueryStride: u32;
  logical: usize; // positions beside the slots, or 0: an entry counts if 0 <= position <= cacheLength + query
  logicalSequenceStride: u32;
  logicalQueryStride: u32;
  blockTable: usize; // u32 [sequences][pages]
  tableStride: u32;
  cacheLength: usize; // u32 [sequences]
  newKeys: u32; // the sequence has its queries' keys beyond cacheLength
  causal: u32; // a query sees the positions up to its own
}

/** Queries of a sequence that count. */
export function queriesOf(a: AttendArgs, sequence: u32): u32 {
  return a.validLength ? min(load<u32>(a.validLength + (sequence << 2)), a.queries) : a.queries;
}
