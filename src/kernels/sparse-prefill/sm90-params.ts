/** Parameters that the Hopper sparse prefill kernels share: all but the cached rows. */

import { type BufferParam, f32, input, output, type ScalarParam, u32 } from '../../lang/params.ts'
import type { SparseSm90Config } from './sm90-config.ts'

type Stride = `${'q' | 'out'}${'Token' | 'Head'}Stride` | `${'indices' | 'lengths' | 'lse' | 'maxLogits'}TokenStride`
type Part = 'parts' | 'partEntries' | 'firstPart' | 'allParts' | 'listTokens' | 'sequenceTokens' | 'logicalStride'
type Count = 'pageSize' | 'blockGap' | 'topk' | 'slots' | 'tokens' | 'heads' | 'groups'

export type CallParams = Readonly<
  Record<Stride | Count | Part, ScalarParam<'u32'>> &
    Record<'scale' | 'scaleLog2', ScalarParam<'f32'>> &
    Record<'indices' | 'lengths' | 'logical' | 'cacheLength', BufferParam<'u32'>> &
    Record<'sink' | 'lse' | 'maxLogits' | 'states' | 'tops', BufferParam<'f32'>> & {
      q: BufferParam<'bf16'>
      out: BufferParam<'f32' | 'bf16' | 'u32'>
    }
>

export const callParams = ({ out }: Pick<SparseSm90Config, 'out'>): CallParams => ({
  q: input('bf16', '[tokens, heads, width]'),
  qTokenStride: u32('elements'),
  qHeadStride: u32('elements'),
  pageSize: u32('slots of a block'),
  blockGap: u32('memory rows from the end of a block to the layer’s next one'),
  indices: input('u32', '[tokens, topk]: slots'),
  indicesTokenStride: u32('elements'),
  topk: u32('entries of a list'),
  lengths: input('u32', '[tokens]: entries that count'),
  lengthsTokenStride: u32('elements'),
  slots: u32('slots of the pool'),
  scale: f32('softmax scale, natural-log units; above 0'),
  scaleLog2: f32('the same in log2 units'),
  sink: input('f32', '[heads]'),
  out: output(out === 'words' ? 'u32' : out === 'partial' ? 'f32' : out, outDoc(out)),
  states: output('f32', '[tokens, heads, allParts, 2]: m and l of each part'),
  tops: output('f32', '[tokens, heads, allParts]: largest logit of each part'),
  outTokenStride: u32('elements'),
  outHeadStride: u32('elements'),
  lse: output('f32', '[tokens, heads]'),
  lseTokenStride: u32('elements'),
  maxLogits: output('f32', '[tokens, heads]'),
  maxLogitsTokenStride: u32('elements'),
  tokens: u32('query tokens'),
  heads: u32('real heads'),
  groups: u32('groups of 64 heads'),
  parts: u32('parts of a list'),
  partEntries: u32('entries of a part'),
  firstPart: u32('number of the first part'),
  allParts: u32('parts of a token in all'),
  listTokens: u32('tokens that share a list'),
  sequenceTokens: u32('tokens of a sequence'),
  logical: input('u32', '[lists, topk]: positions of the entries'),
  logicalStride: u32('elements'),
  cacheLength: input('u32', '[sequences]: tokens older than the queries'),
})

const outDoc = (out: SparseSm90Config['out']): string =>
  out === 'partial' ? '[tokens, heads, allParts, 512]: O of each part' : '[tokens, heads, 512]; of words, two bf16 each'
