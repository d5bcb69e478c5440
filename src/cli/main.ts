#!/usr/bin/env node
/** The `sparse-mla` command. */

import { runCli } from './run-cli.ts'

process.exitCode = await runCli(process.argv.slice(2))
