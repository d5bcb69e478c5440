import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { trace } from './trace.ts'

const folder = mkdtempSync(join(tmpdir(), 'trace-'))
afterAll(() => rmSync(folder, { recursive: true }))

interface Event {
  readonly ph: string
  readonly name: string
  readonly pid: number
  readonly tid: number
  readonly ts: number
  readonly dur: number
  readonly args: { readonly name?: string; readonly at?: string }
}

test('events for Perfetto: threads are named, times do not run backward on one', async () => {
  const out = join(folder, 'trace.json')
  const { report, text } = await trace({ kernel: 'token-windows-paged', device: 'sim:sm_100a', out })
  expect(report).toMatchObject({ kernel: 'token_windows_paged', card: 'B200', blocks: 1, file: out })
  expect(report.cycles).toBeGreaterThan(100)
  expect(text).toMatch(/bound by \w+\n(most of \w+: .*\n)?Times are estimated/)
  const { traceEvents } = JSON.parse(readFileSync(out, 'utf8')) as { traceEvents: Event[] }
  const named = traceEvents.filter(({ ph, name }) => ph === 'M' && name === 'thread_name')
  expect(named.map(({ args }) => args.name)).toContain('warp 0')
  const latest = new Map<number, number>()
  for (const { ph, tid, ts, dur } of traceEvents) {
    if (ph !== 'X') continue
    expect(dur).toBeGreaterThan(0)
    expect(ts).toBeGreaterThanOrEqual((latest.get(tid) ?? 0) - 1e-3)
    latest.set(tid, ts)
  }
  expect(latest.size).toBe(4)
})

test('a picture of the same', async () => {
  const out = join(folder, 'trace.svg')
  await trace({ kernel: 'token_windows', device: 'sim:sm_90a', out })
  const text = readFileSync(out, 'utf8')
  expect(text).toMatch(/^<svg .*<title>token_windows_paged on a H200, estimated<\/title>/)
  expect(text).toContain('>warp 3</text>')
  expect(text).toMatch(/cycles; \d+ = [\d.]+ µs at 1\.83 GHz/)
})

test.each([
  [{ kernel: 'nonsense', device: 'sim:sm_100a', out: 'x.json' }, /kernel is nonsense; expected one of/],
  [{ kernel: 'token_windows', device: 'cpu', out: 'x.json' }, /--device is cpu; expected 'sim:sm_90a' or/],
  [{ kernel: 'token_windows', device: 'sim:sm_100a', out: 'x.png' }, /ends in \.json or \.svg/],
  [{ kernel: 'index_scores_sm90_h64', device: 'sim:sm_100a', out: 'x.json' }, /a kernel that sm_100a has/],
])('%o is refused', async (options, message) => {
  await expect(trace(options)).rejects.toThrow(message)
})
