/** The commands and their options; what each does is in the file of its name. */

import { Command, InvalidArgumentError, Option } from '@commander-js/extra-typings'
import type { Bench } from '../bench/bench.ts'
import { targets } from '../emit/kernels.ts'
import { indexLayoutNames } from '../model/dsa-cache.ts'
import { type LatentLayoutName, latentLayouts } from '../tensor/cache-layout.ts'
import { bench, benchText } from './bench.ts'
import { check } from './check.ts'
import { checkText } from './check-report.ts'
import { emit, emitText } from './emit.ts'
import type { ExitCode } from './failure.ts'
import { infoText, machineInfo } from './info.ts'
import { isaCheckCommand, isaCheckText } from './isa-check.ts'
import { run } from './run.ts'
import { trace } from './trace.ts'
import { packageVersion } from './version.ts'

/** What a program is made with beyond its arguments. */
export interface ProgramExtras {
  /** Benchmarks beside those of the package, such as of other libraries. */
  readonly benches?: readonly Bench[] | undefined
}

/** The outcome of a command. */
export interface CommandResult {
  readonly exitCode: ExitCode
  /** What `--json` prints. */
  readonly data: object
  /** The same for people. */
  readonly text: string
}

type Finish = (result: CommandResult) => void

const latentNames = Object.keys(latentLayouts) as LatentLayoutName[]

const deviceOption = () => new Option('--device <name>', 'device to run on, see `sparse-mla info`').default('auto')
const threadsOption = () =>
  new Option('--threads <n>', 'threads of the cpu device (default: all cores)').argParser(count)
const jsonOption = () => new Option('--json', 'print one JSON object')
const debugOption = () => new Option('--debug', 'print the stack of an error')

function count(text: string): number {
  const value = Number(text)
  if (Number.isInteger(value) && value > 0) return value
  throw new InvalidArgumentError('Expected a positive integer.')
}

/** @param finish receives the result of the command that ran */
export function createProgram({ benches = [] }: ProgramExtras, finish: Finish): Command {
  const program = new Command('sparse-mla')
    .description('DeepSeek sparse attention (DSA) and multi-head latent attention (MLA): run, check, measure.')
    .version(packageVersion())
    .addHelpText(
      'after',
      examples(['run layer.safetensors', 'check', 'info', 'bench sparsePrefill', 'emit --all -o kernels']),
    )
    .addHelpText('after', '\nExit codes: 0 ok; 1 a check failed or the run disagrees; 2 bad usage or input.')
  const commands = [
    runCommand(finish),
    checkCommand(finish),
    isaCommand(finish),
    infoCommand(finish),
    benchCommand(benches, finish),
    emitCommand(finish),
    traceCommand(finish),
  ]
  for (const command of commands) program.addCommand(throwing(command))
  return throwing(program)
}

/** Errors are thrown, and printed by whoever catches them. */
const throwing = (command: Command): Command => command.exitOverride().configureOutput({ outputError: () => {} })

function runCommand(finish: Finish): Command {
  const command = new Command('run')
    .description('Run the attention layer of a file and compare it with the results in the file.')
    .argument('<layer>', 'safetensors file with w.*, x, cos, sin, topk and out')
    .addOption(deviceOption())
    .addOption(threadsOption())
    .addOption(
      new Option('--cache <format>', 'how latent rows are cached').choices(latentNames).default('f32' as const),
    )
    .addOption(
      new Option('--indexer <format>', 'how indexer keys are cached').choices(indexLayoutNames).default('f32' as const),
    )
    .addOption(
      new Option('--selection <whose>', 'attend to the own selection or to that of the file')
        .choices(['own', 'file'] as const)
        .default('own' as const),
    )
    .addOption(
      new Option('--activations <dtype>', 'what passes from one projection to the next; bf16 uses tensor cores')
        .choices(['f32', 'bf16'] as const)
        .default('f32' as const),
    )
    .option('--hadamard', "rotate the indexer's queries and keys")
    .option('--topk <n>', "keys each token attends to (default: the file's)", count)
    .option('--chunk <n>', 'tokens of a step (default: all)', count)
    .option('--save <file>', 'write out and selection as safetensors')
    .option('--plot <file>', 'write pictures of selection and scores: SVG, and an HTML page around them')
    .addOption(jsonOption())
    .addOption(debugOption())
    .addHelpText(
      'after',
      examples([
        'run layer.safetensors',
        'run layer.safetensors --cache packed656 --indexer fp8 --json',
        'run layer.safetensors --device cuda --cache bf16 --indexer fp8 --activations bf16',
        'run layer.safetensors --chunk 64 --plot selection.svg',
      ]),
    )
    .action(async (path, options) => {
      const { report, agrees, text } = await run(path, options)
      finish({ exitCode: agrees ? 0 : 1, data: report, text })
    })
  return command as unknown as Command
}

function checkCommand(finish: Finish): Command {
  const command = new Command('check')
    .description('Run the conformance cases and golden files on a device.')
    .addOption(deviceOption())
    .addOption(threadsOption())
    .option('--golden <files...>', 'further results of FlashMLA, DeepGEMM or Hugging Face, as safetensors')
    .option('--op <name>', 'only the cases of one operation')
    .option('--full', 'also larger shapes, on a simulator under eight schedules: takes long there')
    .option('--each', 'name each case on stderr as it begins, with its result and time when it has ended')
    .option('--save <file>', 'write a table of the operations as Markdown')
    .addOption(jsonOption())
    .addOption(debugOption())
    .addHelpText(
      'after',
      examples(['check', 'check --op topK', 'check --golden flashmla.safetensors layer.safetensors --json']),
    )
    .action(async options => {
      const report = await check(options)
      finish({ exitCode: report.failed === 0 ? 0 : 1, data: report, text: checkText(report) })
    })
  return command as unknown as Command
}

function isaCommand(finish: Finish): Command {
  const command = new Command('isa-check')
    .description('Run every instruction of the kernel language on a device and compare it with its record, bit by bit.')
    .addOption(new Option('--device <name>', 'cuda, cuda:N, sim:sm_90a or sim:sm_100a').default('cuda'))
    .option('--cases <n>', 'operands of each instruction', count, 65_536)
    .option('--only <part>', 'only records whose name contains this')
    .option('--save <file>', 'write the table as Markdown')
    .addOption(jsonOption())
    .addOption(debugOption())
    .addHelpText('after', examples(['isa-check', 'isa-check --device sim:sm_90a --cases 256 --only bf16x2']))
    .action(async options => {
      const report = await isaCheckCommand(options)
      finish({ exitCode: report.disagree === 0 ? 0 : 1, data: report, text: isaCheckText(report) })
    })
  return command as unknown as Command
}

function infoCommand(finish: Finish): Command {
  const command = new Command('info')
    .description('List the devices, and why each can or cannot be opened here.')
    .addOption(jsonOption())
    .addOption(debugOption())
    .addHelpText('after', examples(['info', 'info --json']))
    .action(async () => {
      const info = await machineInfo()
      finish({ exitCode: 0, data: info, text: infoText(info) })
    })
  return command as unknown as Command
}

function benchCommand(others: readonly Bench[], finish: Finish): Command {
  const command = new Command('bench')
    .description("Measure operations: time, rate, and share of the machine's own ceiling.")
    .argument('[ops...]', 'only these operations, such as sparse-prefill')
    .addOption(deviceOption())
    .addOption(threadsOption())
    .option('--only <part>', 'only variants whose name contains this')
    .option('--runs <n>', 'interleaved rounds; the median counts', count, 9)
    .option('--save [folder]', 'write the results as JSON and Markdown (default: bench/results)')
    .addOption(jsonOption())
    .addOption(debugOption())
    .addHelpText(
      'after',
      examples([
        'bench',
        'bench sparse-prefill --threads 1',
        'bench sparse-prefill sparse-decode --device cuda --save',
      ]),
    )
    .action(async (ops, { save, ...options }) => {
      const folder = save === true ? 'bench/results' : save
      const saved = await bench({ ...options, ops, save: folder }, others)
      finish({ exitCode: 0, data: saved, text: benchText(saved) })
    })
  return command as unknown as Command
}

function traceCommand(finish: Finish): Command {
  const command = new Command('trace')
    .description('Draw when the warps and engines of a kernel do what, estimated by the simulator.')
    .argument('<kernel>', 'name of a kernel of `emit`, or a part of one')
    .addOption(new Option('--device <name>', 'sim:sm_90a or sim:sm_100a').default('sim:sm_100a'))
    .requiredOption('-o, --out <file>', '.json for ui.perfetto.dev, .svg for a picture')
    .addOption(jsonOption())
    .addOption(debugOption())
    .addHelpText(
      'after',
      examples(['trace index-scores -o trace.json', 'trace index-scores --device sim:sm_90a -o trace.svg']),
    )
    .action(async (kernel, options) => {
      const { report, text } = await trace({ kernel, ...options })
      finish({ exitCode: 0, data: report, text })
    })
  return command as unknown as Command
}

function emitCommand(finish: Finish): Command {
  const command = new Command('emit')
    .description('Write GPU kernels as PTX, and a manifest with which any program can load and launch them.')
    .argument('[kernels...]', 'names of kernels')
    .option('--all', 'every kernel that the target has', false)
    .addOption(new Option('--target <arch>', 'architecture of the card').choices(targets).default('sm_90a' as const))
    .option('-o, --out <folder>', 'where the files go', 'out/ptx')
    .addOption(jsonOption())
    .addOption(debugOption())
    .addHelpText(
      'after',
      examples([
        'emit rms_norm_bf16 --target sm_80 -o kernels',
        'emit token_windows_paged index_scores_sm90_h64_paged --target sm_90a --json',
        'emit --all --target sm_75 -o kernels',
      ]),
    )
    .action((names, { out, ...options }) => {
      const manifest = emit({ ...options, names, out })
      finish({ exitCode: 0, data: manifest, text: emitText(manifest, out) })
    })
  return command as unknown as Command
}

const examples = (lines: readonly string[]): string =>
  `\nExamples:\n${lines.map(line => `  $ sparse-mla ${line}`).join('\n')}`
