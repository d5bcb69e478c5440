/**
 * What an operation's checks and plans depend on, as text: every option, and of each device tensor its dtype, extents,
 * strides, index space and alignment. Calls with the same text differ in memory alone.
 */

import { dtypeInfo } from '../dtypes/dtype.ts'
import { DeviceTensor } from '../tensor/device-tensor.ts'

export interface CallSignature {
  readonly text: string
  /** The tensors in the order of the text. */
  readonly tensors: readonly DeviceTensor[]
}

/** Starts of views differ as far as planners look at them: modulo this, in bytes. */
const alignmentBytes = 128

/** Elements past the last multiple of the alignment at which a view starts. */
export const offsetWithin = ({ dtype, offset }: DeviceTensor): number =>
  offset % (alignmentBytes / dtypeInfo[dtype].bytes)

/**
 * @returns undefined where the call depends on more than that: host tensors, whose values are checked, functions, signals,
 * other objects
 */
export function signatureOf(args: object): CallSignature | undefined {
  const tensors: DeviceTensor[] = []
  const text = textOf(args, tensors)
  return text === undefined ? undefined : { text, tensors }
}

function textOf(value: unknown, tensors: DeviceTensor[]): string | undefined {
  switch (typeof value) {
    case 'string':
      return `"${value}"`
    case 'number':
      return Object.is(value, -0) ? '-0' : `${value}`
    case 'boolean':
      return value ? 't' : 'f'
    case 'undefined':
      return ''
    case 'object':
      break
    default:
      return undefined
  }
  if (value === null) return 'null'
  if (value instanceof DeviceTensor) {
    tensors.push(value)
    const { dtype, shape, strides, dims = [], space = '' } = value
    return `${dtype}${space}[${shape}/${strides}+${offsetWithin(value)}${dims}]`
  }
  const prototype: unknown = Object.getPrototypeOf(value)
  if (prototype !== Object.prototype && prototype !== Array.prototype) return undefined
  let text = '{'
  for (const key in value) {
    const part = textOf((value as Record<string, unknown>)[key], tensors)
    if (part === undefined) return undefined
    text += `${key}:${part};`
  }
  return `${text}}`
}
