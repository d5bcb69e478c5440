/** What the latent-attention operations share: arguments, results, and the checks of query, cache, lists and sink. */

import type { Dtype } from '../dtypes/dtype.ts'
import { OptionError, ShapeError, ValueError } from '../errors.ts'
import type { KeySourceProblem, LatentAttentionProblem } from '../kernels/latent-attention/problem.ts'
import { nopeWidth, packed656Offsets, packed656ScaleBlock } from '../tensor/cache-layout.ts'
import type { LatentPool } from '../tensor/cache-pool.ts'
import type { AnyTensor, DeviceTensor } from '../tensor/device-tensor.ts'
import type { Indices } from '../tensor/spaces.ts'
import type { Axis, Contract } from './contract.ts'
import type { OutputSpec, TensorTable } from './op.ts'

/** Cache element types that each query type may meet (spec §3, variants). */
const cacheDtypes: Partial<Record<Dtype, readonly Dtype[]>> = {
  f32: ['f32'],
  bf16: ['bf16', 'e4m3', 'u8'],
  e4m3: ['e4m3'],
}

/** What one cache contributes to a problem, and its tensors under their call names. */
export interface CheckedSource {
  readonly source: Omit<KeySourceProblem, 'topk'>
  readonly tensors: TensorTable
}

/** @throws ShapeError | DtypeError | OptionError | ValueError */
export function checkLatentPool(
  c: Contract,
  name: string,
  pool: LatentPool,
  qDtype: Dtype,
  width: number,
): CheckedSource {
  c.object(name, pool, ['format', 'values', 'scales', 'scaleBlock', 'layer'])
  const format = c.choice(`${name}.format`, pool.format, ['plain', 'packed656'])
  const packed = format === 'packed656'
  const dtypes = cacheDtypes[qDtype]!.filter(dtype => packed === (dtype === 'u8'))
  if (dtypes.length === 0)
    throw new OptionError({
      where: c.op,
      argument: `${name}.format`,
      given: format,
      allowed: 'plain rows for q of f32 or e4m3',
    })
  const [blocks, layers, rows] = ['blocks', 'layers', 'pageSize'].map(axis => `${axis} of ${name}`) as PoolAxes
  const shape = [blocks, layers, rows, packed ? packed656Offsets.bytes : width]
  const values = c.tensor(`${name}.values`, pool.values, { dtypes, shape })
  if (packed && width !== 576)
    throw new ShapeError({
      where: c.op,
      argument: 'q',
      given: `width ${width}`,
      allowed: '576 for packed 656-byte rows',
    })
  const pageSize = c.bound(rows, 1, 2 ** 31)
  const layer = c.integer(`${name}.layer`, pool.layer, 0, c.dim(layers) - 1)
  const scaleBlock = packed ? packed656ScaleBlock : checkScaleBlock(c, name, pool, width, qDtype)
  const perRow = packed || scaleBlock === 0 ? 0 : Math.ceil(width / scaleBlock)
  const scales = checkScales(c, name, pool, [blocks, layers, rows, perRow])
  return {
    source: { name, dtype: values.dtype, format, scaleBlock, layer, pageSize, blocks: c.dim(blocks) },
    tensors: { [`${name}.values`]: values, [`${name}.scales`]: scales },
  }
}

type PoolAxes = [blocks: string, layers: string, rows: string]

function checkScales(
  c: Contract,
  name: string,
  { scales }: LatentPool,
  shape: readonly Axis[],
): AnyTensor<'f32'> | undefined {
  if (shape.at(-1) !== 0) return c.tensor(`${name}.scales`, scales, { dtypes: ['f32'], shape })
  if (scales === undefined) return undefined
  throw new OptionError({
    where: c.op,
    argument: `${name}.scales`,
    given: 'a tensor',
    allowed: 'none with scaleBlock 0 or packed rows',
  })
}

function checkScaleBlock(
  c: Contract,
  name: string,
  { values, scaleBlock }: LatentPool,
  width: number,
  qDtype: Dtype,
): number {
  const argument = `${name}.scaleBlock`
  c.integer(argument, scaleBlock, 0)
  const allowed =
    values.dtype !== 'e4m3'
      ? '0 for rows that are not e4m3'
      : qDtype === 'e4m3'
        ? `0 or at least ${width} with q of e4m3`
        : `0, a multiple of 16, or at least ${width}`
  const fits =
    scaleBlock === 0 ||
    (values.dtype === 'e4m3' && (scaleBlock >= width || (qDtype !== 'e4m3' && scaleBlock % 16 === 0)))
  if (!fits) throw new ValueError({ where: c.op, argument, given: scaleBlock, allowed })
  return scaleBlock
}

/** What the latent-attention operations take alike. */
export interface LatentArgs {
  /** `[...rows, heads, width]` f32, bf16 or e4m3; heads 1..128, width 576 or (no rope) 512. */
  readonly q: AnyTensor
  /** f32 `[...rows, heads]`: scale of each e4m3 query vector. Default 1. */
  readonly qScale?: AnyTensor<'f32'> | undefined
  /** Latent rows; f32 with f32 q; bf16, e4m3 or packed 656-byte rows with bf16 q; e4m3 with e4m3 q. */
  readonly cache: LatentPool
  /** Softmax scale, natural-log units. Required: 1/sqrt(192) * mscale^2 for DeepSeek-V3.2. */
  readonly scale: number
  /** f32 `[heads]`: added to the denominator as exp(sink); lse and maxLogits exclude it. */
  readonly sink?: AnyTensor<'f32'> | undefined
  /** Default bf16, or f32 for f32 queries. */
  readonly outDtype?: 'f32' | 'bf16' | undefined
  /** The caller's own output tensors, any strides. */
  readonly into?:
    | {
        readonly out?: DeviceTensor | undefined
        readonly lse?: DeviceTensor<'f32'> | undefined
        readonly maxLogits?: DeviceTensor<'f32'> | undefined
      }
    | undefined
  readonly signal?: AbortSignal | undefined
}

/** Argument names of {@link LatentArgs}. */
export const latentKeys: readonly string[] = ['q', 'qScale', 'cache', 'scale', 'sink', 'outDtype', 'into', 'signal']

/** What the latent-attention operations return alike. */
export interface LatentResult {
  /** `[...rows, heads, 512]`; exactly 0 where no key counts. */
  readonly out: DeviceTensor<'f32' | 'bf16'>
  /** f32 `[...rows, heads]`, natural log; -inf where no key counts. */
  readonly lse: DeviceTensor<'f32'>
  /** f32 `[...rows, heads]`: the largest scaled logit; -inf where no key counts. */
  readonly maxLogits: DeviceTensor<'f32'>
}

/** A checked {@link LatentArgs}. */
export interface CheckedLatent {
  readonly problem: Pick<LatentAttentionProblem, 'op' | 'heads' | 'width' | 'scale' | 'qDtype' | 'outDtype'>
  readonly source: CheckedSource['source']
  readonly inputs: TensorTable
  readonly outputs: Readonly<Record<keyof LatentResult, OutputSpec>>
  readonly signal: AbortSignal | undefined
}

/** @param axes names of the row axes. @throws ShapeError | DtypeError | OptionError | ValueError */
export function checkLatent(c: Contract, args: LatentArgs, axes: readonly string[]): CheckedLatent {
  const { q, qScale, width } = checkQuery(c, args, axes)
  const { source, tensors } = checkLatentPool(c, 'cache', args.cache, q.dtype, width)
  const sink = c.optional('sink', args.sink, { dtypes: ['f32'], shape: ['heads'] })
  const fallback = q.dtype === 'f32' ? 'f32' : 'bf16'
  const outDtype = c.choice('outDtype', args.outDtype ?? fallback, ['f32', 'bf16'])
  const scale = c.finite('scale', args.scale, scaleHint)
  const into = args.into === undefined ? {} : c.object('into', args.into, ['out', 'lse', 'maxLogits'])
  return {
    problem: { op: c.op, heads: c.dim('heads'), width, scale, qDtype: q.dtype, outDtype },
    source,
    inputs: { q, qScale, ...tensors, sink },
    outputs: {
      out: c.output('into.out', into.out, outDtype, [...axes, 'heads', nopeWidth]),
      lse: c.output('into.lse', into.lse, 'f32', [...axes, 'heads']),
      maxLogits: c.output('into.maxLogits', into.maxLogits, 'f32', [...axes, 'heads']),
    },
    signal: args.signal,
  }
}

function checkQuery(c: Contract, { q, qScale }: LatentArgs, axes: readonly string[]) {
  const query = c.tensor('q', q, { dtypes: ['f32', 'bf16', 'e4m3'], shape: [...axes, 'heads', 'width'] })
  c.bound('heads', 1, 128)
  const width = c.dim('width')
  if (width !== 576 && width !== 512)
    throw new ShapeError({
      where: c.op,
      argument: 'q',
      given: [...query.shape],
      allowed: 'width 576, or 512 without rope',
    })
  if (qScale !== undefined && query.dtype !== 'e4m3')
    throw new OptionError({ where: c.op, argument: 'qScale', given: 'a tensor', allowed: 'none unless q is e4m3' })
  return { q: query, qScale: c.optional('qScale', qScale, { dtypes: ['f32'], shape: [...axes, 'heads'] }), width }
}

/** Slots of a source and how many of them count. */
export interface ListArgs {
  readonly indices: Indices<'slot'>
  readonly topkLength?: AnyTensor<'i32' | 'u32'> | undefined
}

/**
 * The lists of source `name`, one for each row of the axes `axes`; `prefix` leads to them in the caller's arguments.
 *
 * @throws ShapeError | DtypeError | OptionError | IndexSpaceError
 */
export function checkLists(
  c: Contract,
  { name, prefix }: { readonly name: string; readonly prefix: string },
  { indices, topkLength }: ListArgs,
  axes: readonly string[],
): { readonly topk: number; readonly tensors: TensorTable } {
  const topk = `${prefix}topk`
  const list = c.tensor(`${prefix}indices`, indices, {
    dtypes: ['i32', 'u32'],
    shape: [...axes, topk],
    space: 'slot',
  })
  const lengths = c.optional(`${prefix}topkLength`, topkLength, { dtypes: ['i32', 'u32'], shape: axes })
  return {
    topk: c.bound(topk, 1, 2 ** 31 - 1),
    tensors: { [`${name}.indices`]: list, [`${name}.lengths`]: lengths },
  }
}

const scaleHint = '1/sqrt(192) * mscale^2 for DeepSeek-V3.2'
