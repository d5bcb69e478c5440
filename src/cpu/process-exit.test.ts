import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
import { nodeArgs, programFile } from '../../test/program.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))

/** Runs a program that has opened a device with some threads; a process that hangs is killed after 20 s. */
function run(threads: number, program: string) {
  const { status, signal, stdout, stderr } = spawnSync(
    process.execPath,
    [
      ...[...nodeArgs, '--input-type=module', '--eval'],
      `import { openDevice, sparsePrefill, slots, zeros } from '${programFile('index')}'
       const device = await openDevice('cpu', { threads: ${threads} })
       const values = zeros('f32', [4, 1, 16, 512])
       const cache = { format: 'plain', values, scaleBlock: 0, layer: 0 }
       const attend = tokens => sparsePrefill(device, {
         q: zeros('f32', [tokens, 8, 512]), cache, indices: slots(zeros('i32', [tokens, 64])), scale: 1,
       })
       ${program}`,
    ],
    { cwd: root, encoding: 'utf8', timeout: 20_000 },
  )
  return { status, signal, stdout: stdout.trim(), stderr }
}

describe.each([1, 2])('a process with a device of %i threads ends by itself', threads => {
  test('without dispose, with its results', () => {
    const program = 'console.log((await attend(300).out.read()).shape.join())'
    expect(run(threads, program)).toMatchObject({ status: 0, signal: null, stdout: '300,8,512' })
  })

  test('after work that nobody waits for', () => {
    expect(run(threads, 'attend(300)')).toMatchObject({ status: 0, signal: null })
  })

  test('after dispose', () => {
    const program = `attend(3); await device.dispose(); console.log('done')`
    expect(run(threads, program)).toMatchObject({ status: 0, signal: null, stdout: 'done' })
  })

  test('when it throws while work is queued', () => {
    const program = `attend(300); throw new Error('on purpose')`
    const { status, stderr } = run(threads, program)
    expect(status).toBe(1)
    expect(stderr).toContain('on purpose')
  })
})
