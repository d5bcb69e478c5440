/** What the command prints and returns when something is thrown. */

import { CommanderError } from '@commander-js/extra-typings'
import { type ErrorCode, SparseMlaError } from '../errors.ts'

/** 0: done, all is well. 1: a check failed, the run disagrees with its file, or the machine failed. 2: bad usage or input. */
export type ExitCode = 0 | 1 | 2

/** Failures of the machine or of the library, not of what was asked. */
const ownFaults: readonly ErrorCode[] = ['E_FAULT', 'E_KERNEL', 'E_ABORTED', 'E_DISPOSED']

/** An error as the caller of the command sees it. */
export interface Failure {
  readonly exitCode: ExitCode
  /** `E_…` of a typed error, the code of the file system, or E_USAGE. */
  readonly code: string
  /** One line. */
  readonly message: string
}

/** @returns nothing for help and version, which end the command without a failure */
export function describeFailure(error: unknown): Failure | undefined {
  if (error instanceof CommanderError) {
    if (error.exitCode === 0) return undefined
    const message = error.code === 'commander.help' ? 'expected a command' : error.message.replace(/^error: /, '')
    return { exitCode: 2, code: 'E_USAGE', message: oneLine(message) }
  }
  if (error instanceof SparseMlaError)
    return { exitCode: ownFaults.includes(error.code) ? 1 : 2, code: error.code, message: oneLine(error.message) }
  const { code, message } = error as NodeJS.ErrnoException
  if (typeof code === 'string') return { exitCode: 2, code, message: oneLine(message) }
  return { exitCode: 1, code: 'E_INTERNAL', message: oneLine(message ?? String(error)) }
}

const oneLine = (text: string): string => text.replaceAll(/\s*\n\s*/g, ' ').trim()
