/**
 * Checks of one call's arguments, all before anything is launched. Dimensions are named: the first tensor that shows
 * a dimension fixes it, and a later one that disagrees is refused with the name of the first.
 */

import type { Dtype } from '../dtypes/dtype.ts'
import { DeviceError, DtypeError, IndexSpaceError, OptionError, ShapeError, ValueError } from '../errors.ts'
import { type AnyTensor, DeviceTensor } from '../tensor/device-tensor.ts'
import type { IndexSpace } from '../tensor/spaces.ts'
import { Tensor } from '../tensor/tensor.ts'
import type { OutputSpec } from './op.ts'

/** An axis: a fixed extent or the name of a dimension. */
export type Axis = number | string

export interface TensorRule<D extends Dtype> {
  readonly dtypes: readonly D[]
  readonly shape: readonly Axis[]
  readonly space?: IndexSpace
}

interface Known {
  readonly extent: number
  readonly source: string
}

const text = (shape: readonly Axis[]): string => `[${shape.join(', ')}]`

export class Contract {
  readonly op: string
  private readonly dims = new Map<string, Known>()

  /** @throws OptionError when `args` has a key that is not in `known` */
  constructor(op: string, args: object, known: readonly string[]) {
    this.op = op
    this.checkKeys('', args, known)
  }

  /** A required object argument without unknown keys. @throws OptionError */
  object<T extends object>(argument: string, value: T | undefined, known: readonly string[]): T {
    const allowed = `an object of ${known.join(', ')}`
    if (value === undefined) throw new OptionError({ where: this.op, argument, given: 'missing', allowed })
    if (typeof value !== 'object' || value === null)
      throw new OptionError({ where: this.op, argument, given: value, allowed })
    this.checkKeys(`${argument}.`, value, known)
    return value
  }

  /** A required tensor. @throws OptionError | DtypeError | ShapeError | IndexSpaceError | DisposedError */
  tensor<D extends Dtype>(argument: string, value: AnyTensor | undefined, rule: TensorRule<D>): AnyTensor<D> {
    const where = this.op
    if (value === undefined)
      throw new OptionError({
        where,
        argument,
        given: 'missing',
        allowed: `${rule.dtypes.join(' or ')} ${text(rule.shape)}`,
      })
    if (!(value instanceof Tensor) && !(value instanceof DeviceTensor))
      throw new DtypeError({
        where,
        argument,
        given: value,
        allowed: `a tensor of ${rule.dtypes.join(' or ')} ${text(rule.shape)}`,
        hint: 'wrap typed arrays with tensor(dtype, shape, data)',
      })
    if (value instanceof DeviceTensor) value.assertLive(where, argument)
    if (!(rule.dtypes as readonly Dtype[]).includes(value.dtype))
      throw new DtypeError({ where, argument, given: value.dtype, allowed: rule.dtypes.join(' or ') })
    this.checkShape(argument, value, rule.shape)
    if (rule.space !== undefined && value.space !== rule.space)
      throw new IndexSpaceError({
        where,
        argument,
        given: value.space ?? 'not declared',
        allowed: `${rule.space} indices`,
        hint: 'declare the space with logical(), slots() or rows()',
      })
    return value as AnyTensor<D>
  }

  /** The same for an argument that may be absent. */
  optional<D extends Dtype>(
    argument: string,
    value: AnyTensor | undefined,
    rule: TensorRule<D>,
  ): AnyTensor<D> | undefined {
    return value === undefined ? undefined : this.tensor(argument, value, rule)
  }

  /** An output of this dtype and shape, into the caller's own device tensor when given. @throws as `tensor` */
  output(
    argument: string,
    into: DeviceTensor | undefined,
    dtype: Dtype,
    shape: readonly Axis[],
    space?: IndexSpace,
  ): OutputSpec {
    if (into !== undefined) {
      this.tensor(argument, into, { dtypes: [dtype], shape })
      if (!(into instanceof DeviceTensor))
        throw new DeviceError({
          where: this.op,
          argument,
          given: 'a host tensor',
          allowed: 'a device tensor to write into',
        })
    }
    const extents = shape.map(axis => (typeof axis === 'number' ? axis : this.dim(axis)))
    const dims = shape.map(axis => `${axis}`)
    return { dtype, shape: extents, dims, into, ...(space === undefined ? {} : { space }) }
  }

  /** Extent of a named dimension that some tensor has fixed. */
  dim(name: string): number {
    return this.dims.get(name)!.extent
  }

  /** A dimension must lie in `[low, high]`, and be a multiple of `multiple`. @throws ShapeError */
  bound(name: string, low: number, high: number, multiple = 1): number {
    const { extent, source } = this.dims.get(name)!
    if (extent >= low && extent <= high && extent % multiple === 0) return extent
    const step = multiple === 1 ? '' : `, a multiple of ${multiple}`
    throw new ShapeError({
      where: this.op,
      argument: name,
      given: `${extent} (${source})`,
      allowed: `${low}..${high}${step}`,
    })
  }

  /** A required number, finite as f32 too. @throws OptionError | ValueError */
  finite(argument: string, value: number | undefined, hint?: string): number {
    const facts = { where: this.op, argument, allowed: 'a finite number', ...(hint === undefined ? {} : { hint }) }
    if (value === undefined) throw new OptionError({ ...facts, given: 'missing' })
    if (typeof value !== 'number' || !Number.isFinite(Math.fround(value)))
      throw new ValueError({ ...facts, given: value })
    return value
  }

  /** An integer in `[low, high]`. @throws OptionError when missing, ValueError */
  integer(argument: string, value: number | undefined, low: number, high: number = Number.MAX_SAFE_INTEGER): number {
    const allowed = high === Number.MAX_SAFE_INTEGER ? `an integer >= ${low}` : `an integer in ${low}..${high}`
    if (value === undefined) throw new OptionError({ where: this.op, argument, given: 'missing', allowed })
    if (Number.isInteger(value) && value >= low && value <= high) return value
    throw new ValueError({ where: this.op, argument, given: value, allowed })
  }

  /** A switch, `fallback` when absent. @throws OptionError */
  flag(argument: string, value: boolean | undefined, fallback: boolean): boolean {
    if (value === undefined || typeof value === 'boolean') return value ?? fallback
    throw new OptionError({ where: this.op, argument, given: value, allowed: 'true or false' })
  }

  /** One of a few words. @throws OptionError */
  choice<T extends string>(argument: string, value: T | undefined, allowed: readonly T[]): T {
    if (value !== undefined && allowed.includes(value)) return value
    throw new OptionError({ where: this.op, argument, given: value ?? 'missing', allowed: allowed.join(' or ') })
  }

  private checkKeys(prefix: string, value: object, known: readonly string[]): void {
    const unknown = Object.keys(value).find(key => !known.includes(key))
    if (unknown === undefined) return
    throw new OptionError({
      where: this.op,
      argument: `${prefix}${unknown}`,
      given: 'an unknown option',
      allowed: `one of ${known.join(', ')}`,
    })
  }

  private checkShape(argument: string, value: AnyTensor, shape: readonly Axis[]): void {
    const refuse = (allowed: string): never => {
      throw new ShapeError({ where: this.op, argument, given: [...value.shape], allowed })
    }
    if (value.shape.length !== shape.length) refuse(text(shape))
    shape.forEach((axis, i) => {
      const extent = value.shape[i]!
      if (typeof axis === 'number') {
        if (extent !== axis) refuse(text(shape))
        return
      }
      const known = this.dims.get(axis)
      if (known === undefined) this.dims.set(axis, { extent, source: `${argument} [${value.shape.join(', ')}]` })
      else if (known.extent !== extent) refuse(`${known.extent} ${axis} (as in ${known.source}) in ${text(shape)}`)
    })
  }
}
