/** Dense prefill 192/128, causal, at the shapes cuDNN is measured at: 2 · heads · S² · (192 + 128) / 2 operations. */

import { causal } from '../../kernels/dense-prefill/masks.ts'
import { densePrefill } from '../../ops/dense-prefill.ts'
import type { Bench } from '../bench.ts'
import { repeated } from '../data.ts'
import { cardRunner } from './runner.ts'

const [heads, nope, v] = [128, 128, 128]

const bench = (tokens: number, peerUs: number): Bench => ({
  op: 'densePrefill',
  name: `bf16, causal, ${tokens} tokens`,
  shape: `${tokens} tokens, ${heads} heads, ${nope + 64}/${v}`,
  size: 'card',
  arithmetic: 'bf16',
  flops: heads * tokens ** 2 * (nope + 64 + v),
  bytes: 2 * tokens * (heads * (nope + 64 + nope + v + v) + 64),
  peer: { name: 'cuDNN', us: peerUs },
  prepare(device) {
    const q = device.upload(repeated('bf16', [tokens, heads, nope + 64], 1))
    const keys = {
      nope: device.upload(repeated('bf16', [tokens, heads, nope], 2)),
      v: device.upload(repeated('bf16', [tokens, heads, v], 3)),
      rope: device.upload(repeated('bf16', [tokens, 64], 4)),
    }
    const call = () => densePrefill(device, { q, keys, mask: causal(), scale: (nope + 64) ** -0.5 })
    return cardRunner(device, [q, ...Object.values(keys)], () => Object.values(call()))
  },
})

export const cardDensePrefill: readonly Bench[] = [bench(4096, 1260), bench(8192, 4812)]
