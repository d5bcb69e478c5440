import { expect, expectTypeOf, test } from 'vitest'
import { bytesOf, storageAt } from './storage-bytes.ts'

test('an aligned address is a view, any other a copy, also from a Node Buffer', () => {
  const memory = new Uint8Array([0, 0, 0x80, 0x3f, 0, 0x40, 0, 0])
  const view = storageAt('bf16', memory, 2, 2)
  expect([...view]).toEqual([0x3f80, 0x4000])
  expect(view.buffer).toBe(memory.buffer)

  const copy = storageAt('bf16', Buffer.from(memory.buffer), 3, 1)
  expect([...copy]).toEqual([0x003f])
  expect(copy.buffer).not.toBe(memory.buffer)
  expect(copy.buffer.byteLength).toBe(2)
})

test('what counts is the address in the buffer, not in the bytes', () => {
  const shifted = new Uint8Array(new ArrayBuffer(9), 1)
  expect(storageAt('i64', shifted, 0, 1).buffer).not.toBe(shifted.buffer)
  expect(storageAt('i32', shifted, 3, 1).buffer).toBe(shifted.buffer)
})

test('no elements at the very end', () => expect(storageAt('f64', new Uint8Array(8), 8, 0)).toHaveLength(0))

test('bytesOf covers exactly the elements of a subarray', () => {
  const bytes = bytesOf(new Uint16Array([1, 2, 3]).subarray(1))
  expect([...bytes]).toEqual([2, 0, 3, 0])
  expectTypeOf(bytes).toEqualTypeOf<Uint8Array<ArrayBuffer>>()
})
