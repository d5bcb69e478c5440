/** From the arguments of the process to its exit code. */

import { describeFailure, type ExitCode } from './failure.ts'
import { type CommandResult, createProgram, type ProgramExtras } from './program.ts'

/** Runs a command line without `node` and the script; prints its result, or its failure in one line. */
export async function runCli(args: readonly string[], extras: ProgramExtras = {}): Promise<ExitCode> {
  process.stdout.on('error', quietOnClosedPipe)
  const json = args.includes('--json')
  let result: CommandResult | undefined
  try {
    const program = createProgram(extras, finished => {
      result = finished
    })
    await program.parseAsync(args, { from: 'user' })
  } catch (error) {
    return fail(error, json, args.includes('--debug'))
  }
  if (result === undefined) return 0
  process.stdout.write(`${json ? JSON.stringify(result.data) : result.text}\n`)
  return result.exitCode
}

function fail(error: unknown, json: boolean, debug: boolean): ExitCode {
  const failure = describeFailure(error)
  if (failure === undefined) return 0
  const { exitCode, code, message } = failure
  if (json) process.stdout.write(`${JSON.stringify({ error: { code, message } })}\n`)
  process.stderr.write(`sparse-mla: ${message}\n`)
  if (debug) process.stderr.write(`${(error as Error).stack ?? String(error)}\n`)
  return exitCode
}

/** `sparse-mla check | head` ends without a stack. */
function quietOnClosedPipe(error: NodeJS.ErrnoException): void {
  if (error.code !== 'EPIPE') throw error
  process.exit(0)
}
