/**
 * What the packed package's types promise. Compiled, never run: every `@ts-expect-error` is a line that must not
 * compile, and the compiler reports the ones that do.
 */

import {
  type AnyTensor,
  type Device,
  type DeviceTensor,
  fromFloats,
  type Indices,
  type LatentPool,
  logical,
  openDevice,
  remapIndices,
  rows,
  slots,
  sparsePrefill,
  type Tensor,
  tensor,
  topK,
  zeros,
} from 'sparse-mla'
import { openSafetensors } from 'sparse-mla/node'

/** Compiles only for equal types. */
type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false
const same = <A, B>(equal: Equal<A, B>): boolean => equal

const list: Tensor<'i32'> = zeros('i32', [2, 4])
const q: Tensor<'bf16'> = fromFloats('bf16', [2, 3, 512], new Float32Array(2 * 3 * 512))
const cache: LatentPool = { format: 'plain', values: zeros('bf16', [1, 1, 16, 512]), scaleBlock: 0, layer: 0 }

const slotList: Indices<'slot'> = slots(list)
const positions: Indices<'logical'> = logical(list)
const memoryRows: Indices<'row'> = rows(list)

export async function devices(): Promise<void> {
  const device: Device = await openDevice('cpu', { threads: 2 })
  await openDevice()
  await openDevice('cuda:1')
  // @ts-expect-error a device that does not exist
  await openDevice('gpu')
  // @ts-expect-error an option that does not exist
  await openDevice('cpu', { workers: 2 })
  // @ts-expect-error a build that does not exist
  await openDevice('cpu', { build: 'avx' })
  await using scoped = device
  scoped.dispose()
}

export async function spaces(device: Device): Promise<void> {
  sparsePrefill(device, { q, cache, indices: slotList, scale: 1 })
  // @ts-expect-error logical positions are not slots
  sparsePrefill(device, { q, cache, indices: positions, scale: 1 })
  // @ts-expect-error memory rows are not slots
  sparsePrefill(device, { q, cache, indices: memoryRows, scale: 1 })
  // @ts-expect-error an index tensor whose space nobody has declared
  sparsePrefill(device, { q, cache, indices: list, scale: 1 })
  // @ts-expect-error floats are not indices
  slots(q)
  // @ts-expect-error spaces do not convert
  const mixed: Indices<'slot'> = memoryRows
  void mixed
}

export function selections(device: Device, scores: Tensor<'f32'>, blockTable: Tensor<'u32'>): void {
  const picks = topK(device, { scores, k: 4 }).indices
  const mapped = topK(device, { scores, k: 4, slots: { blockTable, pageSize: 64, blocks: 8 } }).indices
  same<(typeof picks)['space'], 'logical'>(true)
  same<(typeof mapped)['space'], 'slot'>(true)
  sparsePrefill(device, { q, cache, indices: mapped, scale: 1 })
  // @ts-expect-error without a block table a selection is logical
  sparsePrefill(device, { q, cache, indices: picks, scale: 1 })
  const { indices } = remapIndices(device, { indices: picks, slots: { blockTable, pageSize: 64, blocks: 8 } })
  sparsePrefill(device, { q, cache, indices, scale: 1 })
  // @ts-expect-error slots are not mapped twice
  remapIndices(device, { indices, slots: { blockTable, pageSize: 64, blocks: 8 } })
  // @ts-expect-error k is required
  topK(device, { scores })
}

export async function prefill(device: Device): Promise<void> {
  const { out, lse } = sparsePrefill(device, { q, cache, indices: slotList, scale: 1, sink: zeros('f32', [3]) })
  same<typeof out, DeviceTensor<'f32' | 'bf16'>>(true)
  same<typeof lse, DeviceTensor<'f32'>>(true)
  const host: Tensor<'f32'> = await lse.read()
  const values: Float32Array = host.data
  void values
  // @ts-expect-error the softmax scale has no default
  sparsePrefill(device, { q, cache, indices: slotList })
  // @ts-expect-error an argument that does not exist
  sparsePrefill(device, { q, cache, indices: slotList, scale: 1, topk: 4 })
  // @ts-expect-error sink is f32
  sparsePrefill(device, { q, cache, indices: slotList, scale: 1, sink: zeros('bf16', [3]) })
  // @ts-expect-error out is f32 or bf16
  sparsePrefill(device, { q, cache, indices: slotList, scale: 1, outDtype: 'f16' })
}

export async function tensors(device: Device): Promise<void> {
  const there: DeviceTensor<'bf16'> = device.upload(q)
  const either: AnyTensor<'bf16'> = Math.random() < 0.5 ? q : there
  same<typeof there.shape, readonly number[]>(true)
  void either
  // @ts-expect-error bf16 codes are held in a Uint16Array
  tensor('bf16', [2], new Float32Array(2))
  // @ts-expect-error f24 is not a dtype
  zeros('f24', [2])
  // @ts-expect-error shapes are read-only
  there.shape[0] = 1
  const weights = await openSafetensors('weights.safetensors')
  same<Awaited<ReturnType<typeof weights.get<'f32'>>>, Tensor<'f32'>>(true)
}
