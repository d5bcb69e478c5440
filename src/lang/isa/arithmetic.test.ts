import { expect, test } from 'vitest'
import { binary } from './arithmetic.ts'

test('sums and products of f32 say how they round, so that no assembler fuses them', () => {
  const spelled = ['add', 'sub', 'mul'].map(name => binary[`${name}.f32`]!.ptx)
  expect(spelled).toEqual(['add.rn.f32 {d}, {a}, {b};', 'sub.rn.f32 {d}, {a}, {b};', 'mul.rn.f32 {d}, {a}, {b};'])
  expect(binary['add.u32']!.ptx).toBe('add.u32 {d}, {a}, {b};')
})
