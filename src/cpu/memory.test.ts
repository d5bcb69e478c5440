import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { MemoryError } from '../errors.ts'
import { CpuMemory } from './memory.ts'

const pageBytes = 65_536
const firstByte = 1000

const fresh = (pages = 4, maximum = 16): CpuMemory =>
  new CpuMemory(new WebAssembly.Memory({ initial: pages, maximum, shared: true }), firstByte)

interface Held {
  readonly address: number
  readonly bytes: number
}

const overlap = (a: Held, b: Held): boolean => a.address < b.address + b.bytes && b.address < a.address + a.bytes

describe('CpuMemory', () => {
  /** A step allocates so many bytes, or releases one of the blocks held. */
  const step = fc.oneof(fc.record({ alloc: fc.oneof(fc.nat(300), fc.nat(40_000)) }), fc.record({ release: fc.nat() }))

  test('blocks are aligned, inside the memory, apart, and all come back', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), steps => {
        const memory = fresh()
        const held: Held[] = []
        for (const action of steps) {
          if ('alloc' in action) held.push({ address: memory.alloc(action.alloc, 'block'), bytes: action.alloc })
          else if (held.length > 0) memory.release(held.splice(action.release % held.length, 1)[0]!.address)
          for (const [i, a] of held.entries()) {
            expect(a.address % 64).toBe(0)
            expect(a.address).toBeGreaterThanOrEqual(firstByte)
            expect(a.address + a.bytes).toBeLessThanOrEqual(memory.memory.buffer.byteLength)
            expect(held.slice(0, i).some(b => overlap(a, b))).toBe(false)
          }
          expect(memory.bytesInUse).toBeGreaterThanOrEqual(held.reduce((sum, { bytes }) => sum + bytes, 0))
        }
        for (const { address } of held) memory.release(address)
        expect(memory.bytesInUse).toBe(0)
        const whole = memory.memory.buffer.byteLength - 1024
        expect(memory.alloc(whole, 'everything')).toBe(1024)
      }),
      { numRuns: 300 },
    )
  })

  test('takes the smallest hole that fits', () => {
    const memory = fresh()
    const [large, , small] = [4096, 64, 256, 64].map(bytes => memory.alloc(bytes, 'block'))
    memory.release(large!)
    memory.release(small!)
    expect(memory.alloc(200, 'fits both')).toBe(small)
    expect(memory.alloc(2000, 'fits one')).toBe(large)
  })

  test('a block of no bytes is still a block of its own', () => {
    const memory = fresh()
    expect(memory.alloc(0, 'empty')).not.toBe(memory.alloc(0, 'empty'))
  })

  test('grows up to its maximum, then refuses with numbers and stays usable', () => {
    const memory = fresh(1, 4)
    const first = memory.alloc(3 * pageBytes, 'first')
    let refusal: unknown
    try {
      memory.alloc(2 * pageBytes, 'f32 [32768]')
    } catch (error) {
      refusal = error
    }
    expect(refusal).toBeInstanceOf(MemoryError)
    expect((refusal as MemoryError).message).toContain('f32 [32768]')
    expect((refusal as MemoryError).message).toContain(`${2 * pageBytes} bytes with ${3 * pageBytes} in use`)
    memory.release(first)
    expect(memory.alloc(3 * pageBytes, 'again')).toBe(first)
  })
})
