/** Conformance of the same call many times: the same bits (spec section 9). */

import type { Device } from '../device.ts'
import { causal } from '../kernels/dense-prefill/masks.ts'
import { densePrefill } from '../ops/dense-prefill.ts'
import { indexTopK } from '../ops/index-top-k.ts'
import { mergeStates } from '../ops/merge-states.ts'
import { sparseDecode } from '../ops/sparse-decode.ts'
import { sparsePrefill } from '../ops/sparse-prefill.ts'
import { topK } from '../ops/top-k.ts'
import type { DeviceTensor } from '../tensor/device-tensor.ts'
import { slots } from '../tensor/spaces.ts'
import type { Tensor } from '../tensor/tensor.ts'
import { type ConformanceCase, judge, type Verdict } from './case.ts'
import { collect, ints, normals } from './data.ts'
import type { GateReport } from './gate.ts'
import { sameBits } from './gates.ts'
import { poisoned } from './poison.ts'
import { seeded } from './random.ts'

/** Times that a case runs its call. */
const runs = 20
const random = seeded(2020)
const keys = 70
const list = slots(
  ints(
    'i32',
    [1, 66],
    Array.from({ length: 66 }, () => random.int(keys)),
  ),
)
const rows = {
  format: 'plain',
  values: normals(random, 'bf16', [1, 1, keys, 576]),
  scaleBlock: 0,
  layer: 0,
} as const
const q = normals(random, 'bf16', [1, 3, 576])
const heads = (width: number): Tensor<'f32'> => normals(random, 'f32', [keys, 2, width])
const dense = { nope: heads(16), v: heads(24), rope: normals(random, 'f32', [keys, 64]) }
const denseQuery = normals(random, 'f32', [2, 2, 80])
const scoring = {
  q: normals(random, 'e4m3', [2, 4, 32]),
  qScale: normals(random, 'f32', [2, 4]),
  keys: { values: normals(random, 'e4m3', [keys, 32]), scales: normals(random, 'f32', [keys]) },
  window: 'all',
} as const
const scores = normals(random, 'bf16', [2, 150])
const states = {
  out: [normals(random, 'f32', [2, 3, 40]), normals(random, 'f32', [2, 3, 40])],
  lse: [normals(random, 'f32', [2, 3]), normals(random, 'f32', [2, 3])],
}

type Outputs = Readonly<Record<string, DeviceTensor>>

const calls: Readonly<Record<string, (device: Device, into: Outputs) => object>> = {
  sparsePrefill: (device, into) => sparsePrefill(device, { q, cache: rows, indices: list, scale: 0.07, into }),
  sparseDecode: (device, into) =>
    sparseDecode(device, { q: q.reshape([1, 1, 3, 576]), cache: rows, indices: list, scale: 0.07, into }),
  densePrefill: (device, into) =>
    densePrefill(device, { q: denseQuery, keys: dense, mask: causal(), scale: 0.1, partition: 3, into }),
  indexTopK: (device, into) => indexTopK(device, { ...scoring, k: 30, into }),
  topK: (device, into) => topK(device, { scores, k: 40, into }),
  mergeStates: (device, into) => mergeStates(device, { ...states, into }),
}

/** The bits of a call on every device after the first, as on the first. */
async function repeated(devices: readonly Device[], call: (device: Device, into: Outputs) => object): Promise<Verdict> {
  const first = await collect(call(devices[0]!, {}) as Outputs)
  const reports: GateReport[] = []
  for (const [run, device] of devices.entries()) {
    if (run === 0) continue
    const blank = Object.entries(first).map(([name, t]) => [name, device.upload(poisoned(t.dtype, t.shape))] as const)
    const again = await collect(call(device, Object.fromEntries(blank)) as Outputs)
    for (const [name, t] of Object.entries(again)) reports.push(sameBits(t, first[name]!, `${name}, run ${run}`))
  }
  return judge(...reports)
}

export const determinismCases: readonly ConformanceCase[] = Object.entries(calls).map(([op, call]) => ({
  op,
  name: `${runs} runs have the same bits`,
  run: device => repeated(new Array<Device>(runs).fill(device), call),
}))

/** The same calls once on each of several devices, such as simulators that differ in the order of their warps. */
export const sameOnAll = (op: string, devices: readonly Device[]): Promise<Verdict> => repeated(devices, calls[op]!)
