/** Kernels of portable decode, of the merges of partial results, and of dense prefill. */

import { causal } from '../kernels/dense-prefill/masks.ts'
import { alibi } from '../kernels/dense-prefill/score-mods.ts'
import { denseDecode } from '../ops/dense-decode.ts'
import { type DensePrefillArgs, densePrefill } from '../ops/dense-prefill.ts'
import { mergeStates } from '../ops/merge-states.ts'
import { sparseDecode } from '../ops/sparse-decode.ts'
import { tensor, zeros } from '../tensor/tensor.ts'
import {
  blocks,
  caches,
  heads,
  latentArgs,
  pageSize,
  portableEntry,
  portableGrid,
  scale,
  splitDecode,
  tokens,
} from './latent-calls.ts'
import type { ListedKernel } from './listed-kernel.ts'

const decode = (['bf16', 'packed656'] as const).flatMap((name): ListedKernel[] => [
  {
    name: `sparse_attention_${name}_split`,
    entry: portableEntry(name),
    about: `Sparse MLA over lists of slots, up to 16 heads a block, splits left for merge_splits: ${caches[name].says}.`,
    grid: portableGrid,
    // Only the portable kernels take a negative scale.
    plan: d => sparseDecode.plan(d, { ...splitDecode(name), scale: -scale }),
  },
  {
    name: `dense_attention_${name}_split`,
    entry: portableEntry(name),
    about: `MLA over all cached rows, up to 16 heads a block, splits left for merge_splits: ${caches[name].says}.`,
    grid: portableGrid,
    plan: d =>
      denseDecode.plan(d, {
        ...latentArgs(name, [1, 1]),
        blockTable: tensor(
          'u32',
          [1, blocks],
          Uint32Array.from({ length: blocks }, (_, i) => i),
        ),
        cacheLength: tensor('u32', [1], Uint32Array.of(blocks * pageSize - 1)),
      }),
  },
])

const oneRow = 'x = tokens * heads, y = 1'

const merges: readonly ListedKernel[] = [
  ...(['bf16', 'f32'] as const).map(
    (dtype): ListedKernel => ({
      name: `merge_splits_${dtype}`,
      entry: 'merge_splits',
      about: `Partial results of attention whose keys were split, into ${dtype} rows.`,
      grid: oneRow,
      plan: d => sparseDecode.plan(d, splitDecode(dtype)),
    }),
  ),
  {
    name: 'merge_states_2_bf16',
    entry: 'merge_states_portable',
    about: 'Two bf16 attention results and their lse into one.',
    grid: oneRow,
    plan: d =>
      mergeStates.plan(d, {
        out: [0, 1].map(() => zeros('bf16', [tokens, heads, 512])),
        lse: [0, 1].map(() => zeros('f32', [tokens, heads])),
      }),
  },
]

const [denseTokens, nope, vDim, keyCount] = [16, 128, 128, 64]

const plainDense = (dtype: 'f32' | 'bf16', options: Partial<DensePrefillArgs> = {}): DensePrefillArgs =>
  ({
    q: zeros(dtype, [denseTokens, heads, nope + 64]),
    keys: {
      nope: zeros(dtype, [keyCount, heads, nope]),
      v: zeros(dtype, [keyCount, heads, vDim]),
      rope: zeros(dtype, [keyCount, 64]),
    },
    mask: causal(),
    scale,
    ...options,
  }) as DensePrefillArgs

const perTokenDense = (): DensePrefillArgs => ({
  qNope: zeros('e4m3', [denseTokens, heads, nope]),
  qRope: zeros('bf16', [denseTokens, heads, 64]),
  qScale: zeros('f32', [denseTokens]),
  keys: {
    nope: zeros('e4m3', [keyCount, heads, nope]),
    v: zeros('e4m3', [keyCount, heads, vDim]),
    rope: zeros('bf16', [keyCount, 64]),
    scale: zeros('f32', [keyCount]),
  },
  mask: causal(),
  scale,
})

const denseGrid = 'x = ceil(tokens * group / lanes) * splits, y = kv heads * slices; lanes 16 in this configuration'

const dense: readonly ListedKernel[] = [
  {
    name: 'token_spans',
    entry: 'token_spans',
    about: 'Where every query token stands among the contiguous keys of its one sequence, for the dense kernels.',
    grid: 'x = ceil(tokens / 128), y = 1',
    plan: d => densePrefill.plan(d, plainDense('bf16')),
  },
  {
    name: 'constants',
    entry: 'constants',
    about: 'Up to 64 numbers of the host into memory, such as the slopes of alibi.',
    grid: 'x = 1, y = 1',
    plan: d => densePrefill.plan(d, plainDense('bf16', { scoreMod: alibi(heads) })),
  },
  ...(['f32', 'bf16'] as const).map(
    (dtype): ListedKernel => ({
      name: `dense_prefill_causal_${dtype}`,
      entry: `dense_prefill_portable_${dtype}`,
      about: `Dense MLA prefill, causal, ${dtype}, contiguous keys, v of 65..128 columns, no splits.`,
      grid: denseGrid,
      plan: d => densePrefill.plan(d, plainDense(dtype)),
    }),
  ),
  {
    name: 'dense_prefill_causal_e4m3',
    entry: 'dense_prefill_portable_e4m3',
    about: 'Dense MLA prefill, causal, e4m3 with a scale per token and key, contiguous keys, v of 65..128 columns.',
    grid: denseGrid,
    plan: d => densePrefill.plan(d, perTokenDense()),
  },
]

export const attentionKernels: readonly ListedKernel[] = [...decode, ...merges, ...dense]
