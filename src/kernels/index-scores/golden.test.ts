import { afterAll, describe, expect, test } from 'vitest'
import { deepGemmLogits, expectGate, indexScoresF32 } from '../../../test/gates.ts'
import { expectScores, pageKeys, scoresOf, u32 } from '../../../test/index-cases.ts'
import { openCpuDevice } from '../../cpu/device.ts'
import { openSafetensors } from '../../tensor/safetensors-node.ts'
import { type Tensor, tensor } from '../../tensor/tensor.ts'

const device = await openCpuDevice({ threads: 2 })
const file = await openSafetensors('test/golden/deepgemm_mqa_logits.safetensors')
afterAll(() => Promise.all([device.dispose(), file.close()]))

/** Arguments of a DeepGEMM call, and its logits. */
async function golden(name: string) {
  const [q, k] = await Promise.all([file.get(`${name}.q`, 'u8'), file.get(`${name}.k`, 'u8')])
  const codes = (t: Tensor<'u8'>): Tensor<'e4m3'> => tensor('e4m3', t.shape, t.codes())
  const keys = { values: codes(k), scales: await file.get(`${name}.k_scale`, 'f32') }
  const window = { lo: await file.get(`${name}.ks`, 'i32'), hi: await file.get(`${name}.ke`, 'i32') }
  const args = { q: codes(q), qScale: await file.get(`${name}.weights`, 'f32'), keys, window }
  return { args, logits: await file.get(`${name}.logits`, 'f32') }
}

describe.each([
  ['mqa0', 24, 256, 64],
  ['mqa1', 16, 384, 32],
] as const)("DeepGEMM's %s", (name, tokens, count, heads) => {
  test(`${tokens} tokens, ${count} keys, ${heads} heads`, async () => {
    const { args, logits } = await golden(name)
    expect(args.q.shape).toEqual([tokens, heads, 128])
    const scores = await expectScores(device, args)
    expect(scores.shape).toEqual([tokens, count])
    expectGate(deepGemmLogits(scores, logits.floats()))
  })

  test('the same from a pool of planar blocks', async () => {
    const { args, logits } = await golden(name)
    const paged = pageKeys(args.keys, { pageSize: 64, lengths: [count], format: 'planar' })
    const keys = { ...paged, cacheLength: u32(count), lengthsIncludeNew: true }
    expectGate(deepGemmLogits(await scoresOf(device, { ...args, keys }, count), logits.floats()))
  })

  test('our gate would see a wrong weight', async () => {
    const { args, logits } = await golden(name)
    args.qScale.data[3 * heads + 5]! *= 1.5
    const scores = await scoresOf(device, args, count)
    expect(indexScoresF32(scores, Float64Array.from(logits.floats())).ok).toBe(false)
  })
})
