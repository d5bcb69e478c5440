/**
 * Every error the library throws on purpose. Each carries the facts as data (`code`, `where`, `argument`, `given`,
 * `allowed`, `hint`) and builds its message from them, so a caller can branch on `code` and a person can read the text.
 */

export type ErrorCode =
  | 'E_SHAPE'
  | 'E_DTYPE'
  | 'E_VALUE'
  | 'E_OPTION'
  | 'E_SPACE'
  | 'E_OVERLAP'
  | 'E_DEVICE'
  | 'E_UNSUPPORTED'
  | 'E_DISPOSED'
  | 'E_MEMORY'
  | 'E_ABORTED'
  | 'E_FAULT'
  | 'E_FORMAT'
  | 'E_KERNEL'

/** The facts of one refusal. */
export interface ErrorFacts {
  /** The operation, class or file that refuses. */
  readonly where: string
  /** The argument's name as the caller wrote it. */
  readonly argument?: string
  /** What was given; printed as JavaScript would write it. */
  readonly given?: unknown
  /** What would have been accepted. */
  readonly allowed: string
  /** What to do about it. */
  readonly hint?: string
  readonly cause?: unknown
}

const show = (value: unknown): string => {
  if (Array.isArray(value)) return `[${value.map(show).join(', ')}]`
  if (typeof value === 'bigint') return `${value}n`
  if (typeof value === 'object' && value !== null) return Object.prototype.toString.call(value).slice(8, -1)
  return typeof value === 'string' ? value : String(value)
}

const sentence = ({ where, argument, given, allowed, hint }: ErrorFacts): string => {
  const subject = argument === undefined ? '' : ` ${argument}${given === undefined ? '' : ` is ${show(given)}`};`
  return `${where}:${subject} expected ${allowed}${hint === undefined ? '' : ` (${hint})`}`
}

/** Base of every typed error; `message` reads `where: argument is given; expected allowed (hint)`. */
export abstract class SparseMlaError extends Error {
  abstract readonly code: ErrorCode
  readonly where: string
  readonly argument: string | undefined
  readonly given: unknown
  readonly allowed: string
  readonly hint: string | undefined

  constructor(facts: ErrorFacts) {
    super(sentence(facts), facts.cause === undefined ? undefined : { cause: facts.cause })
    this.name = new.target.name
    this.where = facts.where
    this.argument = facts.argument
    this.given = facts.given
    this.allowed = facts.allowed
    this.hint = facts.hint
  }
}

/** A tensor's shape or stride does not fit the operation. */
export class ShapeError extends SparseMlaError {
  readonly code = 'E_SHAPE'
}

/** A tensor or array has an element type that the operation does not take there. */
export class DtypeError extends SparseMlaError {
  readonly code = 'E_DTYPE'
}

/** A number or array element is outside its allowed range. */
export class ValueError extends SparseMlaError {
  readonly code = 'E_VALUE'
}

/** An option is unknown, missing, or contradicts another. */
export class OptionError extends SparseMlaError {
  readonly code = 'E_OPTION'
}

/** An index tensor belongs to another index space (logical, slot, row) than the argument needs. */
export class IndexSpaceError extends SparseMlaError {
  readonly code = 'E_SPACE'
}

/** An output shares memory with an input or another output. */
export class OverlapError extends SparseMlaError {
  readonly code = 'E_OVERLAP'
}

/** A device cannot be opened, or a tensor belongs to another device. */
export class DeviceError extends SparseMlaError {
  readonly code = 'E_DEVICE'
}

/** The device has no kernel for this operation or variant. */
export class UnsupportedError extends SparseMlaError {
  readonly code = 'E_UNSUPPORTED'
}

/** A device, tensor or cache was used after `dispose()`. */
export class DisposedError extends SparseMlaError {
  readonly code = 'E_DISPOSED'
}

/** Device memory, cache pages or the scratch budget do not suffice. */
export class MemoryError extends SparseMlaError {
  readonly code = 'E_MEMORY'
}

/** The call was stopped through its `AbortSignal`; its outputs hold nothing. */
export class AbortedError extends SparseMlaError {
  readonly code = 'E_ABORTED'
}

/** A kernel trapped or a worker died; the device stays usable, the call's outputs hold nothing. */
export class FaultError extends SparseMlaError {
  readonly code = 'E_FAULT'
}

/** A file is truncated or contradicts its own header. */
export class FormatError extends SparseMlaError {
  readonly code = 'E_FORMAT'
}
