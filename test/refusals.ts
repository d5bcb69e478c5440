/** Checks that a call is refused before anything is launched. */

import { expect } from 'vitest'
import type { CpuDevice } from '../src/cpu/device.ts'
import type { ErrorCode } from '../src/errors.ts'

/** One row of a table of refusals: the arguments that differ from a good call, and the error. */
export type Refusal = readonly [what: string, args: object, code: ErrorCode, message: string]

/** The call throws this code with this text in its message, and leaves no memory behind. */
export function refuses(device: CpuDevice, call: () => unknown, code: ErrorCode, message: string): void {
  const held = device.bytesInUse
  expect(call).toThrow(expect.objectContaining({ code }))
  expect(call).toThrow(message)
  expect(device.bytesInUse).toBe(held)
}
