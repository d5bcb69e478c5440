/** Dense prefill, counted as half a square: 2 · heads · S² · (192 + 128) / 2 operations. */

import { causal } from '../kernels/dense-prefill/masks.ts'
import { densePrefill } from '../ops/dense-prefill.ts'
import { type Bench, deviceRunner } from './bench.ts'
import { noise } from './data.ts'

const tokens = 512
const heads = 16
const nope = 128
const vDim = 128

const bench = (dtype: 'bf16' | 'f32', bytes: number): Bench => ({
  op: 'densePrefill',
  name: `${dtype}, causal`,
  shape: `${tokens} tokens, ${heads} heads, ${nope + 64}/${vDim}`,
  flops: heads * tokens ** 2 * (nope + 64 + vDim),
  bytes: bytes * tokens * (heads * (nope + 64 + nope + vDim + vDim) + 64),
  prepare(device) {
    const q = device.upload(noise(dtype, [tokens, heads, nope + 64], 1))
    const keys = {
      nope: device.upload(noise(dtype, [tokens, heads, nope], 2)),
      v: device.upload(noise(dtype, [tokens, heads, vDim], 3)),
      rope: device.upload(noise(dtype, [tokens, 64], 4)),
    }
    const call = () => densePrefill(device, { q, keys, mask: causal(), scale: (nope + 64) ** -0.5 })
    return deviceRunner(device, [q, ...Object.values(keys)], () => Object.values(call()))
  },
})

export const densePrefillBenches: readonly Bench[] = [bench('bf16', 2), bench('f32', 4)]
