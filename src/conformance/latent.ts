/** What the cases of sparsePrefill, sparseDecode and denseDecode share: the variants of spec section 3 and their gates. */

import type { Device } from '../device.ts'
import type { AttentionReference } from '../kernels/attention-reference.ts'
import type { LatentArgs, LatentResult } from '../ops/latent-args.ts'
import { type LatentLayout, latentLayouts } from '../tensor/cache-layout.ts'
import { fromFloats, type Tensor } from '../tensor/tensor.ts'
import { judge, type Verdict } from './case.ts'
import { collect, normals, poisonedOutputs, scalesAbove } from './data.ts'
import type { GateReport } from './gate.ts'
import {
  attentionBf16,
  attentionBlockScales,
  attentionF32,
  attentionLse,
  attentionMaxFp8,
  attentionMaxLogits,
  attentionNativeFp8,
  hopperFp8ScoreRounding,
  type ScoreRounding,
} from './gates.ts'
import type { Random } from './random.ts'

export interface LatentVariant {
  readonly name: string
  readonly q: 'f32' | 'bf16' | 'e4m3'
  readonly layout: LatentLayout
  /** Queries bring one scale a token and head. */
  readonly qScaled?: boolean
  readonly gate: (out: Tensor, ref: AttentionReference, rounding: ScoreRounding) => GateReport
  /** Keys under block scales, whose products may round to bf16. */
  readonly blockScales?: boolean
}

const plain = (dtype: 'f32' | 'bf16' | 'e4m3', scaleBlock = 0, width: 512 | 576 = 576): LatentLayout => ({
  format: 'plain',
  dtype,
  width,
  scaleBlock,
})

const blockVariant = (name: string, layout: LatentLayout): LatentVariant => ({
  name,
  q: 'bf16',
  layout,
  gate: attentionBlockScales,
  blockScales: true,
})

export const f32Variant: LatentVariant = { name: 'f32', q: 'f32', layout: plain('f32'), gate: attentionF32 }
export const bf16Variant: LatentVariant = { name: 'bf16', q: 'bf16', layout: plain('bf16'), gate: attentionBf16 }
export const tokenScaleVariant: LatentVariant = {
  name: 'fp8 cache, a scale a token',
  q: 'bf16',
  layout: plain('e4m3', 576),
  gate: attentionBf16,
}
export const packedVariant: LatentVariant = blockVariant('packed 656', latentLayouts.packed656)
export const nativeVariant: LatentVariant = {
  name: 'native fp8',
  q: 'e4m3',
  layout: plain('e4m3'),
  gate: attentionNativeFp8,
}
export const nativeScaledVariant: LatentVariant = {
  name: 'native fp8, a scale a token and head',
  q: 'e4m3',
  layout: plain('e4m3', 576),
  qScaled: true,
  gate: attentionNativeFp8,
}

export const latentVariants: readonly LatentVariant[] = [
  f32Variant,
  { ...f32Variant, name: 'f32 without rope', layout: plain('f32', 0, 512) },
  bf16Variant,
  { ...bf16Variant, name: 'bf16 without rope', layout: plain('bf16', 0, 512) },
  { ...bf16Variant, name: 'fp8 cache', layout: plain('e4m3') },
  tokenScaleVariant,
  blockVariant('fp8 cache, blocks of 32', plain('e4m3', 32)),
  blockVariant('fp8 cache, blocks of 128', plain('e4m3', 128)),
  blockVariant('fp8 cache, blocks of 240', plain('e4m3', 240)),
  packedVariant,
  nativeVariant,
  nativeScaledVariant,
  { ...nativeScaledVariant, name: 'native fp8 without rope', layout: plain('e4m3', 512, 512) },
]

export const widthOf = ({ layout }: LatentVariant): number => (layout.format === 'plain' ? layout.width : 576)

export const softmaxScale: number = 192 ** -0.5

/** Queries `[...rows, heads, width]`, with their scales where the variant has them. */
export function latentQueries(
  random: Random,
  variant: LatentVariant,
  rows: readonly number[],
  heads: number,
  sd = 1,
): Pick<LatentArgs, 'q' | 'qScale'> {
  const q = normals(random, variant.q, [...rows, heads, widthOf(variant)], sd)
  return variant.qScaled === true ? { q, qScale: scalesAbove(random, [...rows, heads], 0.7) } : { q }
}

/** Sinks of every kind: ordinary, neutral, overwhelming. */
export const sinks = (heads: number): Tensor<'f32'> =>
  fromFloats(
    'f32',
    [heads],
    Array.from({ length: heads }, (_, h) => [0.5, -Infinity, 4, -1e38, Infinity, -2][h % 6]!),
  )

/** The results of a call, read. */
export interface LatentOutputs {
  readonly out: Tensor
  readonly lse: Tensor<'f32'>
  readonly maxLogits: Tensor<'f32'>
}

/** Calls a latent attention into poison. */
export async function callLatent<A extends LatentArgs>(
  device: Device,
  op: (device: Device, args: A) => LatentResult,
  args: A,
): Promise<LatentOutputs> {
  const rows = args.q.shape.slice(0, -1)
  const into = poisonedOutputs(device, {
    out: [args.outDtype ?? (args.q.dtype === 'f32' ? 'f32' : 'bf16'), [...rows, 512]],
    lse: ['f32', rows],
    maxLogits: ['f32', rows],
  })
  op(device, { ...args, into })
  return collect(into)
}

/** How scores may be rounded: coarser where Hopper's tensor cores may multiply e4m3. */
const roundingOn = ({ limits, kind }: Device, { q }: LatentVariant): ScoreRounding =>
  q === 'e4m3' && kind !== 'cpu' && limits.target === 'sm_90a' ? { g: hopperFp8ScoreRounding } : {}

/** @param device that made the outputs; absent: scores are sums in f32 */
export function judgeLatent(
  variant: LatentVariant,
  actual: LatentOutputs,
  ref: AttentionReference,
  device?: Device,
): Verdict {
  const { gate, blockScales } = variant
  const rounding = device === undefined ? {} : roundingOn(device, variant)
  return judge(
    gate(actual.out, ref, rounding),
    attentionLse(actual.lse, ref, { ...rounding, blockScales }),
    attentionMaxLogits(actual.maxLogits, ref, { ...rounding, blockScales }),
  )
}

/** As {@link judgeLatent}, with MAX's own gate beside: for its conditions only, see {@link attentionMaxFp8}. */
export const judgeMaxFp8 = (actual: LatentOutputs, ref: AttentionReference): Verdict =>
  judge(attentionMaxFp8(actual.out, ref))
