import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import {
  type DenseCase,
  denseOperands,
  denseVariants,
  expectReference,
  expectSame,
  nanTensor,
  pagedOperands,
  runDense,
  u32,
} from '../../../test/dense-cases.ts'
import { attentionF32, expectGate, poisoned } from '../../../test/gates.ts'
import { type CpuDevice, openCpuDevice } from '../../cpu/device.ts'
import { type DensePrefillArgs, densePrefill } from '../../ops/dense-prefill.ts'
import type { LatentPool } from '../../tensor/cache-pool.ts'
import { fromFloats, type Tensor, zeros } from '../../tensor/tensor.ts'
import { and, causal, materialized, none, or, slidingWindow } from './masks.ts'
import { densePrefillReference } from './reference.ts'

let device: CpuDevice
beforeAll(async () => {
  device = await openCpuDevice({ threads: 1 })
})
afterAll(() => device.dispose())

const shape: DenseCase = { queries: [9, 0, 70, 3], keys: [12, 5, 150, 3], heads: 4, kvHeads: 2 }
const call = (args: object): DensePrefillArgs => args as DensePrefillArgs

describe('pages', () => {
  const cells = denseVariants.flatMap(variant => [1, 3, 16, 64, 200].map(pageSize => ({ variant, pageSize })))

  test.each(cells)('$variant in pages of $pageSize: the bits of contiguous keys', async ({ variant, pageSize }) => {
    const c = { ...shape, variant }
    const operands = denseOperands(c)
    const paged = pagedOperands(operands, c, { pageSize, lengthsIncludeNew: pageSize === 16 })
    expectSame(
      await runDense(device, call({ ...paged, mask: causal() })),
      await runDense(device, call({ ...operands, mask: causal() })),
    )
  })

  test.each(['nope', 'v', 'rope', 'scale'])('%s contiguous beside paged others', async name => {
    const c = { ...shape, variant: 'perTokenScale' } as const
    const operands = denseOperands(c)
    const mixed = pagedOperands(operands, c, { pageSize: 8, contiguous: [name] })
    expectSame(
      await runDense(device, call({ ...mixed, mask: causal() })),
      await runDense(device, call({ ...operands, mask: causal() })),
    )
  })

  test('only rope paged, as beside an up-projection, with the reference', async () => {
    const c = { ...shape, variant: 'blockscale' } as const
    const args = pagedOperands(denseOperands(c), c, { pageSize: 8, contiguous: ['nope', 'v'] })
    await expectReference(device, 'blockscale', call({ ...args, mask: causal() }))
  })

  test('packed rows hold rope as bf16: the bits of contiguous rope', async () => {
    const c = { ...shape, variant: 'bf16' } as const
    const operands = denseOperands(c)
    const paged = pagedOperands(operands, c, { pageSize: 8 })
    const plain = paged.keys.rope as LatentPool
    const [blocks, layers, pageSize] = plain.values.shape as [number, number, number]
    const packed = nanTensor('u8', [blocks, layers, pageSize, 656])
    const source = new Uint8Array((plain.values as Tensor<'bf16'>).data.buffer)
    for (let row = 0; row < blocks * layers * pageSize; row++)
      packed.data.set(source.subarray(row * 128, (row + 1) * 128), row * 656 + 528)
    const rope = { format: 'packed656', values: packed, scaleBlock: 128, layer: plain.layer }
    const args = call({ ...paged, keys: { ...paged.keys, rope }, mask: causal() })
    expectSame(await runDense(device, args), await runDense(device, call({ ...operands, mask: causal() })))
    await expectReference(device, 'bf16', args)
  })

  test('a key whose page names no block, or has no column, is not visible', async () => {
    const c: DenseCase = { queries: [40], keys: [150], heads: 2 }
    const operands = denseOperands(c)
    const paged = pagedOperands(operands, c, { pageSize: 16 })
    const table = (paged.keys.blockTable as Tensor<'u32'>).clone()
    table.data[2] = 0xffff_ffff
    table.data[5] = table.data[10]! + 1
    const blockTable = device.upload(table.narrow(1, 0, 8))
    const cacheLength = device.upload(paged.keys.cacheLength as Tensor<'u32'>)
    const onDevice = call({ ...paged, keys: { ...paged.keys, blockTable, cacheLength }, mask: slidingWindow(100) })
    const hidden = Float32Array.from({ length: 40 * 150 }, (_, i) => {
      const page = Math.floor((i % 150) / 16)
      return page === 2 || page === 5 || page >= 8 ? -Infinity : 0
    })
    const mask = and(slidingWindow(100), materialized(fromFloats('f32', [1, 40, 150], hidden)))
    const [run, wanted] = [await runDense(device, onDevice), densePrefillReference(call({ ...operands, mask }))]
    expectGate(attentionF32(run.out, wanted))
    blockTable.dispose()
    cacheLength.dispose()
  })

  test('pages outside every window may be missing, and are not read', async () => {
    const c: DenseCase = { queries: [30], keys: [300], heads: 2 }
    const operands = denseOperands(c)
    const paged = pagedOperands(operands, c, { pageSize: 16 })
    const blockTable = (paged.keys.blockTable as Tensor<'u32'>).clone()
    blockTable.data.fill(0xffff_ffff, 0, 15)
    const mask = slidingWindow(31)
    expectSame(
      await runDense(device, call({ ...paged, keys: { ...paged.keys, blockTable }, mask })),
      await runDense(device, call({ ...operands, mask })),
    )
  })
})

describe('sequences', () => {
  test('padded rows: the bits of the ragged call, then zeros and -inf, whatever the padding holds', async () => {
    const operands = denseOperands(shape)
    const rows = 71
    const q = operands.q as Tensor<'f32'>
    const padded = nanTensor('f32', [4 * rows, 4, 96])
    const validLength = u32(...shape.queries)
    let from = 0
    for (const [b, length] of shape.queries.entries()) {
      padded.data.set(q.data.subarray(from * 384, (from + length) * 384), b * rows * 384)
      from += length
    }
    const { rowOffsets: _, ...rest } = operands
    const run = await runDense(device, call({ ...rest, q: padded, validLength, mask: causal() }))
    const ragged = await runDense(device, call({ ...operands, mask: causal() }))
    from = 0
    for (const [b, length] of shape.queries.entries()) {
      const cut = (t: Tensor, start: number, count: number) => t.narrow(0, start, count).clone() as Tensor<'f32'>
      const [out, lse] = [cut(run.out, b * rows, length), cut(run.lse, b * rows, length)]
      expectSame({ out, lse }, { out: cut(ragged.out, from, length), lse: cut(ragged.lse, from, length) })
      const [zero, empty] = [
        cut(run.out, b * rows + length, rows - length),
        cut(run.lse, b * rows + length, rows - length),
      ]
      expect(zero.floats().every(x => x === 0)).toBe(true)
      expect(empty.floats().every(x => x === -Infinity)).toBe(true)
      from += length
    }
  })

  test('a sequence alone has the bits it has in a batch', async () => {
    const operands = denseOperands(shape)
    const whole = await runDense(device, call({ ...operands, mask: causal() }))
    const [q, nope, v, rope] = [operands.q, operands.keys.nope, operands.keys.v, operands.keys.rope] as Tensor<'f32'>[]
    const alone = await runDense(
      device,
      call({
        scale: operands.scale,
        q: q!.narrow(0, 9, 70),
        keys: { nope: nope!.narrow(0, 17, 150), v: v!.narrow(0, 17, 150), rope: rope!.narrow(0, 17, 150) },
        mask: causal(),
      }),
    )
    expectSame(alone, { out: whole.out.narrow(0, 9, 70).clone(), lse: whole.lse.narrow(0, 9, 70).clone() } as never)
  })

  test('offsets on the device that leave tokens out: those are rows without keys', async () => {
    const operands = denseOperands({ queries: [20], keys: [20], heads: 2 })
    const [rowOffsets, kvRowOffsets] = [device.upload(u32(4, 9, 2, 15)), device.upload(u32(0, 9, 9, 99))]
    const keys = { ...operands.keys, kvRowOffsets }
    const { out, lse } = await runDense(device, call({ ...operands, rowOffsets, keys, mask: none() }))
    // Clamped to rise: [4, 9), [9, 9), [9, 15).
    const empty = lse.floats().map(x => Number(x === -Infinity))
    const shown = Array.from({ length: 20 }, (_, t) => Number(t < 4 || t >= 15))
    expect([...empty]).toEqual(shown.flatMap(x => [x, x]))
    expect(out.floats().every((x, i) => shown[Math.floor(i / 48)] === 0 || x === 0)).toBe(true)
    rowOffsets.dispose()
    kvRowOffsets.dispose()
  })

  test('lengths, table and mask tensors on the device: the bits of host tensors', async () => {
    const c: DenseCase = { ...shape, variant: 'bf16' }
    const paged = pagedOperands(denseOperands(c), c, { pageSize: 16 })
    const keys = { ...paged.keys }
    const uploads = [paged.rowOffsets, keys.blockTable, keys.cacheLength].map(t => device.upload(t as Tensor<'u32'>))
    const [rowOffsets, blockTable, cacheLength] = uploads
    const onDevice = call({ ...paged, rowOffsets, keys: { ...keys, blockTable, cacheLength }, mask: causal() })
    expectSame(await runDense(device, onDevice), await runDense(device, call({ ...paged, mask: causal() })))
    for (const t of uploads) t!.dispose()
  })

  test('strided queries, keys and outputs', async () => {
    const operands = denseOperands({ queries: [30], keys: [30], heads: 2, nope: 16, vDim: 8 })
    const wide = <D extends 'f32'>(t: Tensor<D>): Tensor<D> => {
      const [rows, heads, width] = t.shape as [number, number, number]
      const holder = nanTensor(t.dtype, [rows, heads + 1, width + 5])
      const view = holder.narrow(1, 1, heads).narrow(2, 3, width)
      let from = 0
      for (const to of view.rowOffsets()) holder.data.set(t.data.subarray(from, (from += width)), to)
      return view as Tensor<D>
    }
    const { nope, v } = operands.keys as { nope: Tensor<'f32'>; v: Tensor<'f32'> }
    const keys = { ...operands.keys, nope: wide(nope), v: wide(v) }
    const wanted = await runDense(device, call({ ...operands, mask: causal() }))
    const holder = device.upload(zeros('f32', [30, 3, 11]))
    const out = holder.narrow(1, 1, 2).narrow(2, 2, 8)
    const lseHolder = device.upload(zeros('f32', [30, 5]))
    const lse = lseHolder.narrow(1, 1, 2)
    const args = call({ ...operands, q: wide(operands.q as Tensor<'f32'>), keys, mask: causal() })
    densePrefill(device, { ...args, into: { out, lse } })
    const run = { out: (await out.read()).clone(), lse: (await lse.read()).clone() }
    expectSame(run as typeof wanted, wanted)
    expect((await holder.read()).floats().filter(x => x !== 0).length).toBe(30 * 2 * 8)
    expect((await lseHolder.read()).floats().filter(x => x !== 0).length).toBe(30 * 2)
    holder.dispose()
    lseHolder.dispose()
  })
})

describe('how the work is cut', () => {
  const mask = or(slidingWindow(40), materialized(fromFloats('f32', [4, 70, 150], new Float32Array(4 * 70 * 150))))
  const operands = denseOperands(shape)

  test.each(['persistent', 'queued'] as const)('scheduler %s: the bits of transient', async scheduler => {
    const args = call({ ...operands, mask: causal() })
    expectSame(await runDense(device, { ...args, scheduler }), await runDense(device, args))
  })

  test.each([1, 2, 3, 7, 200])('%s splits of the keys', async partition => {
    const args = call({ ...operands, mask, sink: fromFloats('f32', [4], [0, 1, -1, 2]), partition })
    await expectReference(device, 'f32', args)
  })

  test('splits in windows that fit a small scratch budget: the same bits', async () => {
    const small = await openCpuDevice({ threads: 1, scratchBytes: 300_000 })
    const args = call({ ...operands, mask: causal(), partition: 16 })
    const plan = densePrefill.plan(small, args)
    expect(plan.scratchBytes).toBeLessThanOrEqual(300_000)
    expect(densePrefill.plan(device, args).scratchBytes).toBeGreaterThan(300_000)
    expectSame(await runDense(small, args), await runDense(device, args))
    await small.dispose()
  })

  test('metadata far above the real lengths changes no bit', async () => {
    const paged = pagedOperands(operands, shape, { pageSize: 16 })
    const frozen = { ...paged, maxPromptLen: 1 << 20, keys: { ...paged.keys, maxKeys: 1 << 30 } }
    expectSame(
      await runDense(device, call({ ...frozen, mask: causal() })),
      await runDense(device, call({ ...paged, mask: causal() })),
    )
  })

  test('twenty runs, the same bits', async () => {
    const args = call({ ...operands, mask, partition: 2 })
    const first = await runDense(device, args)
    for (let run = 0; run < 19; run++) expectSame(await runDense(device, args), first)
  })

  test('no tokens: nothing runs, outputs are empty', async () => {
    const nothing = denseOperands({ queries: [], keys: [], heads: 2 })
    const { out, lse } = densePrefill(device, call({ ...nothing, mask: causal() }))
    expect([out.shape, lse.shape]).toEqual([
      [0, 2, 24],
      [0, 2],
    ])
    const empty = denseOperands({ queries: [0, 0], keys: [0, 3], heads: 2 })
    expect((await runDense(device, call({ ...empty, mask: causal() }))).out.size).toBe(0)
  })

  test('an aborted call fails when read', async () => {
    const into = { out: device.upload(poisoned('f32', [82, 4, 24])) }
    densePrefill(device, call({ ...operands, mask: causal(), into, signal: AbortSignal.abort() }))
    await expect(into.out.read()).rejects.toMatchObject({ code: 'E_ABORTED' })
  })
})
