/** Sparse attention composed of the array operations of @jax-js/jax on its wasm backend: gather, two batched products, softmax. */

import { defaultDevice, init, jit, nn, numpy as np } from '@jax-js/jax'
import type { Bench } from '../src/bench/bench.ts'
import {
  sparsePrefillFlops,
  sparsePrefillInputs,
  sparsePrefillKeys,
  sparsePrefillMain,
  sparsePrefillScale,
  sparsePrefillShape,
} from '../src/bench/sparse-prefill.ts'

export const jaxSparsePrefill: Bench = {
  op: 'sparsePrefill',
  name: '@jax-js/jax, composed, f32',
  shape: sparsePrefillShape(sparsePrefillKeys),
  flops: sparsePrefillFlops,
  bytes: 0,
  against: sparsePrefillMain,
  async prepare() {
    await init('wasm')
    defaultDevice('wasm')
    const inputs = sparsePrefillInputs(sparsePrefillKeys)
    const q = np.array(inputs.q.floats(), { shape: [...inputs.q.shape] })
    const rows = np.array(inputs.rows.floats(), { shape: [...inputs.rows.shape] })
    const lists = np.array(inputs.lists.codes(), { shape: [...inputs.lists.shape], dtype: np.int32 })
    const attend = jit((query: np.Array, cache: np.Array, indices: np.Array) => {
      const keys = np.take(cache, indices, 0)
      const scores = np.matmul(query, np.matrixTranspose(keys.ref)).mul(sparsePrefillScale)
      return np.matmul(nn.softmax(scores, -1), keys.slice([], [], [0, 512]))
    })
    return {
      async sample() {
        const start = performance.now()
        const out = attend(q.ref, rows.ref, lists.ref)
        await out.blockUntilReady()
        const ms = performance.now() - start
        out.dispose()
        return ms
      },
      [Symbol.dispose]() {
        for (const array of [q, rows, lists]) array.dispose()
      },
    }
  },
}
