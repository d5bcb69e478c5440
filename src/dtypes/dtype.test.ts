import { describe, expect, expectTypeOf, test } from 'vitest'
import { dtypeInfo, isDtype, type StorageOf } from './dtype.ts'

describe('dtypeInfo', () => {
  test.each(Object.entries(dtypeInfo))('%s: name and bytes agree with its key and storage', (key, info) => {
    expect(info.name).toBe(key)
    expect(new info.storage(3).byteLength).toBe(3 * info.bytes)
  })

  test('storage constructs views of existing memory', () => {
    const view = new dtypeInfo.bf16.storage(new Uint8Array([0, 0, 0x80, 0x3f]).buffer, 2, 1)
    expect([...view]).toEqual([0x3f80])
  })

  test('the array type follows the dtype', () => {
    expectTypeOf<StorageOf<'bf16' | 'e4m3'>>().toEqualTypeOf<Uint16Array | Uint8Array>()
    expectTypeOf<StorageOf<'bf16'>>().toEqualTypeOf<Uint16Array>()
    expectTypeOf(new dtypeInfo.i64.storage(1)).toEqualTypeOf<BigInt64Array>()
  })
})

test('isDtype knows the names and nothing inherited', () => {
  expect(Object.keys(dtypeInfo).every(isDtype)).toBe(true)
  expect(['F32', 'float32', '', 'toString', '__proto__', 4, null, undefined, ['f32']].some(isDtype)).toBe(false)
})
