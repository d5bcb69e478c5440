/**
 * The masks of mask.ts inside the portable kernel: the same postfix program, unrolled while tracing. Every leaf shows a
 * query one interval of keys, a materialized one at most the columns of its bias.
 */

import type { Buffer } from '../../lang/buffer.ts'
import type { KernelBuilder } from '../../lang/builder.ts'
import type { LaunchArg } from '../../lang/launch.ts'
import { input, type Params, u32 } from '../../lang/params.ts'
import type { Val } from '../../lang/value.ts'
import type { DeviceTable } from '../../ops/op.ts'
import { tileKeys } from '../attention-tile.ts'
import type { BiasDtype, MaskStep } from './mask.ts'
import type { MaskStepProblem } from './problem.ts'

type U32 = Val<'u32'>
type F32 = Val<'f32'>
type Pred = Val<'pred'>

/** A step of the program: what of it the trace depends on. */
export interface MaskStepConfig {
  readonly kind: MaskStep['kind']
  readonly bias?: BiasDtype
}

/** A query of a sequence, and the keys of the sequence that have a place. */
export interface MaskedQuery {
  readonly sequence: U32
  readonly position: Val<'i32'>
  readonly row: U32
  readonly keyEnd: U32
}

interface Interval {
  readonly first: U32
  readonly end: U32
}

/** Parameters of a step inside the kernel. */
interface StepBound {
  readonly window: U32
  readonly valid: Buffer<'u32'>
  readonly bias: Buffer<BiasDtype>
  readonly batchStride: U32
  readonly headStride: U32
  readonly rowStride: U32
  readonly rows: U32
  readonly columns: U32
}

const stepParams = ({ kind, bias }: MaskStepConfig): Params =>
  kind === 'materialized'
    ? {
        bias: input(bias!, '[batch, heads, rows, columns]'),
        batchStride: u32('elements'),
        headStride: u32('elements'),
        rowStride: u32('elements'),
        rows: u32('rows of the bias'),
        columns: u32('columns of the bias'),
      }
    : kind === 'causalPadding'
      ? { valid: input('u32', '[batch]') }
      : kind === 'and' || kind === 'or'
        ? {}
        : { window: u32('window of the mask') }

const stepName = (name: string, i: number): string => `mask${i}_${name}`

export const maskParams = (steps: readonly MaskStepConfig[]): Params =>
  Object.fromEntries(
    steps.flatMap((step, i) => Object.entries(stepParams(step)).map(([name, param]) => [stepName(name, i), param])),
  )

export const maskConfig = (mask: readonly MaskStepProblem[], inputs: DeviceTable): MaskStepConfig[] =>
  mask.map(({ kind }, i) =>
    kind === 'materialized' ? { kind, bias: inputs[`mask.${i}`]!.dtype as BiasDtype } : { kind },
  )

export function maskArgs(mask: readonly MaskStepProblem[], inputs: DeviceTable): Record<string, LaunchArg> {
  const args = mask.flatMap(({ kind, window }, i): [string, LaunchArg][] => {
    const tensor = inputs[`mask.${i}`]
    if (kind === 'and' || kind === 'or') return []
    if (kind === 'causalPadding') return [[stepName('valid', i), tensor]]
    if (kind !== 'materialized') return [[stepName('window', i), window]]
    const { shape, strides } = tensor!
    const named = {
      bias: tensor,
      batchStride: strides[0]!,
      headStride: shape.length === 4 ? strides[1]! : 0,
      rowStride: strides.at(-2)!,
      rows: shape.at(-2)!,
      columns: shape.at(-1)!,
    }
    return Object.entries(named).map(([name, arg]) => [stepName(name, i), arg])
  })
  return Object.fromEntries(args)
}

export class PortableMask {
  /** Materialized leaves. */
  readonly biases: number
  private readonly k: KernelBuilder
  private readonly steps: readonly MaskStepConfig[]
  private readonly bound: readonly StepBound[]

  constructor(k: KernelBuilder, steps: readonly MaskStepConfig[], bound: Readonly<Record<string, unknown>>) {
    this.k = k
    this.steps = steps
    this.bound = steps.map(
      (step, i) =>
        Object.fromEntries(
          Object.keys(stepParams(step)).map(name => [name, bound[stepName(name, i)]]),
        ) as unknown as StepBound,
    )
    this.biases = steps.filter(({ kind }) => kind === 'materialized').length
  }

  /** An interval that holds every key the query may see. */
  hull(query: MaskedQuery): Interval {
    return this.fold<Interval>(
      i => this.leaf(i, query),
      (a, b) => ({ first: a.first.max(b.first), end: a.end.min(b.end) }),
      (a, b) => ({ first: a.first.min(b.first), end: a.end.max(b.end) }),
    )
  }

  /** Bit j: the query may see key `base + j`. */
  word(query: MaskedQuery, base: U32): U32 {
    return this.fold<U32>(
      i => this.bitsOf(this.leaf(i, query), base),
      (a, b) => a.bitAnd(b),
      (a, b) => a.bitOr(b),
    )
  }

  /** Whether the query sees the key, biases read, and the sum of the biases that show the pair, in units of `unit`. */
  pair(query: MaskedQuery, head: U32, key: U32, unit: number): { readonly visible: Pred; readonly bias: F32 } {
    const bias = this.k.var('f32', 0)
    const visible = this.fold<Pred>(
      i => {
        const { first, end } = this.leaf(i, query)
        const inside = key.ge(first).and(key.lt(end))
        if (this.steps[i]!.kind !== 'materialized') return inside
        const value = this.biasAt(i, query, head, key, inside)
        const shown = inside.and(value.ne(Number.NEGATIVE_INFINITY))
        bias.set(shown.select(value.fma(1 / unit, bias), bias))
        return shown
      },
      (a, b) => a.and(b),
      (a, b) => a.or(b),
    )
    return { visible, bias }
  }

  private biasAt(i: number, { sequence, row }: MaskedQuery, head: U32, key: U32, inside: Pred): F32 {
    const { k } = this
    const p = this.bound[i]!
    const plane = k.offset(k.offset(key, sequence, p.batchStride), head, p.headStride)
    return p.bias.loadIf(inside, k.offset(plane, row, p.rowStride)) as F32
  }

  /** The keys that leaf `i` shows the query; nothing where `end <= first`. */
  private leaf(i: number, { sequence, position, row, keyEnd }: MaskedQuery): Interval {
    const { k } = this
    const p = this.bound[i]!
    const zero = k.const('u32', 0)
    // A position is at most 2^31 - 2. A query before key 0 sees nothing up to its own position.
    const q = position.max(0).to('u32')
    const own = position.add(1).max(0).to('u32')
    const windowFirst = (): U32 => q.add(1).max(p.window).sub(p.window)
    const chunkFirst = (): U32 => q.sub(q.rem(p.window))
    const upTo = (first: U32, end: U32): Interval => ({ first, end: end.min(keyEnd) })
    const { kind } = this.steps[i]!
    switch (kind) {
      case 'none':
        return { first: zero, end: keyEnd }
      case 'causal':
        return upTo(zero, own)
      case 'slidingWindow':
        return upTo(windowFirst(), own)
      case 'slidingWindowBoth':
        return { first: windowFirst(), end: keyEnd }
      case 'chunked':
        return upTo(chunkFirst(), position.ge(0).select(chunkFirst().add(p.window), 0))
      case 'chunkedCausal':
        return upTo(chunkFirst(), own)
      case 'causalPadding':
        return upTo(zero, own.min(p.valid.load(sequence)))
      case 'materialized':
        return upTo(zero, row.lt(p.rows).select(p.columns, 0))
      case 'and':
      case 'or':
        throw new TypeError(`${kind} is no leaf`)
    }
  }

  private fold<T>(leaf: (i: number) => T, and: (a: T, b: T) => T, or: (a: T, b: T) => T): T {
    const stack: T[] = []
    this.steps.forEach(({ kind }, i) => {
      if (kind !== 'and' && kind !== 'or') {
        stack.push(leaf(i))
        return
      }
      const b = stack.pop()!
      stack.push((kind === 'and' ? and : or)(stack.pop()!, b))
    })
    return stack[0]!
  }

  /** Bits of the keys of an interval among the 32 from `base` on. */
  private bitsOf({ first, end }: Interval, base: U32): U32 {
    const from = first.max(base).sub(base)
    const to = end.max(base).sub(base).min(tileKeys)
    const some = from.lt(to)
    const low = some.select(from, 0)
    // Shifts by 0..31 only: a shift by the width differs between targets.
    const surplus = some.select(low.sub(to).add(tileKeys), 0)
    return some.select(this.k.const('u32', 0xffff_ffff).shr(surplus).shl(low), 0)
  }
}
