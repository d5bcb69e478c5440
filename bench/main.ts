/** `sparse-mla bench` with the benchmarks of other libraries, which the package itself does not need. */

import { runCli } from '../src/cli/run-cli.ts'
import { jaxSparsePrefill } from './jax.ts'

process.exitCode = await runCli(['bench', ...process.argv.slice(2)], { benches: [jaxSparsePrefill] })
