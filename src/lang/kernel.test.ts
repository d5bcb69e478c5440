import { expect, expectTypeOf, test } from 'vitest'
import type { KernelBuilder } from './builder.ts'
import { kernel } from './kernel.ts'
import { KernelError } from './kernel-error.ts'
import { input, output, u32 } from './params.ts'
import type { Val } from './value.ts'

const trace = (define: (k: KernelBuilder) => void) =>
  kernel({ name: 'probe', target: 'sm_90a', threads: 32, params: {} }, define)

test('a value made inside a run-time loop cannot be used after it', () => {
  expect(() =>
    trace(k => {
      let leaked: Val<'u32'> | undefined
      for (const i of k.range(4)) leaked = i.add(1)
      leaked!.add(1)
    }),
  ).toThrow(/made inside the loop was used after it/)
})

test('a variable carries a value across a loop', () => {
  const { body } = trace(k => {
    const sum = k.var('u32', 0)
    for (const i of k.range(4)) sum.set(sum.add(i))
    sum.add(1)
  })
  expect(body.map(node => node.kind)).toEqual(['inst', 'loop', 'inst'])
})

test('leaving a run-time loop by break is refused', () => {
  expect(() =>
    trace(k => {
      for (const i of k.range(4)) {
        i.add(1)
        break
      }
    }),
  ).toThrow(/break or return/)
})

test('the error points at the line that misused the language', () => {
  let error: unknown
  try {
    trace(k => void k.const('u32', 1).add(1.5))
  } catch (caught) {
    error = caught
  }
  expect(error).toBeInstanceOf(KernelError)
  expect((error as Error).message).toBe('kernel probe: 1.5 is not a u32')
  expect((error as Error).stack).toContain('kernel.test.ts')
})

test('storing to an input is refused by name', () => {
  expect(() =>
    kernel({ name: 'probe', target: 'sm_90a', threads: 32, params: { x: input('f32', 'x') } }, (_, { x }) =>
      x.store(0, 1),
    ),
  ).toThrow(/x is an input/)
})

test('block size and name are checked', () => {
  expect(() => kernel({ name: 'probe', target: 'sm_90a', threads: 48, params: {} }, () => {})).toThrow(/multiple of 32/)
  expect(() => kernel({ name: 'a-b', target: 'sm_90a', threads: 32, params: {} }, () => {})).toThrow(/letters, digits/)
})

test('types keep unlike values apart', () => {
  trace(k => {
    const n = k.const('u32', 1)
    const x = k.const('f32', 1)
    expectTypeOf(n.add(1)).toEqualTypeOf<Val<'u32'>>()
    expectTypeOf(x.lt(2)).toEqualTypeOf<Val<'pred'>>()
    // @ts-expect-error u32 and f32 do not mix
    expect(() => n.add(x)).toThrow(/operand b is f32, expected u32/)
    // @ts-expect-error conditions have no arithmetic
    expect(() => x.lt(2).add(1)).toThrow(/no instruction add for pred/)
  })
})

test('parameters arrive as buffers and scalars of their own type', () => {
  kernel(
    {
      name: 'probe',
      target: 'sm_90a',
      threads: 32,
      params: { q: input('bf16', 'q'), out: output('u32', 'out'), n: u32('n') },
    },
    (_, { q, out, n }) => {
      expectTypeOf(q.load(0)).toEqualTypeOf<Val<'f32'>>()
      expectTypeOf(out.load(n)).toEqualTypeOf<Val<'u32'>>()
    },
  )
})
