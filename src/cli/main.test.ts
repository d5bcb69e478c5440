import { spawn } from 'node:child_process'
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { nodeArgs, programFile } from '../../test/program.ts'
import { parseSafetensors, writeSafetensors } from '../tensor/safetensors.ts'
import { fromFloats, type Tensor } from '../tensor/tensor.ts'

const main = programFile('cli/main')
const golden = (name: string): string => fileURLToPath(new URL(`../../test/golden/${name}`, import.meta.url))
const layer = golden('hf_dsv32_layer.safetensors')

let folder: string
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'sparse-mla-'))
})
afterAll(() => rmSync(folder, { recursive: true }))

interface Finished {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

function sparseMla(...args: string[]): Promise<Finished> {
  const child = spawn(process.execPath, [...nodeArgs, main, ...args], { stdio: ['ignore', 'pipe', 'pipe'] })
  let [stdout, stderr] = ['', '']
  child.stdout.on('data', data => (stdout += data))
  child.stderr.on('data', data => (stderr += data))
  return new Promise(resolve => child.on('close', code => resolve({ code, stdout, stderr })))
}

/** One JSON object and nothing else. */
const json = ({ stdout }: Finished) => {
  expect(stdout.trim().split('\n').length).toBe(1)
  return JSON.parse(stdout)
}

/** A golden file with one tensor changed. */
function changed(source: string, name: string, change: (t: Tensor) => Tensor): string {
  const file = parseSafetensors(readFileSync(source))
  const tensors = [...file].map(([key, t]) => [key, key === name ? change(t) : t] as const)
  const path = join(folder, `changed-${name}.safetensors`)
  writeFileSync(path, writeSafetensors(tensors, { ...file.metadata }))
  return path
}

describe('help and usage', () => {
  test('--help lists the commands, with examples and exit codes', async () => {
    const { code, stdout, stderr } = await sparseMla('--help')
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    for (const text of [
      'run [options] <layer>',
      'check [options]',
      'info',
      'bench',
      'emit',
      'Examples:',
      'Exit codes: 0 ok',
    ])
      expect(stdout).toContain(text)
  })

  test('run --help lists its options, with examples', async () => {
    const { code, stdout } = await sparseMla('run', '--help')
    expect(code).toBe(0)
    for (const option of ['--device', '--cache', '--indexer', '--selection', '--hadamard', '--topk', '--chunk'])
      expect(stdout).toContain(option)
    expect(stdout).toContain('$ sparse-mla run layer.safetensors')
  })

  test('without a command: the help on stderr, and 2', async () => {
    const { code, stdout, stderr } = await sparseMla()
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' })
    expect(stderr).toContain('Usage: sparse-mla')
  })

  test.each([
    [['run', layer, '--chnk', '3'], "unknown option '--chnk' (Did you mean --chunk?)"],
    [['run', layer, '--cache', 'fp4'], "option '--cache <format>' argument 'fp4' is invalid"],
    [['run', layer, '--topk', '0'], 'Expected a positive integer.'],
    [['run'], "missing required argument 'layer'"],
    [['fly'], "unknown command 'fly'"],
    [['run', 'nowhere.safetensors'], 'ENOENT'],
    [['run', main], 'header'],
    [['run', golden('flashmla.safetensors')], 'metadata'],
    [['run', layer, '--device', 'npu'], 'openDevice: name is npu'],
    [['run', layer, '--device', 'cuda', '--threads', '2'], '--threads'],
    [['run', layer, '--topk', '9000'], 'expected an integer in 1..8192'],
    [['check', '--op', 'softmax'], '--op is softmax; expected one of indexScores'],
    [['check', '--golden', main], 'header'],
    [['bench', 'softmax'], 'op is softmax; expected one of sparsePrefill'],
    [['emit', 'softmax'], 'kernel is softmax; expected one of'],
    [['emit', '--all', '--target', 'sm_61'], "argument 'sm_61' is invalid. Allowed choices are sm_75"],
  ])('%j: one line and 2', async (args, text) => {
    const { code, stdout, stderr } = await sparseMla(...args)
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' })
    expect(stderr).toMatch(/^sparse-mla: [^\n]+\n$/)
    expect(stderr).toContain(text)
  })

  test('an error under --json is an object too; --debug adds the stack', async () => {
    const finished = await sparseMla('run', main, '--json', '--debug')
    expect(finished.code).toBe(2)
    expect(json(finished)).toEqual({ error: { code: 'E_FORMAT', message: expect.stringContaining('header') } })
    expect(finished.stderr).toContain('    at ')
  })
})

describe('run', () => {
  test('--json has stages, selection and out', async () => {
    const finished = await sparseMla('run', layer, '--json', '--device', 'cpu', '--threads', '1')
    expect(finished.code).toBe(0)
    const { device, stages, selection, out, ...rest } = json(finished)
    expect(rest).toEqual({})
    expect(device).toBe('cpu')
    expect(stages.map(({ name }: { name: string }) => name)).toEqual([
      ...['kv_proj', 'q_proj', 'indexer', 'select', 'attend', 'out_proj'],
    ])
    for (const { ms } of stages) expect(ms).toBeGreaterThan(0)
    expect(selection).toEqual({ rows: 160, identicalRows: 160, overlap: 1 })
    expect(Object.keys(out)).toEqual(['maxAbs', 'maxRelToPeak', 'cosine'])
    expect(out.maxRelToPeak).toBeLessThan(2e-5)
  })

  test('text: stages, agreement, verdict; --save and --plot write files', async () => {
    const [saved, plot] = [join(folder, 'saved.safetensors'), join(folder, 'plot.svg')]
    const options = ['--cache', 'packed656', '--indexer', 'fp8', '--hadamard', '--chunk', '50']
    const { code, stdout, stderr } = await sparseMla('run', layer, ...options, '--save', saved, '--plot', plot)
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    for (const text of ['out_proj', 'of 160 tokens have the keys of the file', 'agrees with the file', plot, saved])
      expect(stdout).toContain(text)
    const results = parseSafetensors(readFileSync(saved))
    expect(results.get('out', 'f32').shape).toEqual([160, 256])
    expect(results.get('selection', 'i32').shape).toEqual([160, 48])
    const page = readFileSync(join(folder, 'plot.html'), 'utf8')
    for (const name of ['plot.svg', 'plot-scores.svg']) expect(page).toContain(readFileSync(join(folder, name), 'utf8'))
  })

  test('a layer whose stored output is another: 1, and by how much', async () => {
    const path = changed(layer, 'out', t =>
      fromFloats(
        'f32',
        t.shape,
        t.floats().map(x => x + 0.01),
      ),
    )
    const { code, stdout } = await sparseMla('run', path)
    expect(code).toBe(1)
    expect(stdout).toMatch(/disagrees with the file: largest error over the peak 0\.00\d+, at most 2\.00e-5/)
  })

  test('a layer whose stored selection is another: 1', async () => {
    const path = changed(layer, 'topk', t => {
      const copy = t.clone()
      copy.data[159 * 48] = 7
      return copy
    })
    const finished = await sparseMla('run', path, '--json')
    expect(finished.code).toBe(1)
    expect(json(finished).selection.identicalRows).toBe(159)
  })

  test('another top-k than the stored one is not judged', async () => {
    const { code, stdout } = await sparseMla('run', layer, '--topk', '20')
    expect(code).toBe(0)
    expect(stdout).toContain('not judged')
  })
})

describe('check', () => {
  test('--json counts the cases; golden files join', async () => {
    const files = [golden('deepgemm_mqa_logits.safetensors')]
    const finished = await sparseMla('check', '--device', 'cpu', '--op', 'remapIndices', '--golden', ...files, '--json')
    expect(finished.code).toBe(0)
    const { device, explanation, passed, failed, cases, ...rest } = json(finished)
    expect(rest).toEqual({ leftOut: [] })
    expect({ device, failed }).toEqual({ device: 'cpu', failed: 0 })
    expect(explanation).toContain('WASM')
    expect(cases.length).toBe(passed)
    for (const { name, ok, worst } of cases)
      expect({ name, ok, worst: worst <= 1 }).toEqual({ name, ok: true, worst: true })
    const names = cases.map(({ name }: { name: string }) => name)
    expect(names).toContain('remapIndices: flashmla.safetensors decode0, logical to physical')
    expect(names).toContain('indexScores: deepgemm_mqa_logits.safetensors mqa0')
  })

  test('a golden file that the device disagrees with: 1, with the worst element', async () => {
    const path = changed(golden('deepgemm_mqa_logits.safetensors'), 'mqa1.logits', t =>
      fromFloats(
        'f32',
        t.shape,
        t.floats().map(x => 1.01 * x),
      ),
    )
    const { code, stdout } = await sparseMla('check', '--op', 'remapIndices', '--golden', path)
    expect(code).toBe(1)
    expect(stdout).toMatch(/FAIL +9\.\d+ +indexScores: \S+ mqa1/)
    expect(stdout).toContain('calc_diff')
    expect(stdout).toContain('1 failed')
  })
})

describe('info and bench', () => {
  test('info lists every device with a reason', async () => {
    const finished = await sparseMla('info', '--json')
    expect(finished.code).toBe(0)
    const { devices, auto } = json(finished)
    expect(devices[0]).toMatchObject({ name: 'cpu', available: true, detail: expect.stringContaining('WASM') })
    for (const { available, detail } of devices) {
      expect(typeof available).toBe('boolean')
      expect(detail).not.toBe('')
    }
    expect(devices.map(({ name }: { name: string }) => name)).toContain(auto.device.replace(/^cuda:.*/, 'cuda'))
  })

  test('bench prints one object and saves it with a table', async () => {
    const results = join(folder, 'results')
    const finished = await sparseMla('bench', 'topK', '--device', 'cpu', '--runs', '1', '--save', results, '--json')
    expect(finished.code).toBe(0)
    const report = json(finished)
    expect(report).toMatchObject({ device: 'cpu', runs: 1, command: expect.stringContaining('bench topK') })
    expect(report.results[0]).toMatchObject({ op: 'topK', ratio: { value: expect.any(Number) } })
    expect(report.results[0].ceiling.gbs).toBeGreaterThan(0)
    const [data, table] = readdirSync(results).sort()
    expect(JSON.parse(readFileSync(join(results, data!), 'utf8'))).toEqual(report)
    expect(readFileSync(join(results, table!), 'utf8')).toContain('| topK | f32 | 64 rows of 65536, k 2048 |')
    expect(existsSync(results)).toBe(true)
  })

  test('bench takes several operations, with hyphens too, and part of a name; stages have a table and a picture', async () => {
    const results = join(folder, 'staged')
    const args = ['--device', 'cpu', '--runs', '1', '--only', 'decode, small', '--save', results]
    const { code, stdout } = await sparseMla('bench', 'top-k', 'pipeline', ...args)
    expect(code).toBe(0)
    expect(stdout).toMatch(/µs +kv_proj +q_proj +indexer +select +attend +out_proj +whole +host\n/)
    expect(stdout).toMatch(/\ndecode, small layer( +[\d.]+){7} +-\n/)
    expect(stdout).not.toContain('topK')
    const files = readdirSync(results).sort()
    expect(files.map(name => name.replace(/^[\d-]+/, ''))).toEqual(
      ['json', 'md', 'svg'].map(end => `cpu-topK-pipeline.${end}`),
    )
    expect(readFileSync(join(results, files[2]!), 'utf8')).toContain('decode, small layer')
    const none = await sparseMla('bench', 'top-k', '--device', 'cpu', '--only', 'nothing')
    expect([none.code, none.stderr]).toEqual([2, expect.stringContaining('part of one of "topK f32"')])
  })
})

describe('isa-check', () => {
  test('runs records on the simulator', async () => {
    const args = ['isa-check', '--device', 'sim:sm_90a', '--cases', '64', '--only', 'bf16x2']
    const report = json(await sparseMla(...args, '--json'))
    expect(report).toMatchObject({ device: 'sim:sm_90a', target: 'sm_90a', disagree: 0 })
    expect(report.agree).toBe(report.records.length)
    const table = join(folder, 'isa.md')
    const { code, stdout } = await sparseMla(...args, '--save', table)
    expect(code).toBe(0)
    expect(readFileSync(table, 'utf8')).toMatch(/\| fma\.bf16x2 \| 64 \| same bits \| 0 \| 0 \|\n/)
    expect(stdout).toMatch(/fma\.bf16x2 +64 +same bits +0 +0\n/)
    expect(stdout).toContain(`sim:sm_90a (sm_90a): ${report.agree} records agree, 0 do not`)
  })

  test.each([
    [['--device', 'cpu'], "device is cpu; expected 'cuda', 'cuda:N', 'sim:sm_90a' or 'sim:sm_100a'"],
    [['--device', 'sim:sm_90a', '--only', 'nothing'], 'only is nothing; expected a part of a record name'],
  ])('%o is bad usage', async (args, message) => {
    const { code, stderr } = await sparseMla('isa-check', ...args)
    expect(code).toBe(2)
    expect(stderr).toContain(message)
  })
})

describe('emit', () => {
  test('--help has examples', async () => {
    const { code, stdout } = await sparseMla('emit', '--help')
    expect(code).toBe(0)
    for (const text of ['--all', '--target', '-o, --out', '$ sparse-mla emit --all --target sm_75 -o kernels'])
      expect(stdout).toContain(text)
  })

  test('--json prints the manifest that it writes', async () => {
    const out = join(folder, 'kernels')
    const finished = await sparseMla('emit', 'cast_f32_bf16', '--target', 'sm_75', '-o', out, '--json')
    expect(finished.code).toBe(0)
    expect(json(finished)).toEqual(JSON.parse(readFileSync(join(out, 'manifest.json'), 'utf8')))
  })
})
