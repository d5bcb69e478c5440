/** The variants of spec section 3: what q and the cache are, and the gates of the outputs. */

import type { AttentionReference } from '../src/kernels/attention-reference.ts'
import { type LatentLayout, latentLayouts } from '../src/tensor/cache-layout.ts'
import type { Tensor } from '../src/tensor/tensor.ts'
import { attentionBf16, attentionBlockScales, attentionNativeFp8, type GateReport } from './gates.ts'

/** A row of the table of spec section 3. */
export interface Variant {
  readonly layout: LatentLayout
  readonly q: 'f32' | 'bf16' | 'e4m3'
  /** A scale for each token and head. */
  readonly qScale?: boolean
  /** For bf16 output. */
  readonly gate: (actual: Tensor, ref: AttentionReference) => GateReport
  readonly blockScales?: boolean
}

const block32: LatentLayout = { format: 'plain', dtype: 'e4m3', width: 576, scaleBlock: 32 }

export type VariantName =
  | 'f32'
  | 'bf16'
  | 'fp8 unit'
  | 'fp8 per token'
  | 'fp8 blocks of 128'
  | 'fp8 blocks of 32'
  | 'packed 656'
  | 'native fp8, unit'
  | 'native fp8, per token'

export const variants: Readonly<Record<VariantName, Variant>> = {
  f32: { layout: latentLayouts.f32, q: 'f32', gate: attentionBf16 },
  bf16: { layout: latentLayouts.bf16, q: 'bf16', gate: attentionBf16 },
  'fp8 unit': { layout: latentLayouts.fp8, q: 'bf16', gate: attentionBf16 },
  'fp8 per token': { layout: latentLayouts['fp8-token'], q: 'bf16', gate: attentionBf16 },
  'fp8 blocks of 128': {
    layout: latentLayouts['fp8-block128'],
    q: 'bf16',
    gate: attentionBlockScales,
    blockScales: true,
  },
  'fp8 blocks of 32': { layout: block32, q: 'bf16', gate: attentionBlockScales, blockScales: true },
  'packed 656': { layout: latentLayouts.packed656, q: 'bf16', gate: attentionBlockScales, blockScales: true },
  'native fp8, unit': { layout: latentLayouts.fp8, q: 'e4m3', gate: attentionNativeFp8 },
  'native fp8, per token': {
    layout: latentLayouts['fp8-token'],
    q: 'e4m3',
    qScale: true,
    gate: attentionNativeFp8,
  },
}

export const variantNames = Object.keys(variants) as VariantName[]
