import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import * as fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { FormatError } from '../errors.ts'
import { parseSafetensors, writeSafetensors } from './safetensors.ts'
import { openSafetensors } from './safetensors-node.ts'
import { tensor, zeros } from './tensor.ts'

const ascii = (text: string): Uint8Array => Uint8Array.from(text, character => character.charCodeAt(0))

/** A file of a header as text and this many data bytes; `length` is what its prefix says. */
function fileOf(header: string | object, dataBytes = 0, length?: bigint): Uint8Array {
  const json = ascii(typeof header === 'string' ? header : JSON.stringify(header))
  const file = new Uint8Array(8 + json.length + dataBytes)
  new DataView(file.buffer).setBigUint64(0, length ?? BigInt(json.length), true)
  file.set(json, 8)
  return file
}

const f32 = (shape: unknown, data_offsets: unknown): object => ({ dtype: 'F32', shape, data_offsets })
const dtypeNames = 'BOOL, U8, I8, F8_E5M2, F8_E4M3, F8_E8M0, I16, U16, F16, BF16, I32, U32, F32, F64, I64, U64'

const refusals: [what: string, file: Uint8Array, message: string][] = [
  ['an empty file', new Uint8Array(), 'file is 0 bytes; expected at least 8 bytes'],
  ['a file shorter than its prefix', new Uint8Array(7), 'file is 7 bytes; expected at least 8 bytes'],
  [
    'a header longer than the file',
    fileOf('{}', 3, 6n),
    'header length is 6 bytes; expected at most 5, the bytes that follow in the file',
  ],
  [
    'a header length near 2^64',
    fileOf('{}', 0, 2n ** 64n - 1n),
    'header length is 18446744073709551615 bytes; expected at most 2, the bytes that follow in the file',
  ],
  ['no header at all', fileOf(''), 'header is empty; expected a JSON object that starts with {'],
  ['a header that is an array', fileOf('[]'), 'header is 0x5b at its start; expected a JSON object that starts with {'],
  [
    'a space before the header',
    fileOf(' {}'),
    'header is 0x20 at its start; expected a JSON object that starts with {',
  ],
  [
    'JSON that does not end',
    fileOf('{"a":'),
    'header is not valid UTF-8 JSON; expected a JSON object that starts with {',
  ],
  ['text after the JSON', fileOf('{}x'), 'header is not valid UTF-8 JSON; expected a JSON object that starts with {'],
  ['bad UTF-8', fileOf('{"\xff":0}'), 'header is not valid UTF-8 JSON; expected a JSON object that starts with {'],
  [
    'a name given twice',
    fileOf('{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}'),
    'key "a" is repeated; expected each key once',
  ],
  ['metadata that is a list', fileOf({ __metadata__: ['x'] }), '__metadata__ is ["x"]; expected an object of strings'],
  ['metadata that is null', fileOf({ __metadata__: null }), '__metadata__ is null; expected an object of strings'],
  [
    'a number as metadata',
    fileOf({ __metadata__: { step: 3 } }),
    '__metadata__ "step" is 3; expected an object of strings',
  ],
  [
    'an entry that is no object',
    fileOf({ a: [1] }),
    'tensor "a" entry is [1]; expected an object of dtype, shape and data_offsets',
  ],
  [
    'no dtype',
    fileOf({ a: { shape: [], data_offsets: [0, 4] } }, 4),
    `tensor "a" dtype is missing; expected one of ${dtypeNames}`,
  ],
  [
    'an unknown dtype',
    fileOf({ a: { dtype: 'F4', shape: [2], data_offsets: [0, 1] } }, 1),
    `tensor "a" dtype is "F4"; expected one of ${dtypeNames}`,
  ],
  [
    'no shape',
    fileOf({ a: f32(undefined, [0, 4]) }, 4),
    'tensor "a" shape is missing; expected an array of non-negative integers',
  ],
  [
    'a negative extent',
    fileOf({ a: f32([-1], [0, 4]) }, 4),
    'tensor "a" shape is [-1]; expected an array of non-negative integers',
  ],
  [
    'a fraction',
    fileOf({ a: f32([0.5], [0, 2]) }, 2),
    'tensor "a" shape is [0.5]; expected an array of non-negative integers',
  ],
  [
    'an extent past 2^53',
    fileOf({ a: f32([2 ** 53], [0, 4]) }, 4),
    'tensor "a" shape is [9007199254740992]; expected an array of non-negative integers',
  ],
  [
    'a shape whose size overflows',
    fileOf({ a: f32([2 ** 40, 2 ** 40], [0, 4]) }, 4),
    'tensor "a" data_offsets is [0, 4]; expected 4.835703278458517e+24 bytes for F32 [1099511627776, 1099511627776]',
  ],
  [
    'no offsets',
    fileOf({ a: f32([1], undefined) }, 4),
    'tensor "a" data_offsets is missing; expected [begin, end] with 0 <= begin <= end',
  ],
  [
    'one offset',
    fileOf({ a: f32([1], [4]) }, 4),
    'tensor "a" data_offsets is [4]; expected [begin, end] with 0 <= begin <= end',
  ],
  [
    'reversed offsets',
    fileOf({ a: f32([1], [4, 0]) }, 4),
    'tensor "a" data_offsets is [4, 0]; expected [begin, end] with 0 <= begin <= end',
  ],
  [
    'a negative offset',
    fileOf({ a: f32([1], [-4, 0]) }, 4),
    'tensor "a" data_offsets is [-4, 0]; expected [begin, end] with 0 <= begin <= end',
  ],
  [
    'an end past the data',
    fileOf({ a: f32([2], [0, 8]) }, 7),
    'tensor "a" data_offsets is [0, 8]; expected an end within the file\'s 7 data bytes',
  ],
  [
    'offsets that do not fit the shape',
    fileOf({ a: f32([3], [0, 8]) }, 8),
    'tensor "a" data_offsets is [0, 8]; expected 12 bytes for F32 [3]',
  ],
  [
    'overlapping tensors',
    fileOf({ b: f32([2], [4, 12]), a: f32([2], [0, 8]) }, 12),
    'tensor "b" data_offsets is [4, 12]; expected begin 8, where tensor "a" ends (tensors may not overlap)',
  ],
  [
    'an empty tensor inside another',
    fileOf({ a: f32([2], [0, 8]), b: f32([0], [4, 4]) }, 8),
    'tensor "b" data_offsets is [4, 4]; expected begin 8, where tensor "a" ends (tensors may not overlap)',
  ],
  [
    'two names for the same data',
    fileOf({ a: f32([1], [0, 4]), b: f32([1], [0, 4]) }, 4),
    'tensor "b" data_offsets is [0, 4]; expected begin 4, where tensor "a" ends (tensors may not overlap)',
  ],
  [
    'a gap before the first tensor',
    fileOf({ a: f32([1], [4, 8]) }, 8),
    'tensor "a" data_offsets is [4, 8]; expected begin 0, where the header ends (every data byte belongs to a tensor)',
  ],
  [
    'a gap between tensors',
    fileOf({ a: f32([1], [0, 4]), b: f32([1], [5, 9]) }, 9),
    'tensor "b" data_offsets is [5, 9]; expected begin 4, where tensor "a" ends (every data byte belongs to a tensor)',
  ],
  ['bytes after the last tensor', fileOf('{}', 2), 'file is 12 bytes; expected 10, where the header ends'],
]

describe('refuses', () => {
  let folder: string
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'safetensors-'))
  })
  afterAll(() => rm(folder, { recursive: true }))

  test.each(refusals)('%s', async (_, bytes, message) => {
    expect(() => parseSafetensors(bytes, 'x.safetensors')).toThrow(FormatError)
    expect(() => parseSafetensors(bytes, 'x.safetensors')).toThrow(`safetensors x.safetensors: ${message}`)
    expect(() => parseSafetensors(bytes)).toThrow(`safetensors: ${message}`)
    const path = join(folder, 'x.safetensors')
    await writeFile(path, bytes)
    await expect(openSafetensors(path)).rejects.toThrow(`safetensors ${path}: ${message}`)
  })

  test('a header over 100 MB', () => {
    expect(() => parseSafetensors(fileOf('{}', 100_000_001, 100_000_001n))).toThrow(
      'safetensors: header length is 100000001 bytes; expected at most 100000000',
    )
  })
})

describe('accepts', () => {
  test('a file without tensors, and padding of any JSON white space', () => {
    expect(parseSafetensors(fileOf('{} \n\t')).names).toEqual([])
  })

  test('names that are special in JavaScript', () => {
    const names = ['__proto__', 'constructor', 'toString', '10', '', 'é\n"']
    const bytes = writeSafetensors(
      names.map((name, i) => [name, tensor('u8', [1], Uint8Array.of(i))]),
      { ['__proto__']: 'x' },
    )
    const file = parseSafetensors(bytes)
    expect(names.map(name => file.get(name).data[0])).toEqual([0, 1, 2, 3, 4, 5])
    expect(file.has('hasOwnProperty')).toBe(false)
    expect(Object.entries(file.metadata)).toEqual([['__proto__', 'x']])
    expect(file.metadata['toString']).toBeUndefined()
  })

  test('tensors whose header order is not their data order, and fields it does not know', () => {
    const file = parseSafetensors(
      fileOf({ b: { ...f32([], [4, 8]), note: 1 }, a: f32([0, 9], [4, 4]), c: f32([1], [0, 4]) }, 8),
    )
    expect(file.names).toEqual(['c', 'a', 'b'])
    expect(file.info('b')).toMatchObject({ dtype: 'f32', shape: [], end: file.info('b').start + 4 })
  })

  test('deep nesting where it is not read', () => {
    const deep = '['.repeat(1e5) + ']'.repeat(1e5)
    expect(
      parseSafetensors(fileOf(`{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"note":${deep}}}`)).names,
    ).toEqual(['a'])
    expect(() => parseSafetensors(fileOf(`{"a":{"dtype":${deep}}}`))).toThrow(FormatError)
  })
})

function expectReadOrRefused(bytes: Uint8Array): void {
  try {
    Array.from(parseSafetensors(bytes))
  } catch (error) {
    expect(error).toBeInstanceOf(FormatError)
  }
}

describe('fuzz: nothing but a FormatError', () => {
  test('from changed bytes of a valid header', () => {
    const valid = writeSafetensors(
      { 'q.weight': zeros('bf16', [2, 3]), scale: zeros('f32', []), none: zeros('i64', [4, 0]) },
      { source: 'fuzz "quoted" \\', step: '3' },
    )
    const headerEnd = 8 + Number(new DataView(valid.buffer).getBigUint64(0, true))
    const position = fc.oneof(fc.nat(7), fc.integer({ min: 8, max: headerEnd - 1 }))
    const byte = fc.oneof(fc.nat(255), fc.constantFrom(...ascii('{}[]",:-.0123456789e\\ ')))
    fc.assert(
      fc.property(fc.array(fc.tuple(position, byte), { minLength: 1, maxLength: 4 }), changes => {
        const bytes = valid.slice()
        for (const [at, value] of changes) bytes[at] = value
        expectReadOrRefused(bytes)
      }),
      { numRuns: 3000 },
    )
  })

  test('from valid JSON of any content', () => {
    const offset = fc.integer({ min: -1, max: 9 })
    const entry = fc.record(
      {
        dtype: fc.oneof(fc.constantFrom('F32', 'U8'), fc.jsonValue()),
        shape: fc.oneof(fc.array(offset), fc.jsonValue()),
        data_offsets: fc.oneof(fc.tuple(offset, offset), fc.jsonValue()),
      },
      { requiredKeys: [] },
    )
    const header = fc.dictionary(fc.string(), fc.oneof(entry, fc.jsonValue()))
    fc.assert(
      fc.property(header, fc.nat(9), (value, dataBytes) => expectReadOrRefused(fileOf(value, dataBytes))),
      { numRuns: 1000 },
    )
  })

  test('from truncation anywhere', () => {
    const valid = writeSafetensors({ a: zeros('f32', [3]), b: zeros('u8', [2]) })
    for (let length = 0; length < valid.length; length++)
      expect(() => parseSafetensors(valid.subarray(0, length))).toThrow(FormatError)
  })
})
