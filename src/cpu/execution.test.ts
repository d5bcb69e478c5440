import { describe, expect, test } from 'vitest'
import { seeded } from '../../test/random.ts'
import { AbortedError, FaultError, MemoryError } from '../errors.ts'
import { type SparsePrefillArgs, type SparsePrefillResult, sparsePrefill } from '../ops/sparse-prefill.ts'
import { slots } from '../tensor/spaces.ts'
import { fromFloats, type Tensor, tensor, zeros } from '../tensor/tensor.ts'
import { type CpuDevice, openCpuDevice } from './device.ts'
import type { CpuOptions } from './options.ts'
import type { CpuPlan, CpuStage } from './plan.ts'

const width = 512
const keys = 96

/** Random bf16 attention over lists of `topk` of 96 keys. */
function problem(tokens: number, heads: number, topk: number): SparsePrefillArgs {
  const { normal, int } = seeded(tokens * 1000 + heads)
  const floats = (...shape: number[]) =>
    fromFloats(
      'bf16',
      shape,
      Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, () => normal()),
    )
  return {
    q: floats(tokens, heads, width),
    cache: { format: 'plain', values: floats(keys / 16, 1, 16, width), scaleBlock: 0, layer: 0 },
    indices: slots(
      tensor(
        'i32',
        [tokens, topk],
        Int32Array.from({ length: tokens * topk }, () => int(keys)),
      ),
    ),
    scale: 0.04,
  }
}

const small = problem(5, 3, 40)
/** Half a minute of work on one core, over few bytes. */
const long: SparsePrefillArgs = {
  ...small,
  q: zeros('bf16', [188, 128, width]),
  indices: slots(zeros('i32', [188, 16384])),
}

const results = async ({ out, lse, maxLogits }: SparsePrefillResult): Promise<Tensor[]> => [
  await out.read(),
  await lse.read(),
  await maxLogits.read(),
]

const codes = (tensors: readonly Tensor[]): ArrayLike<number | bigint>[] => tensors.map(t => t.codes())

const expected = await (async () => {
  await using device = await openCpuDevice({ threads: 1 })
  return codes(await results(sparsePrefill(device, small)))
})()

/** The device still computes what a fresh one computes. */
const expectUsable = async (device: CpuDevice): Promise<void> =>
  expect(codes(await results(sparsePrefill(device, small)))).toEqual(expected)

/** A launch of handmade stages that counts as writing `out`. */
function submitStages(device: CpuDevice, stages: CpuStage[], out = device.alloc('f32', [4])) {
  const plan: CpuPlan = {
    kind: 'cpu',
    op: 'handmade',
    scratchBytes: 0,
    sharedBytes: 0,
    workerBytes: 0,
    stages: () => stages,
  }
  device.submit(plan, { inputs: {}, outputs: { out } })
  return out
}

/** Every pointer of the kernel's arguments lies past the memory. */
const wild: CpuStage = { kernel: 'attendLatent', items: 8, args: new Uint32Array(80).fill(0xfffffff0) }

/** Ends one worker thread, as the system would. */
const killWorker = (device: CpuDevice, index: number): Promise<unknown> =>
  Reflect.get(Reflect.get(device, 'executor') as object, 'seats')[index].port.terminate()

const later = (ms: number): Promise<void> => new Promise(resolve => setTimeout(resolve, ms))

describe.each([1, 2, 3])('%i threads', threads => {
  const open = (options: CpuOptions = {}): Promise<CpuDevice> => openCpuDevice({ threads, ...options })

  test('the result has the same bits as on one thread', async () => {
    await using device = await open()
    await expectUsable(device)
  })

  test('a signal aborted before the call', async () => {
    await using device = await open()
    const { out, lse } = sparsePrefill(device, { ...long, signal: AbortSignal.abort('not needed') })
    await expect(out.read()).rejects.toThrow(AbortedError)
    await expect(lse.read()).rejects.toMatchObject({ code: 'E_ABORTED', cause: 'not needed' })
    await expectUsable(device)
  })

  test('a signal aborted during a long call stops it', async () => {
    await using device = await open()
    const controller = new AbortController()
    const { out } = sparsePrefill(device, { ...long, signal: controller.signal })
    const start = performance.now()
    setTimeout(() => controller.abort(), 100)
    await expect(out.read()).rejects.toThrow(AbortedError)
    expect(performance.now() - start).toBeLessThan(5000)
    await expectUsable(device)
    await device.sync()
  })

  test('a signal aborted while the call waits in the queue', async () => {
    await using device = await open()
    const controller = new AbortController()
    const before = sparsePrefill(device, small)
    const { out } = sparsePrefill(device, { ...long, signal: controller.signal })
    const after = sparsePrefill(device, small)
    controller.abort()
    await expect(out.read()).rejects.toThrow(AbortedError)
    expect(codes(await results(before))).toEqual(expected)
    expect(codes(await results(after))).toEqual(expected)
  })

  test('a signal that fires after the call is over does nothing', async () => {
    await using device = await open()
    const controller = new AbortController()
    const { out } = sparsePrefill(device, { ...small, signal: controller.signal })
    await device.sync()
    controller.abort()
    expect((await out.read()).codes()).toEqual(expected[0])
  })

  test('a kernel that traps is a fault; the next call works', async () => {
    await using device = await open()
    const out = submitStages(device, [wild, wild])
    await expect(out.read()).rejects.toThrow(FaultError)
    await expect(out.read()).rejects.toThrow('handmade')
    await expectUsable(device)
  })

  test('a kernel that does not exist is a fault', async () => {
    await using device = await open()
    await expect(submitStages(device, [{ ...wild, kernel: 'none' }]).read()).rejects.toThrow(FaultError)
    await expectUsable(device)
  })

  test('what depends on a failed output fails with its error; a write or a new launch heals it', async () => {
    await using device = await open()
    const sink = submitStages(device, [wild], device.alloc('f32', [3]))
    const first = sparsePrefill(device, { ...small, sink })
    const second = sparsePrefill(device, { ...small, sink: first.lse.select(0, 0) })
    const failure: unknown = await sink.read().catch(error => error)
    await expect(first.out.read()).rejects.toBe(failure)
    await expect(second.maxLogits.read()).rejects.toBe(failure)
    await expectUsable(device)

    device.write(sink, fromFloats('f32', [3], [-Infinity, -Infinity, -Infinity]))
    const healed = sparsePrefill(device, { ...small, sink, into: { out: first.out } })
    expect((await healed.out.read()).codes()).toEqual(expected[0])
  })

  test('a failure covers what its view covers; writing another part does not heal it', async () => {
    await using device = await open()
    const whole = device.upload(fromFloats('f32', [4, 4], new Float32Array(16)))
    const top = whole.narrow(0, 0, 2)
    const column = whole.narrow(1, 3, 1)
    submitStages(device, [wild], top)
    const bottom = await whole.narrow(0, 2, 2).read()
    expect(bottom.data).toEqual(new Float32Array(8))
    device.write(whole.select(0, 0), fromFloats('f32', [4], [1, 2, 3, 4]))
    device.write(column, fromFloats('f32', [4, 1], [5, 6, 7, 8]))
    await expect(whole.select(0, 1).read()).rejects.toThrow(FaultError)
    await expect(whole.read()).rejects.toThrow(FaultError)
    device.write(top, fromFloats('f32', [2, 4], new Float32Array(8).fill(9)))
    expect([...(await whole.read()).data]).toEqual([9, 9, 9, 9, 9, 9, 9, 9, 0, 0, 0, 7, 0, 0, 0, 8])

    const middle = whole.narrow(0, 1, 1)
    submitStages(device, [wild], middle)
    device.write(whole.narrow(1, 0, 3), fromFloats('f32', [4, 3], new Float32Array(12)))
    await expect(middle.read()).rejects.toThrow(FaultError)
    device.write(whole, fromFloats('f32', [4, 4], new Float32Array(16)))
    await middle.read()

    submitStages(device, [wild], column)
    await expect(whole.read()).rejects.toThrow(FaultError)
    await submitStages(device, [], column).read()
    await whole.read()
  })

  test('sync reports a failure that no read has reported, once', async () => {
    await using device = await open()
    const out = submitStages(device, [wild])
    await expect(device.sync()).rejects.toThrow(FaultError)
    await device.sync()
    await expect(out.read()).rejects.toThrow(FaultError)
    submitStages(device, [wild])
      .read()
      .catch(() => {})
    await device.sync()
  })

  test('stages without items and launches without stages', async () => {
    await using device = await open()
    const out = submitStages(device, [{ ...wild, items: 0 }])
    await out.read()
    await submitStages(device, [], out).read()
  })

  test('no tokens', async () => {
    await using device = await open()
    const [out, lse] = await results(sparsePrefill(device, problem(0, 3, 40)))
    expect(out!.shape).toEqual([0, 3, 512])
    expect(lse!.size).toBe(0)
  })

  test('tensors may be disposed, and the device too, while their work is queued', async () => {
    const device = await open()
    const q = device.upload(small.q as Tensor)
    const { out, lse, maxLogits } = sparsePrefill(device, { ...small, q })
    const reading = Promise.all([out.read(), lse.read(), maxLogits.read()])
    for (const t of [q, out, lse, maxLogits]) t.dispose()
    device.upload(fromFloats('f32', [4096], new Float32Array(4096).fill(Number.NaN)))
    await device.dispose()
    expect(codes(await reading)).toEqual(expected)
  })

  test('a launch leaves no memory behind, whether it succeeds, fails or is aborted', async () => {
    await using device = await open()
    const before = device.bytesInUse
    for (const args of [small, { ...small, signal: AbortSignal.abort() }]) {
      const { out, lse, maxLogits } = sparsePrefill(device, args)
      for (const t of [out, lse, maxLogits]) t.dispose()
    }
    submitStages(device, [wild]).dispose()
    await device.sync().catch(() => {})
    await device.sync()
    expect(device.bytesInUse).toBe(before)
  })

  test('tensors past the memory that the workers started with', async () => {
    await using device = await open()
    device.alloc('u8', [300 << 20])
    await expectUsable(device)
  })

  test('a scratch budget too small is an error with both numbers, before anything runs', async () => {
    await using device = await open({ scratchBytes: 64 << 10 })
    const before = device.bytesInUse
    const { scratchBytes } = sparsePrefill.plan(device, small)
    const call = (): unknown => sparsePrefill(device, small)
    expect(call).toThrow(MemoryError)
    expect(call).toThrow(`sparsePrefill: scratchBytes is 65536; expected at least ${scratchBytes} for this problem`)
    await device.sync()
    expect(device.bytesInUse).toBe(before)
  })

  test('both builds agree to rounding', async () => {
    const lse = async (build: 'simd128' | 'relaxed'): Promise<Float32Array> => {
      await using device = await open({ build })
      return (await sparsePrefill(device, small).lse.read()).floats()
    }
    const [plain, fused] = [await lse('simd128'), await lse('relaxed')]
    plain.forEach((value, i) => expect(Math.abs(value - fused[i]!)).toBeLessThan(1e-5))
  })

  test('time covers the work and nothing before it', async () => {
    await using device = await open()
    const work = { ...long, q: zeros('bf16', [8, 128, width]), indices: slots(zeros('i32', [8, 2048])) }
    sparsePrefill(device, work)
    const idle = await device.time(() => {})
    const busy = await device.time(() => sparsePrefill(device, work))
    expect(busy).toBeGreaterThan(20)
    expect(idle).toBeLessThan(busy)
  })

  test('the calling thread stays free during a long call', async () => {
    await using device = await open()
    const controller = new AbortController()
    const { out } = sparsePrefill(device, { ...long, signal: controller.signal })
    let ended = false
    const reading = out
      .read()
      .catch(() => {})
      .finally(() => {
        ended = true
      })
    for (let timers = 0; timers < 3; timers++) await later(1)
    expect(ended).toBe(false)
    controller.abort()
    await reading
  })
})

describe('workers that die', () => {
  test.each([0, 1])('worker %i during a job: a fault, then another takes its seat', async index => {
    await using device = await openCpuDevice({ threads: 2 })
    const { out } = sparsePrefill(device, long)
    await later(100)
    await killWorker(device, index)
    await expect(out.read()).rejects.toThrow(FaultError)
    await expectUsable(device)
  })

  test('both during a job', async () => {
    await using device = await openCpuDevice({ threads: 2 })
    const { out } = sparsePrefill(device, long)
    await later(100)
    await Promise.all([killWorker(device, 0), killWorker(device, 1)])
    await expect(out.read()).rejects.toThrow(FaultError)
    await expectUsable(device)
  })

  test('between jobs: nobody notices', async () => {
    await using device = await openCpuDevice({ threads: 2 })
    await expectUsable(device)
    await killWorker(device, 1)
    await expectUsable(device)
  })
})
