/**
 * Attention of FlashMLA: `prefill<n>.{q,kv,indices,out,max_logits,lse}` with optional `attn_sink` and `topk_length`;
 * `decode<n>.{q,kv_bytes,block_table,indices_in_cache,logical_indices,out,lse}`. The softmax scale of each is in the
 * metadata. Its lse of a row without a valid key is +inf where ours is -inf.
 */

import { FormatError } from '../errors.ts'
import { remapIndices } from '../ops/remap-indices.ts'
import { sparseDecode } from '../ops/sparse-decode.ts'
import { sparsePrefill } from '../ops/sparse-prefill.ts'
import type { LatentPool } from '../tensor/cache-pool.ts'
import type { SafetensorsFile } from '../tensor/safetensors.ts'
import { logical, slots } from '../tensor/spaces.ts'
import { type Tensor, tensor } from '../tensor/tensor.ts'
import { type ConformanceCase, judge } from './case.ts'
import { collect, poisonedOutputs } from './data.ts'
import { sameBits } from './gates.ts'
import { caseNames, type GoldenFormat } from './golden-format.ts'
import { callLatent } from './latent.ts'
import { flashMlaDecode, flashMlaLse, flashMlaPrefill } from './peer-gates.ts'

export const flashMlaCases: GoldenFormat = file => {
  const prefills = caseNames(file, /^prefill\d+\.q$/)
  const decodes = caseNames(file, /^decode\d+\.q$/)
  if (prefills.length + decodes.length === 0) return undefined
  return [...prefills.map(name => prefillCase(file, name)), ...decodes.flatMap(name => decodeCases(file, name))]
}

function prefillCase(file: SafetensorsFile, name: string): ConformanceCase {
  const scale = softmaxScale(file, name)
  const [q, kv] = [file.get(`${name}.q`, 'bf16'), file.get(`${name}.kv`, 'bf16')]
  const indices = slots(file.get(`${name}.indices`, 'i32'))
  const sink = optional(file, `${name}.attn_sink`, 'f32')
  const topkLength = optional(file, `${name}.topk_length`, 'i32')
  const out = file.get(`${name}.out`, 'bf16')
  const lse = file.get(`${name}.lse`, 'f32')
  const maxLogits = file.get(`${name}.max_logits`, 'f32')
  const values = kv.reshape([1, 1, ...kv.shape])
  const cache: LatentPool = { format: 'plain', values, scaleBlock: 0, layer: 0 }
  return {
    op: 'sparsePrefill',
    name,
    async run(device) {
      const actual = await callLatent(device, sparsePrefill, {
        q,
        cache,
        indices,
        scale,
        ...given({ sink, topkLength }),
      })
      return judge(
        flashMlaPrefill(actual.out, out.floats()),
        flashMlaLse(actual.lse, lse.data.map(emptyAsOurs)),
        flashMlaLse(
          actual.maxLogits,
          maxLogits.data.map((x, i) => (lse.data[i] === Infinity ? -Infinity : x)),
        ),
      )
    },
  }
}

function decodeCases(file: SafetensorsFile, name: string): ConformanceCase[] {
  const bytes = file.get(`${name}.kv_bytes`, 'u8')
  const [blocks, pageSize] = bytes.shape as [number, number]
  const values = bytes.reshape([blocks, 1, pageSize, 656])
  const physical = file.get(`${name}.indices_in_cache`, 'i32')
  return [
    attendCase(file, name, { format: 'packed656', values, scaleBlock: 128, layer: 0 }, physical),
    remapCase(file, name, { blocks, pageSize }, physical),
  ]
}

function attendCase(file: SafetensorsFile, name: string, cache: LatentPool, physical: Tensor<'i32'>): ConformanceCase {
  const scale = softmaxScale(file, name)
  const q = file.get(`${name}.q`, 'bf16')
  const sink = optional(file, `${name}.attn_sink`, 'f32')
  const out = file.get(`${name}.out`, 'bf16')
  const lse = file.get(`${name}.lse`, 'f32')
  const indices = slots(physical)
  return {
    op: 'sparseDecode',
    name,
    async run(device) {
      const actual = await callLatent(device, sparseDecode, { q, cache, indices, scale, ...given({ sink }) })
      return judge(
        flashMlaDecode(actual.out, out.floats()),
        flashMlaLse(actual.lse, queriesFirst(lse).map(emptyAsOurs)),
      )
    },
  }
}

function remapCase(
  file: SafetensorsFile,
  name: string,
  pool: { readonly blocks: number; readonly pageSize: number },
  physical: Tensor<'i32'>,
): ConformanceCase {
  const [batch, queries, topk] = physical.shape as [number, number, number]
  const rows = [batch * queries, topk]
  const indices = logical(file.get(`${name}.logical_indices`, 'i32').reshape(rows))
  const table = file.get(`${name}.block_table`, 'i32')
  const blockTable = tensor('u32', table.shape, Uint32Array.from(table.codes()))
  const rowOffsets = tensor(
    'u32',
    [batch + 1],
    Uint32Array.from({ length: batch + 1 }, (_, b) => b * queries),
  )
  return {
    op: 'remapIndices',
    name: `${name}, logical to physical`,
    async run(device) {
      const into = poisonedOutputs(device, { indices: ['i32', rows] })
      remapIndices(device, { indices, slots: { blockTable, ...pool }, rowOffsets, into })
      const actual = await collect(into)
      return judge(sameBits(actual.indices, physical.reshape(rows), 'slots'))
    },
  }
}

const emptyAsOurs = (lse: number): number => (lse === Infinity ? -Infinity : lse)

/** `[batch, heads, queries]` as `[batch, queries, heads]`. */
function queriesFirst({ shape, data }: Tensor<'f32'>): Float32Array {
  const [, heads, queries] = shape as [number, number, number]
  return data.map((_, i) => {
    const [b, rest] = [Math.floor(i / (heads * queries)), i % (heads * queries)]
    const [query, h] = [Math.floor(rest / heads), rest % heads]
    return data[(b * heads + h) * queries + query]!
  })
}

/** `prefill0.sm_scale=0.5; prefill1.sm_scale=…` in the note `cases`. @throws FormatError when the case has none */
function softmaxScale({ metadata }: SafetensorsFile, name: string): number {
  const text = metadata.cases ?? ''
  const scale = Number(text.match(new RegExp(`${name}\\.sm_scale=([-+.\\deE]+)`))?.[1])
  if (Number.isFinite(scale)) return scale
  throw new FormatError({
    where: `golden ${name}`,
    argument: 'metadata.cases',
    given: text === '' ? 'missing' : text,
    allowed: `an entry ${name}.sm_scale=<number>`,
  })
}

const optional = <D extends 'f32' | 'i32'>(file: SafetensorsFile, name: string, dtype: D): Tensor<D> | undefined =>
  file.has(name) ? file.get(name, dtype) : undefined

/** Without the entries that are undefined. */
const given = <T extends object>(args: T): { [K in keyof T]: NonNullable<T[K]> } =>
  Object.fromEntries(Object.entries(args).filter(([, value]) => value !== undefined)) as never
