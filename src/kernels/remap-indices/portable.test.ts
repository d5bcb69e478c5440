import { afterAll, expect, test } from 'vitest'
import { countPoison, expectGate, poisoned, sameBits } from '../../../test/gates.ts'
import { assembles } from '../../../test/gpu-cases.ts'
import { u32 } from '../../../test/index-cases.ts'
import { seeded } from '../../../test/random.ts'
import { type RemapIndicesArgs, remapIndices } from '../../ops/remap-indices.ts'
import { SimDevice } from '../../sim/device.ts'
import { logical } from '../../tensor/spaces.ts'
import { type Tensor, tensor } from '../../tensor/tensor.ts'
import { remapIndicesReference } from './reference.ts'

const device = new SimDevice('sm_90a')
afterAll(() => device.dispose())

const table = (rows: number[][]): Tensor<'u32'> =>
  tensor('u32', [rows.length, rows[0]!.length], Uint32Array.from(rows.flat()))
const list = (rows: number[][]): Tensor<'i32'> =>
  tensor('i32', [rows.length, rows[0]!.length], Int32Array.from(rows.flat()))

async function remapped(args: RemapIndicesArgs): Promise<Tensor<'i32'>> {
  const into = device.upload(poisoned('i32', args.indices.shape))
  const host = await remapIndices(device, { ...args, into: { indices: into } }).indices.read()
  expect(countPoison(host)).toBe(0)
  expectGate(sameBits(host, remapIndicesReference(args)))
  return host
}

test('block * pageSize + offset, -1 where there is no page or no block', async () => {
  const indices = logical(list([[0, 3, 4, 11, 12, 7, -1, -(2 ** 31), 2 ** 31 - 1, 5]]))
  await remapped({ indices, slots: { blockTable: table([[5, 2, 0xffffffff]]), pageSize: 4, blocks: 6 } })
  await remapped({ indices, slots: { blockTable: table([[0, 1, 1]]), pageSize: 2 ** 30, blocks: 2 } })
})

test('rows of several sequences, ragged and padded; rows of none', async () => {
  const slots = { blockTable: table([[0], [1], [2]]), pageSize: 8, blocks: 3 }
  const indices = logical(list(Array.from({ length: 6 }, (_, t) => [t, 7])))
  const ragged = await remapped({ indices, slots, rowOffsets: u32(0, 2, 2, 6) })
  expect(Array.from(ragged.codes())).toEqual([0, 7, 1, 7, 18, 23, 19, 23, 20, 23, 21, 23])
  const padded = await remapped({ indices, slots, validLength: u32(2, 0, 1) })
  expect(Array.from(padded.codes())).toEqual([0, 7, 1, 7, -1, -1, -1, -1, 20, 23, -1, -1])
})

test('random tables and lists, empty ones among them', async () => {
  for (let seed = 0; seed < 12; seed++) {
    const { int } = seeded(seed)
    const [batch, maxPages, pageSize, blocks, topk] = [1 + int(3), int(5), 1 + int(9), int(9), int(9)]
    const offsets = [0]
    for (let b = 0; b < batch; b++) offsets.push(offsets.at(-1)! + int(4))
    const tokens = offsets.at(-1)!
    const entries = Int32Array.from({ length: tokens * topk }, () => int(maxPages * pageSize + 8) - 3)
    const blockTable = Uint32Array.from({ length: batch * maxPages }, () => int(blocks + 3))
    await remapped({
      indices: logical(tensor('i32', [tokens, topk], entries)),
      slots: { blockTable: tensor('u32', [batch, maxPages], blockTable), pageSize, blocks },
      rowOffsets: u32(...offsets),
    })
  }
})

assembles({
  remap: d =>
    remapIndices.plan(d, {
      indices: logical(list([[0]])),
      slots: { blockTable: table([[0]]), pageSize: 1, blocks: 1 },
    }),
})
