/**
 * Conformance across operations: absorbed attention is attention. With up-projections wUk_h [nope, 512], wUv_h [vDim, 512]
 * of latent rows c_j and a rope r_j for all heads,
 *
 *   densePrefill   q_h = [ qNope_h | qRope_h ]           k_jh = [ wUk_h c_j | r_j ]     v_jh = wUv_h c_j
 *   sparsePrefill  q_h = [ wUkᵀ_h qNope_h | qRope_h ]    row_j = [ c_j | r_j ]          out_h = wUv_h · its out
 */

import type { Device } from '../device.ts'
import { causal } from '../kernels/dense-prefill/masks.ts'
import { densePrefill } from '../ops/dense-prefill.ts'
import { sparsePrefill } from '../ops/sparse-prefill.ts'
import { slots } from '../tensor/spaces.ts'
import { fromFloats, type Tensor } from '../tensor/tensor.ts'
import { type ConformanceCase, judge, type Verdict } from './case.ts'
import { collect, ints, normals } from './data.ts'
import { compare } from './gate.ts'
import { seeded } from './random.ts'

const tokens = 3
const keys = 40
const heads = 2
const nope = 16
const vDim = 24
const latent = 512
const width = latent + 64
const scale = 0.1

type Vector = readonly number[]
type Matrix = readonly Vector[]

const dot = (a: Vector, b: Vector): number => a.reduce((sum, x, i) => sum + x * b[i]!, 0)

/** w x for every row x. */
const project = (rows: Matrix, w: Matrix): Matrix => rows.map(row => w.map(column => dot(row, column)))

const transposed = (w: Matrix): Matrix => w[0]!.map((_, i) => w.map(row => row[i]!))

const beside = (a: Matrix, b: Matrix): Matrix => a.map((row, i) => [...row, ...b[i]!])

/** `[rows, heads, width]` from a matrix of rows for each head. */
const byHead = (parts: readonly Matrix[]): Tensor<'f32'> =>
  fromFloats(
    'f32',
    [parts[0]!.length, parts.length, parts[0]![0]!.length],
    parts[0]!.flatMap((_, r) => parts.flatMap(part => part[r]!)),
  )

/** The rows of a matrix `[rows, columns]`. */
function rowsOf(t: Tensor): Matrix {
  const columns = t.shape.at(-1)!
  const values = [...t.floats()]
  return Array.from({ length: t.size / columns }, (_, r) => values.slice(r * columns, (r + 1) * columns))
}

/** Queries and up-projections of a head, and the cached rows, all exact in f32. */
function operands() {
  const random = seeded(11)
  const rows = normals(random, 'f32', [keys, width])
  const matrix = (shape: readonly [number, number], sd: number): Matrix => rowsOf(normals(random, 'f32', shape, sd))
  const perHead = Array.from({ length: heads }, () => ({
    wUk: matrix([nope, latent], 0.05),
    wUv: matrix([vDim, latent], 0.05),
    qNope: matrix([tokens, nope], 1),
    qRope: matrix([tokens, 64], 1),
  }))
  return { rows, c: rowsOf(rows.narrow(1, 0, latent)), rope: rows.narrow(1, latent, 64), perHead }
}

/** Positions up to each token's own. */
const causalLists: readonly number[] = Array.from({ length: tokens * keys }, (_, i) =>
  i % keys <= keys - tokens + Math.floor(i / keys) ? i % keys : -1,
)

async function sparseAsDense(device: Device): Promise<Verdict> {
  const { rows, c, rope, perHead } = operands()
  const keyTensors = {
    nope: byHead(perHead.map(({ wUk }) => project(c, wUk))),
    v: byHead(perHead.map(({ wUv }) => project(c, wUv))),
    rope,
  }
  const q = byHead(perHead.map(({ qNope, qRope }) => beside(qNope, qRope)))
  const dense = await collect({ ...densePrefill(device, { q, keys: keyTensors, mask: causal(), scale }) })
  const sparse = await collect({
    ...sparsePrefill(device, {
      q: byHead(perHead.map(({ wUk, qNope, qRope }) => beside(project(qNope, transposed(wUk)), qRope))),
      cache: { format: 'plain', values: rows.reshape([1, 1, keys, width]), scaleBlock: 0, layer: 0 },
      indices: slots(ints('i32', [tokens, keys], causalLists)),
      scale,
    }),
  })
  const expected = byHead(perHead.map(({ wUv }, h) => project(rowsOf(sparse.out.select(1, h)), wUv))).data
  const peak = expected.reduce((most, x) => Math.max(most, Math.abs(x)), 0)
  return judge(
    compare({ gate: 'up-projected against absorbed', actual: dense.out, expected, bound: () => 2e-5 * peak }),
    compare({ gate: 'lse', actual: dense.lse, expected: sparse.lse.data, bound: () => 2e-5 }),
  )
}

export const absorptionCases: readonly ConformanceCase[] = [
  {
    op: 'sparsePrefill',
    name: 'over all visible keys equals densePrefill of the up-projected ones',
    run: sparseAsDense,
  },
]
