/** Sparse decode at the shapes its peers are measured at: 2 queries a sequence, 2048 of its 32 768 keys each. */

import { sparseDecode } from '../../ops/sparse-decode.ts'
import { packed656Offsets } from '../../tensor/cache-layout.ts'
import { slots } from '../../tensor/spaces.ts'
import { tensor } from '../../tensor/tensor.ts'
import type { Bench } from '../bench.ts'
import { distinctLists, repeated } from '../data.ts'
import { tensorsOf, uploadPool } from './latent-data.ts'
import { cardRunner } from './runner.ts'

const [queries, topk, keys, width] = [2, 2048, 32_768, 576]
const scale = 192 ** -0.5

/** Sequences that have keys of their own, 688 MB; the 33rd has those of the first. */
const mostSequences = 32

/** Slots of each query within its sequence's keys; sequences lie one after the other. */
function listsOf(batch: number) {
  const lists = distinctLists(batch * queries, topk, keys, 3).data
  for (let row = 0; row < batch * queries; row++) {
    const first = (Math.floor(row / queries) % mostSequences) * keys
    for (let j = row * topk; j < (row + 1) * topk; j++) lists[j]! += first
  }
  return tensor('i32', [batch, queries, topk], lists)
}

interface Case {
  readonly batch: number
  readonly heads: number
  readonly batchInvariant?: boolean
  /** FlashMLA's. */
  readonly peerUs?: number
}

const nameOf = ({ batch, heads, batchInvariant }: Case): string =>
  `packed656, batch ${batch}, ${heads} heads${batchInvariant ? ', batch-invariant' : ''}`

const bench = (one: Case): Bench => {
  const { batch, heads, batchInvariant = false, peerUs } = one
  const rows = batch * queries
  return {
    op: 'sparseDecode',
    name: nameOf(one),
    shape: `${batch} × ${queries} queries, ${heads} heads, topk ${topk}, ${keys} keys a sequence`,
    size: 'card',
    arithmetic: 'bf16',
    flops: 2 * rows * heads * topk * (width + 512),
    bytes: rows * (topk * (packed656Offsets.bytes + 4) + heads * 2 * (width + 512)),
    against: batchInvariant ? nameOf({ ...one, batchInvariant: false }) : undefined,
    peer: peerUs === undefined ? undefined : { name: 'FlashMLA', us: peerUs },
    prepare(device) {
      const q = device.upload(repeated('bf16', [batch, queries, heads, width], 1))
      const cache = uploadPool(device, 'packed656', Math.min(batch, mostSequences) * keys)
      const lists = device.upload(listsOf(batch))
      const call = () => Object.values(sparseDecode(device, { q, cache, indices: slots(lists), scale, batchInvariant }))
      return cardRunner(device, [q, lists, ...tensorsOf(cache)], call)
    },
  }
}

export const cardSparseDecode: readonly Bench[] = [
  { batch: 1, heads: 128 },
  { batch: 2, heads: 128, peerUs: 39.3 },
  { batch: 64, heads: 128, peerUs: 188 },
  { batch: 128, heads: 128, peerUs: 365.5 },
  { batch: 128, heads: 128, batchInvariant: true },
  { batch: 128, heads: 64, peerUs: 226.8 },
].map(bench)
