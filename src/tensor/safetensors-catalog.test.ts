import { expect, test } from 'vitest'
import { ValueError } from '../errors.ts'
import { parseSafetensors, writeSafetensors } from './safetensors.ts'
import { zeros } from './tensor.ts'

const scalar = zeros('u8', [])
const layer = ['q_proj', 'k_proj', 'v_proj', 'o_proj'].map(part => `model.layers.0.self_attn.${part}.weight`)
const file = parseSafetensors(writeSafetensors(layer.map(name => [name, scalar])), 'm.st')

test.each([
  ['a slip', 'model.layers.0.self_attn.q_porj.weight', layer[0]],
  ['a missing prefix', 'layers.0.self_attn.v_proj.weight', layer[2]],
  ['an extra prefix', `extra.${layer[1]}`, layer[1]],
  ['a part', 'o_proj', layer[3]],
])('an unknown name with %s: the nearest comes first', (_, name, nearest) => {
  expect(() => file.info(name)).toThrow(ValueError)
  expect(() => file.info(name)).toThrow(
    `safetensors m.st: name is ${name}; expected one of its 4 tensors (did you mean ${nearest}`,
  )
})

test('an unknown name like no other: the first names', () => {
  expect(() => file.info('embedding')).toThrow(`(the first are ${layer.toSorted().slice(0, 3).join(', ')})`)
})

test('any name in a file without tensors', () => {
  expect(() => parseSafetensors(writeSafetensors([])).info('a')).toThrow(
    'safetensors: name is a; expected one of its 0 tensors',
  )
})

test('info says what a tensor is and where it lies in the file', () => {
  const bytes = writeSafetensors({ a: zeros('bf16', [2, 3]), b: zeros('u8', [5]) })
  const place = { start: bytes.length - 17, end: bytes.length - 5 }
  expect(parseSafetensors(bytes).info('a')).toEqual({ name: 'a', dtype: 'bf16', shape: [2, 3], ...place })
})
