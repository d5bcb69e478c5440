/**
 * How cached tokens lie in memory (spec sections 1 and 3), as data. `layers` layers share a pool's blocks.
 *
 *   latent  plain      values [blocks, layers, pageSize, width], scales f32 [blocks, layers, pageSize, ceil(width/scaleBlock)]
 *           packed656  bytes u8 [blocks, layers, pageSize, 656]: FlashMLA's fp8 row of DeepSeek-V3.2
 *   index   pools      values [blocks, layers, pageSize, depth], scales f32 [blocks, layers, pageSize] for e4m3
 *           planar     bytes u8 [blocks, layers, pageSize * (depth + 4)]: DeepGEMM's and vLLM's indexer block
 */

import { dtypeInfo } from '../dtypes/dtype.ts'
import { DtypeError, OptionError, ValueError } from '../errors.ts'

/** Element types of rows that are plain arrays. */
export type CacheDtype = 'f32' | 'bf16' | 'e4m3'

const cacheDtypes: readonly string[] = ['f32', 'bf16', 'e4m3'] satisfies CacheDtype[]

/** Leading columns of a latent row, the nope part: K and V alike. The columns after it, rope, are K only. */
export const nopeWidth = 512

/** Latent rows as an array of elements, their scales in a pool of their own. */
export interface PlainLatentLayout {
  readonly format: 'plain'
  readonly dtype: CacheDtype
  /** 512 nope columns, then 64 rope columns or none. */
  readonly width: 512 | 576
  /** Columns under one f32 scale: 0 for no scales, `width` or more for one a token, else a multiple of 16. e4m3 only. */
  readonly scaleBlock: number
}

/** 576 columns in 656 bytes, see {@link packed656Offsets}. */
export interface Packed656Layout {
  readonly format: 'packed656'
}

export type LatentLayout = PlainLatentLayout | Packed656Layout

/** Indexer keys and, for e4m3, one f32 scale a key in two pools. */
export interface IndexPoolsLayout {
  readonly format: 'pools'
  readonly dtype: CacheDtype
  /** Elements of a key: a multiple of 16 up to 256. */
  readonly depth: number
}

/** Indexer keys in e4m3, each block's values before its scales, see {@link planarBlock}. */
export interface PlanarIndexLayout {
  readonly format: 'planar'
  /** Elements of a key: a multiple of 16 up to 256. */
  readonly depth: number
}

export type IndexLayout = IndexPoolsLayout | PlanarIndexLayout

export type LatentLayoutName = 'f32' | 'bf16' | 'fp8' | 'fp8-token' | 'fp8-block128' | 'packed656'

/** The 576-wide layouts by the names that the command line takes. */
export const latentLayouts: Readonly<Record<LatentLayoutName, LatentLayout>> = {
  f32: { format: 'plain', dtype: 'f32', width: 576, scaleBlock: 0 },
  bf16: { format: 'plain', dtype: 'bf16', width: 576, scaleBlock: 0 },
  fp8: { format: 'plain', dtype: 'e4m3', width: 576, scaleBlock: 0 },
  'fp8-token': { format: 'plain', dtype: 'e4m3', width: 576, scaleBlock: 576 },
  'fp8-block128': { format: 'plain', dtype: 'e4m3', width: 576, scaleBlock: 128 },
  packed656: { format: 'packed656' },
}

/**
 * Byte offsets in a packed row: 512 e4m3 nope, 4 f32 scales (scale s for nope columns 128s .. 128s+127), 64 bf16 rope;
 * little-endian. Source: the docstring of FlashMLA's `flash_mla_with_kvcache`.
 */
export const packed656Offsets = { nope: 0, scales: 512, rope: 528, bytes: 656 } as const

/** Nope columns under one scale of a packed row. */
export const packed656ScaleBlock = 128

/** Byte offsets in one planar block. */
export interface PlanarBlock {
  /** Size of the block; 8448 for 64 keys of depth 128. */
  readonly bytes: number
  /** First of the `depth` e4m3 codes of key `token` of the block. */
  valueOffset(token: number): number
  /** The key's f32 scale, little-endian. */
  scaleOffset(token: number): number
}

/**
 * Offsets in a block of `pageSize` keys: all values, then all scales. It is not `pageSize` rows of `depth + 4` bytes, which
 * has the same size. Source: DeepGEMM's `fp8_paged_mqa_logits`, vLLM's `indexer_k_quant_and_cache`.
 */
export function planarBlock(pageSize: number, depth: number): PlanarBlock {
  return {
    bytes: pageSize * (depth + 4),
    valueOffset: token => token * depth,
    scaleOffset: token => pageSize * depth + 4 * token,
  }
}

/** Elements of a row: 576 or 512 latent columns, or the depth of an indexer key. */
export function rowWidth(layout: LatentLayout | IndexLayout): number {
  switch (layout.format) {
    case 'plain':
      return layout.width
    case 'packed656':
      return 576
    default:
      return layout.depth
  }
}

/** f32 scales of one token, wherever they lie; 0 when the codes are the values. */
export function scalesPerToken(layout: LatentLayout | IndexLayout): number {
  switch (layout.format) {
    case 'plain':
      return layout.scaleBlock === 0 ? 0 : Math.ceil(layout.width / layout.scaleBlock)
    case 'packed656':
      return nopeWidth / packed656ScaleBlock
    case 'pools':
      return layout.dtype === 'e4m3' ? 1 : 0
    case 'planar':
      return 1
  }
}

/** Bytes of one token in one layer, scales included. */
export function bytesPerToken(layout: LatentLayout | IndexLayout): number {
  if (layout.format === 'packed656') return packed656Offsets.bytes
  const elementBytes = layout.format === 'planar' ? 1 : dtypeInfo[layout.dtype].bytes
  return rowWidth(layout) * elementBytes + 4 * scalesPerToken(layout)
}

/** @throws OptionError | DtypeError | ValueError naming what the layout gets wrong */
export function checkLatentLayout(where: string, layout: LatentLayout): void {
  if (layout.format === 'packed656') return
  checkFormat(where, layout.format, ['plain', 'packed656'])
  const { dtype, width, scaleBlock } = layout
  checkCacheDtype(where, dtype)
  if (width !== 512 && width !== 576)
    throw new ValueError({ where, argument: 'width', given: width, allowed: '576, or 512 for rows without rope' })
  if (!(Number.isInteger(scaleBlock) && scaleBlock >= 0 && (scaleBlock >= width || scaleBlock % 16 === 0)))
    throw new ValueError({
      where,
      argument: 'scaleBlock',
      given: scaleBlock,
      allowed: `0 (no scales), a multiple of 16, or at least ${width} (one scale a token)`,
    })
  if (scaleBlock > 0 && dtype !== 'e4m3')
    throw new OptionError({
      where,
      argument: 'scaleBlock',
      given: scaleBlock,
      allowed: `0 for ${dtype}: only e4m3 is scaled`,
    })
}

/** @throws OptionError | DtypeError | ValueError naming what the layout gets wrong */
export function checkIndexLayout(where: string, layout: IndexLayout): void {
  checkFormat(where, layout.format, ['pools', 'planar'])
  if (layout.format === 'pools') checkCacheDtype(where, layout.dtype)
  const { depth } = layout
  if (!(depth > 0 && depth <= 256 && depth % 16 === 0))
    throw new ValueError({ where, argument: 'depth', given: depth, allowed: 'a multiple of 16 from 16 to 256' })
}

function checkFormat(where: string, format: string, known: readonly string[]): void {
  if (known.includes(format)) return
  throw new OptionError({ where, argument: 'format', given: format, allowed: known.join(' or ') })
}

function checkCacheDtype(where: string, dtype: string): void {
  if (cacheDtypes.includes(dtype)) return
  throw new DtypeError({ where, argument: 'dtype', given: dtype, allowed: cacheDtypes.join(', ') })
}
