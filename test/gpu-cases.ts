/** Portable kernels under test: the conformance table on a card that has no others, and what the assembler says of PTX. */

import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { runCase } from '../src/conformance/case.ts'
import { conformanceCases } from '../src/conformance/cases.ts'
import type { Device, Plan } from '../src/device.ts'
import type { Kernel } from '../src/lang/kernel.ts'
import type { GpuPlan } from '../src/lang/launch.ts'
import type { Target } from '../src/lang/types.ts'
import { printPtx } from '../src/ptx/print.ts'
import { SimDevice } from '../src/sim/device.ts'

/** The cases of one operation on a device, each a test. */
export function conformanceOf(op: string, device: Device): void {
  describe(`conformance of ${op}`, () => {
    test.each(conformanceCases.filter(c => c.op === op))('$name', async c => {
      const { ok, detail } = await runCase(device, c)
      expect([ok, detail]).toEqual([true, undefined])
    })
  })
}

const hasPtxas = ((): boolean => {
  try {
    execFileSync('ptxas', ['--version'], { stdio: 'ignore' })
    return true
  } catch {
    return false
  }
})()

/** The oldest architecture and the one that is measured; the tests of `src/emit` assemble listed kernels for all. */
const targets: readonly Target[] = ['sm_75', 'sm_90a']

/** The kernels of the planned calls assemble without spills. */
export function assembles(plans: Readonly<Record<string, (device: Device) => Plan>>): void {
  describe.runIf(hasPtxas)('ptxas accepts the kernels', () => {
    test.each(Object.entries(plans).flatMap(([name, plan]) => targets.map(target => ({ name, target, plan }))))(
      '$name for $target, without spills',
      ({ target, plan }) => {
        const { launches } = plan(new SimDevice(target)) as GpuPlan
        for (const kernel of new Set(launches.map(launch => launch.kernel))) expectAssembles(kernel)
      },
    )
  })
}

function expectAssembles(kernel: Kernel): void {
  const folder = mkdtempSync(join(tmpdir(), 'ptx-'))
  try {
    const file = join(folder, 'kernel.ptx')
    writeFileSync(file, printPtx(kernel))
    const log = execFileSync('bash', ['-c', `ptxas -arch=${kernel.target} -v ${file} -o /dev/null 2>&1`], {
      encoding: 'utf8',
    })
    expect(log).toContain('0 bytes spill stores')
    expect(log).not.toMatch(/C75\d\d/)
  } finally {
    rmSync(folder, { recursive: true })
  }
}
