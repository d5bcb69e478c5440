import { readFileSync } from 'node:fs'
import { describe, expect, expectTypeOf, test } from 'vitest'
import { type Dtype, dtypeInfo } from '../dtypes/dtype.ts'
import { DtypeError, ValueError } from '../errors.ts'
import { parseSafetensors, writeSafetensors } from './safetensors.ts'
import { fromFloats, type Tensor, tensor, zeros } from './tensor.ts'

const dtypes = Object.keys(dtypeInfo) as Dtype[]

/** [2, 3] elements of any dtype whose bytes are all different. */
function sample<D extends Dtype>(dtype: D): Tensor<D> {
  const bytes = Uint8Array.from({ length: 6 * dtypeInfo[dtype].bytes }, (_, i) => i + 1)
  return tensor(dtype, [2, 3], new dtypeInfo[dtype].storage(bytes.buffer))
}

const text = (bytes: Uint8Array): string => new TextDecoder().decode(bytes)

describe('round trip', () => {
  test.each(dtypes)('%s', dtype => {
    const source = sample(dtype)
    const file = parseSafetensors(writeSafetensors({ a: source, b: zeros(dtype, [0, 4]), c: zeros(dtype, []) }))
    expect(file.get('a')).toEqual(source)
    expect(file.get('b')).toEqual(zeros(dtype, [0, 4]))
    expect(file.get('c').shape).toEqual([])
  })

  test('all dtypes together, metadata, and the file as the source of another', () => {
    const bytes = writeSafetensors(
      dtypes.map(dtype => [dtype, sample(dtype)]),
      { format: 'pt', note: 'ü' },
    )
    const file = parseSafetensors(bytes)
    expect({ ...file.metadata }).toEqual({ format: 'pt', note: 'ü' })
    expect(Object.fromEntries(file)).toEqual(Object.fromEntries(dtypes.map(dtype => [dtype, sample(dtype)])))
    expect(writeSafetensors(file, file.metadata)).toEqual(bytes)
  })

  test('a strided view is stored densely', () => {
    const columns = fromFloats('f32', [2, 3], [1, 2, 3, 4, 5, 6]).narrow(1, 1, 2)
    expect([...parseSafetensors(writeSafetensors({ columns })).get('columns').floats()]).toEqual([2, 3, 5, 6])
  })
})

describe('memory', () => {
  const bytes = writeSafetensors(dtypes.map(dtype => [dtype, sample(dtype)]))

  test('a file at an 8-byte boundary is not copied', () => {
    for (const [, { data }] of parseSafetensors(bytes)) expect(data.buffer).toBe(bytes.buffer)
  })

  test('at an odd address, as in a pooled Buffer, only what needs alignment is copied', () => {
    const odd = new Uint8Array(new ArrayBuffer(bytes.length + 1), 1)
    odd.set(bytes)
    for (const [name, found] of parseSafetensors(odd)) {
      const { bytes: width } = dtypeInfo[found.dtype]
      expect(found.data.buffer === odd.buffer).toBe(width === 1)
      expect(found.codes()).toEqual(sample(name as Dtype).data)
    }
  })
})

describe('get with a dtype', () => {
  const file = parseSafetensors(writeSafetensors({ q: zeros('bf16', [2]) }), 'm.st')

  test('gives the tensor its type', () => {
    expectTypeOf(file.get('q', 'bf16')).toEqualTypeOf<Tensor<'bf16'>>()
    expectTypeOf(file.get('q')).toEqualTypeOf<Tensor>()
    expect(file.get('q', 'bf16').dtype).toBe('bf16')
  })

  test('refuses another', () => {
    expect(() => file.get('q', 'f32')).toThrow(DtypeError)
    expect(() => file.get('q', 'f32')).toThrow('safetensors m.st: tensor q is bf16; expected f32')
  })
})

describe('writeSafetensors', () => {
  test('writes what the reference implementation writes for its own test tensor', () => {
    const bytes = writeSafetensors({ attn0: tensor('f32', [1, 1, 2, 3], Float32Array.of(0, 1, 2, 3, 4, 5)) })
    expect([...bytes.subarray(0, 8)]).toEqual([72, 0, 0, 0, 0, 0, 0, 0])
    expect(text(bytes.subarray(8, 80))).toBe('{"attn0":{"dtype":"F32","shape":[1,1,2,3],"data_offsets":[0,24]}}       ')
    expect(bytes.length).toBe(80 + 24)
  })

  test('no tensors', () => expect(text(writeSafetensors({}).subarray(8))).toBe('{}      '))

  test('puts wide dtypes first, then goes by name, metadata before all, numeric names in their place', () => {
    const bytes = writeSafetensors(
      { 2: zeros('u8', [1]), b: zeros('f32', [1]), a: zeros('f32', [1]), 10: zeros('i64', [1]) },
      { k: 'v' },
    )
    expect(text(bytes).match(/"\w+"(?=:\{)/g)).toEqual(['"__metadata__"', '"10"', '"a"', '"b"', '"2"'])
  })

  test.each<[string, () => unknown, string]>([
    [
      'a name twice',
      () =>
        writeSafetensors([
          ['a', zeros('u8', [1])],
          ['a', zeros('f32', [1])],
        ]),
      'writeSafetensors: name is a; expected each name once',
    ],
    [
      'the reserved name',
      () => writeSafetensors({ __metadata__: zeros('u8', [1]) }),
      'writeSafetensors: name is __metadata__; expected a name that is not reserved',
    ],
    [
      'metadata that is not text',
      () => writeSafetensors({}, { step: 3 as unknown as string }),
      'writeSafetensors: metadata.step is 3; expected a string',
    ],
    [
      'a header that no reader takes',
      () => writeSafetensors({}, { long: 'x'.repeat(100_000_000) }),
      'writeSafetensors: header is 100000032 bytes; expected at most 100000000',
    ],
  ])('refuses %s', (_, write, message) => {
    expect(write).toThrow(ValueError)
    expect(write).toThrow(message)
  })
})

const golden = (name: string): Uint8Array => readFileSync(new URL(`../../test/golden/${name}`, import.meta.url))

describe('golden files', () => {
  test.each(['hf_dsv32_layer', 'flashmla', 'deepgemm_mqa_logits'])(
    '%s is read, and written again byte for byte',
    name => {
      const bytes = golden(`${name}.safetensors`)
      const file = parseSafetensors(bytes, name)
      expect(Buffer.compare(writeSafetensors(file, file.metadata), bytes)).toBe(0)
    },
  )

  test('values, shapes and notes of the DeepSeek-V3.2 layer', () => {
    const file = parseSafetensors(golden('hf_dsv32_layer.safetensors'))
    expect(file.metadata).toMatchObject({ heads: '16', index_heads: '32', seq: '160' })
    expect(file.get('context', 'f32').shape).toEqual([160, 16, 128])
    expect(file.get('w.indexer.k_norm.weight', 'bf16').size).toBe(128)
    expect(file.get('cos', 'f32').data.subarray(0, 64)).toEqual(new Float32Array(64).fill(1))
    expect(Math.max(...file.get('topk', 'i32').data)).toBe(159)
  })
})
