import { describe, expect, test, vi } from 'vitest'
import { DeviceError, ShapeError, UnsupportedError } from '../errors.ts'
import { type Kernel, kernel } from '../lang/kernel.ts'
import { KernelError } from '../lang/kernel-error.ts'
import type { LaunchArg } from '../lang/launch.ts'
import { f32, i32, input, output, type TensorMapParam, tensorMap, u32 } from '../lang/params.ts'
import { printPtx } from '../ptx/print.ts'
import { fromFloats, zeros } from '../tensor/tensor.ts'
import { FakeDriver, hopperCard } from './fake-driver.ts'
import { type FakeSetup, openFake, planOf, scaleKernel } from './fake-kernels.ts'

/** Launches and runs it. */
async function launch(
  { device, driver }: FakeSetup,
  traced: Kernel,
  args: Record<string, LaunchArg>,
  { grid = [3, 2], scratch = {} }: { grid?: [number, number]; scratch?: Record<string, number> } = {},
) {
  device.submit(planOf([{ kernel: traced, grid, args }], scratch), { inputs: {}, outputs: {} })
  await device.sync()
  return driver.launches.at(-1)!
}

const everyKind = kernel(
  {
    name: 'every_kind',
    target: 'sm_90a',
    threads: 96,
    params: {
      a: input('bf16', 'a'),
      n: u32('n'),
      absent: input('f32', 'absent'),
      m: tensorMap({ dtype: 'e4m3', box: [128, 64], swizzle: 128 }, 'm'),
      delta: i32('delta'),
      factor: f32('factor'),
      out: output('f32', 'out'),
    },
  },
  k => void k.shared('f32', 100),
)

describe('arguments', () => {
  test('of every kind lie where the kernel looks for them', async () => {
    const fake = await openFake()
    const { device } = fake
    const a = device.alloc('bf16', [4, 8])
    const m = device.upload(zeros('e4m3', [70, 128]))
    const args = { a: a.narrow(0, 1, 2), n: 4e9, m, delta: -2, factor: 1.5, out: { scratch: 'tmp', byteOffset: 8 } }
    const { args: seen, ...rest } = await launch(fake, everyKind, args, { scratch: { tmp: 64 } })
    expect(rest).toEqual({ kernel: 'every_kind', grid: [3, 2, 1], threads: [96, 1, 1], sharedBytes: 400 })
    expect(seen).toMatchObject({
      a: (a.allocation.address as bigint) + 16n,
      n: 4e9,
      absent: 0n,
      delta: 0xfffffffe,
      factor: 0x3fc00000,
    })
    expect((seen.out as bigint) % 256n).toBe(8n)
    expect(seen.m).toHaveLength(128)
  })

  test('are those of their own launch, though the block is used again', async () => {
    const fake = await openFake()
    const { device, driver } = fake
    const scale = scaleKernel()
    const [x, y] = [device.upload(fromFloats('f32', [4], [1, 2, 3, 4])), device.alloc('f32', [4])]
    const one = (factor: number) => ({ kernel: scale, grid: [1, 1], args: { x, y, factor } }) as const
    device.submit(planOf([one(1), one(2), one(3)]), { inputs: { x }, outputs: { y } })
    await device.sync()
    expect(driver.launches.map(({ args }) => args.factor)).toEqual([0x3f800000, 0x40000000, 0x40400000])
    expect(driver.count('cuModuleLoadDataEx')).toBe(1)
  })

  test.each([true, false])(
    'reach a kernel that may overlap, launched with an attribute if it shall: %s',
    async overlap => {
      const fake = await openFake({ overlap })
      const early = kernel(
        { name: 'early', target: 'sm_90a', threads: 64, overlaps: true, params: { n: u32('n') } },
        k => {
          k.shared('f32', 8)
          k.waitForPrevious()
        },
      )
      for (const grid of [
        [3, 2],
        [5, 1],
      ] as [number, number][])
        expect(await launch(fake, early, { n: 7 }, { grid })).toEqual({
          kernel: 'early',
          grid: [...grid, 1],
          threads: [64, 1, 1],
          sharedBytes: 32,
          args: { n: 7 },
        })
      const counts = [fake.driver.count('cuLaunchKernelEx'), fake.driver.count('cuLaunchKernel')]
      expect(counts).toEqual(overlap ? [2, 0] : [0, 2])
      expect(() =>
        kernel({ name: 'early', target: 'sm_80', threads: 64, overlaps: true, params: {} }, () => {}),
      ).toThrow('a kernel for sm_80 that overlaps; from sm_90a on')
    },
  )

  test.each([
    [{ n: 2 ** 32 }, ShapeError, 'every_kind: n is 4294967296; expected a u32'],
    [{ n: -1 }, ShapeError, 'n is -1'],
    [{ n: 0.5 }, ShapeError, 'n is 0.5'],
    [{ n: Number.NaN }, ShapeError, 'n is NaN'],
    [{ delta: 2 ** 31 }, ShapeError, 'delta is 2147483648; expected a i32'],
    [{ n: undefined }, KernelError, 'argument n of the launch must be a number'],
    [{ m: undefined }, KernelError, 'argument m of the launch must be a tensor to map'],
    [{ a: { scratch: 'none' } }, KernelError, 'argument a of the launch must be a tensor, or scratch of the plan'],
    [{ a: 3 }, KernelError, 'argument a of the launch must be a tensor'],
  ] as [Record<string, LaunchArg>, typeof ShapeError, string][])('%o is refused', async (wrong, type, message) => {
    const fake = await openFake()
    const m = fake.device.upload(zeros('e4m3', [70, 128]))
    const refused = launch(fake, everyKind, { n: 1, delta: 1, factor: 1, m, ...wrong })
    await expect(refused).rejects.toThrow(type)
    await expect(refused).rejects.toThrow(message)
  })

  test('an empty grid launches nothing, and loads nothing', async () => {
    const fake = await openFake()
    expect(await launch(fake, everyKind, {}, { grid: [0, 4] })).toBeUndefined()
    expect(await launch(fake, everyKind, {}, { grid: [4, 0] })).toBeUndefined()
    expect(fake.driver.count('cuModuleLoadDataEx')).toBe(0)
  })
})

describe('tensor maps', () => {
  const mapped = (param: Omit<TensorMapParam, 'kind' | 'doc'>): Kernel =>
    kernel({ name: 'mapped', target: 'sm_90a', threads: 32, params: { m: tensorMap(param as never, 'm') } }, () => {})

  test('describe the tensor innermost first: extents, byte strides, box, swizzle', async () => {
    const fake = await openFake()
    const { device, driver } = fake
    const pool = device.upload(zeros('bf16', [5, 3, 16, 64]))
    const layer = pool.select(1, 2)
    await launch(fake, mapped({ dtype: 'bf16', box: [64, 16, 1], swizzle: 128 }), { m: layer })
    await launch(fake, mapped({ dtype: 'f32', box: [8, 4], swizzle: 32 }), { m: device.alloc('f32', [6, 8]) })
    expect(driver.tensorMaps).toMatchObject([
      {
        dtype: 9,
        address: (pool.allocation.address as bigint) + BigInt(2 * 16 * 64 * 2),
        extents: [64, 16, 5],
        byteStrides: [128, 3 * 16 * 64 * 2],
        box: [64, 16, 1],
        swizzle: 3,
      },
      { dtype: 7, extents: [8, 6], byteStrides: [32], box: [8, 4], swizzle: 1 },
    ])
  })

  test('codes of fp8 may come as bytes; an axis of one element may have any stride', async () => {
    const fake = await openFake()
    const { device, driver } = fake
    const odd = device.alloc('u8', [3, 40]).narrow(0, 1, 1).narrow(1, 8, 16)
    await launch(fake, mapped({ dtype: 'e4m3', box: [16, 1], swizzle: 0 }), { m: odd })
    expect(driver.tensorMaps).toMatchObject([{ dtype: 0, extents: [16, 1], byteStrides: [48] }])
  })

  test.each([
    ['bf16 of another rank', 'bf16', [4, 4, 64], 'of bf16 [4, 4, 64]; expected bf16 of rank 2'],
    ['another dtype', 'f32', [4, 64], 'of f32 [4, 64]; expected bf16 of rank 2'],
    ['no rows', 'bf16', [0, 64], 'of bf16 [0, 64]'],
    ['rows of 24 bytes', 'bf16', [4, 12], 'a start or stride of 24 bytes; expected multiples of 16 bytes'],
  ] as const)('%s is refused', async (_, dtype, shape, message) => {
    const fake = await openFake()
    const m = fake.device.alloc(dtype, shape)
    const refused = launch(fake, mapped({ dtype: 'bf16', box: [64, 4], swizzle: 128 }), { m })
    await expect(refused).rejects.toThrow(ShapeError)
    await expect(refused).rejects.toThrow(message)
  })

  test('a view that starts between two multiples of 16 bytes is refused', async () => {
    const fake = await openFake()
    const m = fake.device.alloc('bf16', [4, 128]).narrow(1, 4, 64)
    await expect(launch(fake, mapped({ dtype: 'bf16', box: [64, 4], swizzle: 128 }), { m })).rejects.toThrow(
      'a start or stride of 8 bytes',
    )
  })
})

describe('compiling', () => {
  const outputs = (fake: FakeSetup) => ({
    x: fake.device.alloc('f32', [4]),
    y: fake.device.alloc('f32', [4]),
    factor: 1,
  })

  test('happens once for a kernel, and is reported', async () => {
    const fake = await openFake()
    const scale = scaleKernel()
    await launch(fake, scale, outputs(fake))
    await launch(fake, scale, outputs(fake))
    expect(fake.driver.count('cuModuleLoadDataEx')).toBe(1)
    const [report, ...others] = fake.device.kernels
    expect(others).toEqual([])
    expect(report).toMatchObject({ name: 'scale', registers: 40, localBytes: 0, sharedBytes: 0, threads: 32 })
    expect(report).toMatchObject({ log: 'ptxas info : nothing to say', complaints: [] })
    expect(report!.printMilliseconds).toBeGreaterThan(0)
    expect(report!.loadMilliseconds).toBeGreaterThan(0)
  })

  test('a refusal shows the log with the line of the source', async () => {
    const fake = await openFake()
    const line =
      1 +
      printPtx(scaleKernel())
        .split('\n')
        .findIndex(text => text.includes('mul.rn.f32'))
    fake.driver.refusal = { code: 218, log: `ptxas application ptx input, line ${line}; error : Unknown` }
    const refused = launch(fake, scaleKernel(), outputs(fake))
    await expect(refused).rejects.toThrow(KernelError)
    await expect(refused).rejects.toThrow(
      /^kernel scale: the driver's compiler refuses it:\nptxas application ptx input, line \d+ \(.*fake-kernels\.ts:\d+\); error : Unknown$/,
    )
    fake.driver.refusal = undefined
    await launch(fake, scaleKernel(), outputs(fake))
  })

  test.each([
    '(C7508) Warning: setmaxnreg ignored to maintain minimum register requirements',
    'info : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized',
  ])('%s is a warning, and in the report', async info => {
    const fake = await openFake()
    const warn = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
    fake.driver.info = `ptxas info : 40 registers\n  ${info}\nptxas info : more`
    await launch(fake, scaleKernel(), outputs(fake))
    expect(warn.mock.calls).toEqual([[`kernel scale does not compile as written: ${info}`]])
    expect(fake.device.kernels[0]!.complaints).toEqual([info])
    warn.mockRestore()
  })

  test('a driver too old for the text says what it is for', async () => {
    const driver = new FakeDriver()
    driver.version = 12_020
    driver.refusal = { code: 222, log: '' }
    const fake = await openFake({}, driver)
    const refused = launch(fake, scaleKernel(), outputs(fake))
    await expect(refused).rejects.toThrow(DeviceError)
    await expect(refused).rejects.toThrow(
      'scale: driver is for CUDA 12.2; expected one that reads PTX 8.0 (CUDA_ERROR_UNSUPPORTED_PTX_VERSION',
    )
  })

  test.each([
    [221, 'libnvidia-ptxjitcompiler is missing'],
    [209, 'the kernel is for another architecture'],
  ])('answer %i: %s', async (code, hint) => {
    const fake = await openFake()
    fake.driver.failNext('cuModuleLoadDataEx', code)
    await expect(launch(fake, scaleKernel(), outputs(fake))).rejects.toThrow(hint)
  })

  test('shared memory past the plain bound is asked for; more than a block may have is refused', async () => {
    const fake = await openFake({}, new FakeDriver([{ ...hopperCard, sharedBytes: 65_536 }]))
    const wide = (words: number): Kernel =>
      kernel({ name: 'wide', target: 'sm_90a', threads: 32, params: {} }, k => void k.shared('u32', words))
    await launch(fake, wide(16_384), {})
    expect(fake.driver.attributes).toEqual([[8, 65_536]])
    const refused = launch(fake, wide(16_388), {})
    await expect(refused).rejects.toThrow(UnsupportedError)
    await expect(refused).rejects.toThrow('shared memory is 65552 bytes; expected at most 65536 on Fake H')
  })

  test('clusters past the plain size are asked for', async () => {
    const fake = await openFake()
    for (const cluster of [8, 16]) {
      const traced = kernel({ name: 'clustered', target: 'sm_90a', threads: 32, cluster, params: {} }, () => {})
      await launch(fake, traced, {}, { grid: [16, 1] })
    }
    expect(fake.driver.attributes).toEqual([[14, 1]])
  })

  test('everything is given back', async () => {
    const fake = await openFake()
    await launch(fake, scaleKernel(), outputs(fake))
    fake.driver.refusal = { code: 218, log: 'no' }
    await expect(launch(fake, scaleKernel('scale2'), outputs(fake))).rejects.toThrow(KernelError)
    await fake.device.dispose()
    expect(fake.driver.held).toEqual({ objects: 0, blocks: 0, hostBlocks: 0, contexts: 0 })
  })
})
