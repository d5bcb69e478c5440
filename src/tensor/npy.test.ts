import * as fc from 'fast-check'
import { describe, expect, expectTypeOf, test } from 'vitest'
import { type Dtype, dtypeInfo } from '../dtypes/dtype.ts'
import { DtypeError, FormatError, ShapeError } from '../errors.ts'
import { parseNpy, writeNpy } from './npy.ts'
import { fromFloats, type Tensor, tensor, zeros } from './tensor.ts'

const latin1 = (text: string): Uint8Array => Uint8Array.from(text, character => character.charCodeAt(0))

/** A file with this header text, in version 1.0. */
const fileOf = (header: string, data = ''): Uint8Array =>
  latin1(`\x93NUMPY\x01\x00${String.fromCharCode(header.length & 255, header.length >> 8)}${header}${data}`)

const headerOf = (descr: string, shape: string, fortranOrder = 'False'): string =>
  `{'descr': ${descr}, 'fortran_order': ${fortranOrder}, 'shape': ${shape}, }`

describe('round trip', () => {
  test.each(Object.keys(dtypeInfo) as Dtype[])('%s', dtype => {
    const bytes = Uint8Array.from({ length: 6 * dtypeInfo[dtype].bytes }, (_, i) => i + 1)
    const source = tensor(dtype, [2, 3], new dtypeInfo[dtype].storage(bytes.buffer))
    expect(parseNpy(writeNpy(source), { as: dtype })).toEqual(source)
  })

  test.each([[[]], [[0]], [[5]], [[2, 0, 3]], [[1, 2, 3, 4]]])('shape [%s]', shape => {
    expect(parseNpy(writeNpy(zeros('i16', shape)))).toEqual(zeros('i16', shape))
  })

  test('a strided view is stored densely', () => {
    const columns = fromFloats('f32', [2, 3], [1, 2, 3, 4, 5, 6]).narrow(1, 1, 2)
    expect([...parseNpy(writeNpy(columns)).floats()]).toEqual([2, 3, 5, 6])
  })
})

describe('files by NumPy 2.4.6', () => {
  // np.save of [[1, 2, 3], [4, 5, 6]] as float32
  const rows = `{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }${' '.repeat(58)}\n`
  const data = '\x00\x00\x80?\x00\x00\x00@\x00\x00@@\x00\x00\x80@\x00\x00\xa0@\x00\x00\xc0@'
  const saved = latin1(`\x93NUMPY\x01\x00v\x00${rows}${data}`)

  test('are read without a copy, and written byte for byte', () => {
    const found = parseNpy(saved)
    expect(found).toEqual(fromFloats('f32', [2, 3], [1, 2, 3, 4, 5, 6]))
    expect(found.data.buffer).toBe(saved.buffer)
    expect(writeNpy(found)).toEqual(saved)
  })

  test('are copied at an odd address', () => {
    const odd = new Uint8Array(new ArrayBuffer(saved.length + 1), 1)
    odd.set(saved)
    expect(parseNpy(odd)).toEqual(parseNpy(saved))
  })

  test.each([2, 3])('version %i.0', major => {
    const header = `{'descr': '<i4', 'fortran_order': False, 'shape': (1, 2), }${' '.repeat(56)}\n`
    const file = latin1(
      `\x93NUMPY${String.fromCharCode(major)}\x00t\x00\x00\x00${header}\x01\x00\x00\x00\xfe\xff\xff\xff`,
    )
    expect(parseNpy(file)).toEqual(tensor('i32', [1, 2], Int32Array.of(1, -2)))
  })

  test('in Fortran order become row-major', () => {
    const transposed = fileOf(headerOf("'<i2'", '(2, 3)', 'True'), '\x01\x00\x04\x00\x02\x00\x05\x00\x03\x00\x06\x00')
    expect(parseNpy(transposed)).toEqual(tensor('i16', [2, 3], Int16Array.of(1, 2, 3, 4, 5, 6)))
  })

  test('in Fortran order with three axes, 64-bit elements, and none', () => {
    const columnMajor = new BigInt64Array(24)
    const rowMajor = new BigInt64Array(24)
    for (let i = 0; i < 2; i++)
      for (let j = 0; j < 3; j++)
        for (let k = 0; k < 4; k++) {
          const element = BigInt(100 * i + 10 * j + k)
          columnMajor[i + 2 * (j + 3 * k)] = element
          rowMajor[(i * 3 + j) * 4 + k] = element
        }
    const bytes = String.fromCharCode(...new Uint8Array(columnMajor.buffer))
    const header = headerOf("'<i8'", '(2, 3, 4)', 'True')
    expect(parseNpy(fileOf(header, bytes))).toEqual(tensor('i64', [2, 3, 4], rowMajor))
    expect(parseNpy(fileOf(headerOf("'<i8'", '(0, 3)', 'True')))).toEqual(zeros('i64', [0, 3]))
  })

  test('other spellings: keys in any order, double quotes, a one-byte type behind <', () => {
    const header = `{"shape": (2,), "descr": "<u1", "fortran_order": False}\n`
    expect(parseNpy(fileOf(header, '\x07\x08'))).toEqual(tensor('u8', [2], Uint8Array.of(7, 8)))
  })
})

describe('codes', () => {
  const written = writeNpy(fromFloats('bf16', [2], [1, 2]))

  test('bf16 comes back as u16, or as itself when asked for', () => {
    expect(parseNpy(written)).toEqual(tensor('u16', [2], Uint16Array.of(0x3f80, 0x4000)))
    expect([...parseNpy(written, { as: 'bf16' }).floats()]).toEqual([1, 2])
    expectTypeOf(parseNpy(written, { as: 'bf16' })).toEqualTypeOf<Tensor<'bf16'>>()
    expectTypeOf(parseNpy(written)).toEqualTypeOf<Tensor>()
  })

  test.each([
    ['|V2', '(1,)', '\x80\x3f', 'bf16', 1],
    ['<V2', '(1,)', '\x80\x3f', 'bf16', 1],
    ['<f1', '(1,)', '\x3c', 'e5m2', 1],
    ['|V1', '(1,)', '\x38', 'e4m3', 1],
  ] as const)('the %s of ml_dtypes needs `as`', (descr, shape, data, as, value) => {
    const file = fileOf(headerOf(`'${descr}'`, shape), data)
    expect([...parseNpy(file, { as }).floats()]).toEqual([value])
    expect(() => parseNpy(file)).toThrow(
      `npy: descr is "${descr}"; expected one of f4 f8 f2 i1 i2 i4 i8 u1 u2 u4 u8 b1 behind < or | (for codes of bf16`,
    )
  })

  test.each([
    ['f32', 'bf16', 'f32'],
    ['f16', 'bf16', 'f16'],
    ['u16', 'e4m3', 'u16'],
    ['u32', 'f32', 'u32'],
  ] as const)('%s cannot be taken as %s', (stored, as, codes) => {
    const file = writeNpy(zeros(stored, [4]))
    expect(() => parseNpy(file, { as })).toThrow(DtypeError)
    expect(() => parseNpy(file, { as, name: 'x.npy' })).toThrow(
      `npy x.npy: as is ${as}; expected a dtype whose codes are ${codes}`,
    )
  })
})

const layout = "a Python dict of exactly 'descr', 'fortran_order' and 'shape'"
const ok = headerOf("'<f4'", '(2,)')
const refusals: [what: string, file: Uint8Array, message: string][] = [
  ['an empty file', new Uint8Array(), 'file is of another format; expected the start \\x93NUMPY'],
  ['another format', latin1('PK\x03\x04zip archive'), 'file is of another format; expected the start \\x93NUMPY'],
  ['a file that ends after the magic', latin1('\x93NUMPY'), 'file is 6 bytes; expected at least 12 bytes'],
  ['version 4.0', latin1('\x93NUMPY\x04\x00\x02\x00\x00\x00{}'), 'version is 4.0; expected 1.0, 2.0 or 3.0'],
  ['version 1.1', latin1('\x93NUMPY\x01\x01\x02\x00{}'), 'version is 1.1; expected 1.0, 2.0 or 3.0'],
  [
    'a file without header length',
    latin1('\x93NUMPY\x02\x00\x01\x00\x00'),
    'file is 11 bytes; expected at least 12 bytes',
  ],
  [
    'a header longer than the file',
    latin1('\x93NUMPY\x02\x00\xff\xff\xff\xff{}'),
    'header length is 4294967295; expected at most 2, the bytes that follow in the file',
  ],
  ['a header over 10 kB', fileOf(ok.padEnd(10_001), '\0'.repeat(8)), 'header length is 10001; expected at most 10000'],
  ['a header that is no literal', fileOf('{oops'), `header is "{oops"; expected ${layout}`],
  ['a header that is no dict', fileOf("('<f4', (2,))"), `header is "('<f4', (2,))"; expected ${layout}`],
  ['a missing key', fileOf("{'descr': '<f4', 'shape': (2,), }"), `expected ${layout}`],
  ['an extra key', fileOf(ok.replace('}', "'x': 1}")), `expected ${layout}`],
  ['an order that is no bool', fileOf(headerOf("'<f4'", '(2,)', '0')), 'fortran_order is 0; expected True or False'],
  ['a shape that is no tuple', fileOf(headerOf("'<f4'", '2')), 'shape is 2; expected a tuple of non-negative integers'],
  ['a negative extent', fileOf(headerOf("'<f4'", '(-2,)')), 'shape is [-2]; expected a tuple of non-negative integers'],
  ['a fraction', fileOf(headerOf("'<f4'", '(2.5,)')), 'shape is [2.5]; expected a tuple of non-negative integers'],
  ['big-endian elements', fileOf(headerOf("'>f4'", '(2,)')), 'descr is ">f4"; expected one of f4'],
  ['complex elements', fileOf(headerOf("'<c8'", '(2,)')), 'descr is "<c8"; expected one of f4'],
  ['structured elements', fileOf(headerOf("[('x', '<f4')]", '(2,)')), 'descr is [an array]; expected one of f4'],
  ['too little data', fileOf(ok, '1234567'), 'data is 7 bytes; expected 8 for f32 [2]'],
  ['too much data', fileOf(ok, '123456789'), 'data is 9 bytes; expected 8 for f32 [2]'],
  [
    'a shape whose size overflows',
    fileOf(headerOf("'|u1'", '(9007199254740991, 4)'), '1'),
    'data is 1 bytes; expected 36028797018963964 for u8 [9007199254740991, 4]',
  ],
]

describe('refuses', () => {
  test.each(refusals)('%s', (_, bytes, message) => {
    expect(() => parseNpy(bytes, { name: 'x.npy' })).toThrow(FormatError)
    expect(() => parseNpy(bytes, { name: 'x.npy' })).toThrow(/^npy x\.npy: /)
    expect(() => parseNpy(bytes)).toThrow(message)
  })

  test('to write more axes than NumPy reads', () => {
    expect(() => writeNpy(zeros('u8', Array<number>(65).fill(1)))).toThrow(ShapeError)
    expect(parseNpy(writeNpy(zeros('u8', Array<number>(64).fill(1)))).shape).toHaveLength(64)
  })
})

test('fuzz: changed header bytes give a tensor or a FormatError', () => {
  const valid = writeNpy(zeros('f32', [3, 2]))
  const byte = fc.oneof(fc.nat(255), fc.constantFrom(...latin1('{}()[]\'",:-.<|>0123456789eTrueFalsV ')))
  fc.assert(
    fc.property(fc.array(fc.tuple(fc.nat(80), byte), { minLength: 1, maxLength: 4 }), changes => {
      const bytes = valid.slice()
      for (const [at, value] of changes) bytes[at] = value
      try {
        parseNpy(bytes)
      } catch (error) {
        expect(error).toBeInstanceOf(FormatError)
      }
    }),
    { numRuns: 3000 },
  )
})
