import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { ints } from '../src/conformance/data.ts'
import { type CpuDevice, openCpuDevice } from '../src/cpu/device.ts'
import type { Dtype } from '../src/dtypes/dtype.ts'
import { sparseDecode } from '../src/ops/sparse-decode.ts'
import { sparsePrefill } from '../src/ops/sparse-prefill.ts'
import type { LatentPool } from '../src/tensor/cache-pool.ts'
import { openSafetensors, type SafetensorsReader } from '../src/tensor/safetensors-node.ts'
import { logical, slots } from '../src/tensor/spaces.ts'
import type { Tensor } from '../src/tensor/tensor.ts'
import { expectGate, flashMlaDecode, flashMlaLse, flashMlaPrefill } from './gates.ts'
import { expectSame, run } from './latent-cases.ts'

let device: CpuDevice
let file: SafetensorsReader
beforeAll(async () => {
  device = await openCpuDevice({ threads: 2 })
  file = await openSafetensors(new URL('golden/flashmla.safetensors', import.meta.url).pathname)
})
afterAll(async () => {
  await device.dispose()
  await file.close()
})

/** A tensor of a case, undefined where the case has none. */
const optional = async <D extends Dtype>(name: string, dtype: D): Promise<Tensor<D> | undefined> =>
  file.names.includes(name) ? file.get(name, dtype) : undefined

/** FlashMLA marks a row without keys by +inf. */
const withOurMark = (t: Tensor<'f32'>): Float32Array => t.floats().map(x => (x === Infinity ? -Infinity : x))

const scaleOf = (name: string): number =>
  Number(new RegExp(`${name}\\.sm_scale=([^;]+)`).exec(file.metadata.cases ?? '')?.[1])

describe.each(['prefill0', 'prefill1', 'prefill2', 'prefill3'])('flash_mla_sparse_fwd, %s', name => {
  test.each(['one row a page', 'one page'])('%s', async paging => {
    const kv = await file.get(`${name}.kv`, 'bf16')
    const [rows, width] = kv.shape as [number, number]
    const values = kv.reshape(paging === 'one page' ? [1, 1, rows, width] : [rows, 1, 1, width])
    const { out, lse, maxLogits } = await run(device, sparsePrefill, {
      q: await file.get(`${name}.q`, 'bf16'),
      cache: { format: 'plain', values, scaleBlock: 0, layer: 0 },
      indices: slots(await file.get(`${name}.indices`, 'i32')),
      topkLength: await optional(`${name}.topk_length`, 'i32'),
      sink: await optional(`${name}.attn_sink`, 'f32'),
      scale: scaleOf(name),
    })
    expectGate(flashMlaPrefill(out, (await file.get(`${name}.out`, 'bf16')).floats()))
    expectGate(flashMlaLse(lse, withOurMark(await file.get(`${name}.lse`, 'f32'))))
    expectGate(flashMlaLse(maxLogits, (await file.get(`${name}.max_logits`, 'f32')).floats()))
  })
})

describe.each(['decode0', 'decode1'])('flash_mla_with_kvcache, %s', name => {
  const load = async () => {
    const bytes = await file.get(`${name}.kv_bytes`, 'u8')
    const [blocks, pageSize, , rowBytes] = bytes.shape as [number, number, number, number]
    const values = bytes.reshape([blocks, 1, pageSize, rowBytes])
    const cache: LatentPool = { format: 'packed656', values, scaleBlock: 128, layer: 0 }
    return {
      q: await file.get(`${name}.q`, 'bf16'),
      cache,
      indices: slots(await file.get(`${name}.indices_in_cache`, 'i32')),
      sink: await optional(`${name}.attn_sink`, 'f32'),
      scale: scaleOf(name),
    }
  }

  test.each([false, true])('batchInvariant: %s', async batchInvariant => {
    const args = await load()
    const [batch, queries, heads] = args.q.shape as [number, number, number]
    const { out, lse } = await run(device, sparseDecode, { ...args, batchInvariant })
    expectGate(flashMlaDecode(out, (await file.get(`${name}.out`, 'bf16')).floats()))
    const transposed = withOurMark(await file.get(`${name}.lse`, 'f32'))
    const expected = Float64Array.from(lse.floats(), (_, i) => {
      const [b, query, h] = [Math.floor(i / (queries * heads)), Math.floor(i / heads) % queries, i % heads]
      return transposed[(b * heads + h) * queries + query]!
    })
    expect(expected).toHaveLength(batch * queries * heads)
    expectGate(flashMlaLse(lse, expected))
  })

  test('the logical indices that the slots come from let every entry count', async () => {
    const args = await load()
    const lengths = (await file.get(`${name}.cache_seqlens`, 'i32')).codes()
    const last = Array.from(lengths, length => Math.max(0, length - 1)) // every entry is a key of its sequence
    const positions = {
      logicalIndices: logical(await file.get(`${name}.logical_indices`, 'i32')),
      cacheLength: ints('u32', [last.length], last),
    }
    expectSame(await run(device, sparseDecode, { ...args, ...positions }), await run(device, sparseDecode, args))
  })
})
