import { mkdtemp, rm, truncate, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, expect, expectTypeOf, test } from 'vitest'
import { DisposedError, DtypeError, FormatError, ValueError } from '../errors.ts'
import { writeSafetensors } from './safetensors.ts'
import { openSafetensors } from './safetensors-node.ts'
import { fromFloats, type Tensor, tensor, zeros } from './tensor.ts'

// The refusals of headers run against this reader too, in safetensors-header.test.ts.

const source = {
  a: fromFloats('bf16', [2, 2], [1, 2, 3, 4]),
  b: tensor('u8', [3], Uint8Array.of(7, 8, 9)),
  none: zeros('f32', [0, 5]),
}

let folder: string
let path: string
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'safetensors-'))
  path = join(folder, 'model.safetensors')
  await writeFile(path, writeSafetensors(source, { format: 'pt' }))
})
afterAll(() => rm(folder, { recursive: true }))

test('knows all from the header, and reads tensors on demand and at the same time', async () => {
  await using file = await openSafetensors(path)
  expect(file.names).toEqual(['none', 'a', 'b'])
  expect({ ...file.metadata }).toEqual({ format: 'pt' })
  expect(file.info('a')).toMatchObject({ dtype: 'bf16', shape: [2, 2] })
  const [a, b, none] = await Promise.all([file.get('a', 'bf16'), file.get('b'), file.get('none')])
  expect({ a, b, none }).toEqual(source)
  expectTypeOf(a).toEqualTypeOf<Tensor<'bf16'>>()
})

test('every get has memory of its own', async () => {
  await using file = await openSafetensors(path)
  const first = await file.get('b', 'u8')
  first.data.fill(0)
  expect(await file.get('b')).toEqual(source.b)
})

test('reads a golden file', async () => {
  await using file = await openSafetensors(
    fileURLToPath(new URL('../../test/golden/flashmla.safetensors', import.meta.url)),
  )
  expect(file.info('decode0.lse').shape).toEqual([2, 64, 2])
  expect((await file.get('prefill0.lse', 'f32')).shape).toEqual([3, 64])
})

test('refuses an unknown name and another dtype', async () => {
  await using file = await openSafetensors(path)
  await expect(file.get('c')).rejects.toThrow(ValueError)
  await expect(file.get('a', 'f32')).rejects.toThrow(DtypeError)
})

test('refuses after close; closing again does nothing', async () => {
  const file = await openSafetensors(path)
  const reading = file.get('a')
  await Promise.all([file.close(), file.close()])
  expect(await reading).toEqual(source.a)
  await expect(file.get('a')).rejects.toThrow(DisposedError)
  await expect(file.get('a')).rejects.toThrow(`safetensors ${path}: get is a; expected a file not yet closed`)
})

test('refuses a file that has shrunk since it was opened', async () => {
  const shrinking = join(folder, 'shrinking.safetensors')
  const bytes = writeSafetensors({ a: zeros('u8', [100]) })
  await writeFile(shrinking, bytes)
  await using file = await openSafetensors(shrinking)
  await truncate(shrinking, bytes.length - 40)
  await expect(file.get('a')).rejects.toThrow(FormatError)
  await expect(file.get('a')).rejects.toThrow(
    `file is ${bytes.length - 40} bytes; expected at least ${bytes.length}, its size when opened`,
  )
})

test('a path that cannot be opened fails with the error of node:fs', async () => {
  await expect(openSafetensors(join(folder, 'absent'))).rejects.toMatchObject({ code: 'ENOENT' })
})
