import { afterAll, expect, test } from 'vitest'
import { smallConfig } from '../../test/dsa-layer.ts'
import { openCpuDevice } from '../cpu/device.ts'
import { openCudaDevice } from '../cuda/device.ts'
import { FakeDriver } from '../cuda/fake-driver.ts'
import type { Device } from '../device.ts'
import { dsaStages } from '../model/step-args.ts'
import { SimDevice } from '../sim/device.ts'
import { type PipelineCase, pipelineFlops, pipelineRunner, randomWeights, weightBytes } from './pipeline.ts'

const cpu = await openCpuDevice({ threads: 1 })
afterAll(() => cpu.dispose())

const config = { ...smallConfig, hidden: 64, heads: 2, qLoraRank: 32, nope: 16, v: 16, indexHeads: 2 }
const decode: PipelineCase = { config, sequences: 2, queries: 1, keys: 70, latent: 'packed656', index: 'fp8' }

async function runs(device: Device, one: PipelineCase): Promise<void> {
  const runner = pipelineRunner(device, one)
  expect(await runner.sample()).toBeGreaterThan(0)
  expect((await runner.stages!()).map(({ name }) => name)).toEqual([...dsaStages])
  runner[Symbol.dispose]()
  await device.sync()
}

test('a step and its stages on the cpu, and nothing stays behind', async () => {
  await runs(cpu, decode)
  await runs(cpu, { ...decode, sequences: 1, queries: 9, latent: 'bf16' })
  expect(cpu.bytesInUse).toBe(0)
})

test('on the simulator', async () => {
  const runner = pipelineRunner(new SimDevice('sm_90a'), { ...decode, sequences: 1, keys: 9, index: 'bf16' })
  expect(await runner.sample()).toBeGreaterThan(0)
})

test('recorded on a card: as many kernels for the stages together as for the whole', async () => {
  const driver = new FakeDriver()
  await using device = await openCudaDevice(0, { driver })
  const runner = pipelineRunner(device, decode)
  await runner.sample()
  const graphs = driver.count('cuGraphInstantiateWithFlags')
  expect((await runner.stages!()).map(({ name }) => name)).toEqual([...dsaStages])
  expect(driver.count('cuGraphInstantiateWithFlags') - graphs).toBe(dsaStages.length)
  expect(await runner.hostMicroseconds!()).toBeGreaterThan(0)
  runner[Symbol.dispose]()
  await device.sync()
  expect(device.bytesInUse).toBe(0)
})

test('operations and bytes', () => {
  const weights = Object.values(randomWeights(config)).flatMap(part =>
    'weight' in part ? [part.weight.size] : [part.size],
  )
  const norms = config.qLoraRank + config.kvLoraRank + config.indexDim
  const parameters = weights.reduce((a, b) => a + b) - norms
  expect(weightBytes(config)).toBe(2 * parameters)
  const one = { ...decode, sequences: 1, keys: 1 }
  const attended = 2 * config.heads * (2 * 512 + 64)
  expect(pipelineFlops(one)).toBe(2 * parameters + 2 * config.indexHeads * config.indexDim + attended)
})
