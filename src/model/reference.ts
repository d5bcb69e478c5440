/**
 * The attention layer in float64 as Hugging Face writes it: keys and values of every head are unfolded from the latent, and
 * nothing is absorbed, cached or rounded. To be read next to the formulas of spec section 6.
 */

import type { RopeStyle } from '../ops/rope.ts'
import type { Tensor } from '../tensor/tensor.ts'
import type { DsaConfig } from './config.ts'
import { ropeTable, yarnSoftmaxScale } from './rope-table.ts'
import { type TensorSource, weightScaleBlock } from './weights.ts'

type Rows = Float64Array[]

export interface DsaReference {
  /** Indexer scores of each token for the keys up to its own. */
  readonly scores: Rows
  /** Selected positions of each token, ascending. */
  readonly selection: number[][]
  /** `heads * v` values of each token. */
  readonly context: Rows
  /** `hidden` values of each token. */
  readonly out: Rows
}

/** Tokens 0, 1, .. of one sequence `x [tokens, hidden]`, with weights by their Hugging Face names. */
export function dsaReference(weights: TensorSource, config: DsaConfig, x: Tensor): DsaReference {
  const { heads, nope, rope, v, kvLoraRank, rmsEps } = config
  const input = rowsOf(x)
  const linear = (name: string, from: Rows): Rows => product(matrix(weights, name), from)
  const norm = (name: string, from: Rows): Rows => from.map(row => rms(row, vector(weights, name), rmsEps))
  const turn = ropeOf(config, input.length)

  const residual = norm('q_a_layernorm.weight', linear('q_a_proj', input))
  const q = linear('q_b_proj', residual)
  const low = linear('kv_a_proj_with_mqa', input)
  const latent = norm(
    'kv_a_layernorm.weight',
    low.map(row => row.slice(0, kvLoraRank)),
  )
  const kRope = low.map((row, p) => turn(row.slice(kvLoraRank), p, config.mlaRopeStyle))
  const kv = linear('kv_b_proj', latent)
  const { scores, selection } = indexer(weights, config, { input, residual, turn })

  const scale = yarnSoftmaxScale(nope, config.yarn)
  const context = input.map((_, t) => {
    const row = new Float64Array(heads * v)
    for (let h = 0; h < heads; h++) {
      const query = q[t]!.slice(h * (nope + rope), (h + 1) * (nope + rope))
      query.set(turn(query.slice(nope), t, config.mlaRopeStyle), nope)
      const s = selection[t]!.map(j => {
        const key = kv[j]!.subarray(h * (nope + v))
        return scale * (dot(query, key, nope) + dot(query.subarray(nope), kRope[j]!, rope))
      })
      const m = Math.max(...s)
      const p = s.map(value => Math.exp(value - m))
      const l = p.reduce((sum, value) => sum + value, 0)
      for (const [i, j] of selection[t]!.entries())
        for (let c = 0; c < v; c++) row[h * v + c]! += (p[i]! / l) * kv[j]![h * (nope + v) + nope + c]!
    }
    return row
  })
  return { scores, selection, context, out: linear('o_proj', context) }
}

interface IndexerInput {
  readonly input: Rows
  readonly residual: Rows
  readonly turn: Turn
}

function indexer(
  weights: TensorSource,
  { indexHeads: heads, indexDim: dim, indexTopk, rope, indexerRopeStyle: style }: DsaConfig,
  { input, residual, turn }: IndexerInput,
): Pick<DsaReference, 'scores' | 'selection'> {
  const turnFirst = (row: Float64Array, p: number): Float64Array => {
    const out = row.slice()
    out.set(turn(row.slice(0, rope), p, style))
    return out
  }
  const q = product(matrix(weights, 'indexer.wq_b'), residual)
  const [weight, bias] = [vector(weights, 'indexer.k_norm.weight'), vector(weights, 'indexer.k_norm.bias')]
  const k = product(matrix(weights, 'indexer.wk'), input).map((row, p) => turnFirst(layerNorm(row, weight, bias), p))
  const w = product(matrix(weights, 'indexer.weights_proj'), input)
  const scores = q.map((row, t) => {
    const vectors = Array.from({ length: heads }, (_, h) => turnFirst(row.slice(h * dim, (h + 1) * dim), t))
    return Float64Array.from({ length: t + 1 }, (_, j) =>
      vectors.reduce(
        (sum, query, h) => sum + (Math.max(0, dot(query, k[j]!, dim)) * w[t]![h]!) / Math.sqrt(heads * dim),
        0,
      ),
    )
  })
  const best = (row: Float64Array): number[] =>
    [...row.keys()].sort((a, b) => row[b]! - row[a]! || a - b).slice(0, indexTopk)
  return { scores, selection: scores.map(row => best(row).sort((a, b) => a - b)) }
}

type Turn = (x: Float64Array, position: number, style: RopeStyle) => Float64Array

/** Rope on all columns; the columns stay where they are. */
function ropeOf({ rope: dim, ropeTheta: theta, yarn }: DsaConfig, positions: number): Turn {
  const table = ropeTable({ positions, dim, theta, yarn })
  const half = dim / 2
  return (x, position, style) => {
    const out = new Float64Array(dim)
    for (let i = 0; i < half; i++) {
      const [a, b] = style === 'interleaved' ? [2 * i, 2 * i + 1] : [i, half + i]
      const [c, s] = [table.cos.data[position * half + i]!, table.sin.data[position * half + i]!]
      out[a] = x[a]! * c - x[b]! * s
      out[b] = x[b]! * c + x[a]! * s
    }
    return out
  }
}

const dot = (a: Float64Array, b: Float64Array, n: number): number => {
  let sum = 0
  for (let i = 0; i < n; i++) sum += a[i]! * b[i]!
  return sum
}

const product = (m: Rows, from: Rows): Rows =>
  from.map(row => Float64Array.from(m, weights => dot(weights, row, row.length)))

function rms(x: Float64Array, weight: Float64Array, eps: number): Float64Array {
  const inverse = 1 / Math.sqrt(dot(x, x, x.length) / x.length + eps)
  return x.map((value, i) => value * inverse * weight[i]!)
}

function layerNorm(x: Float64Array, weight: Float64Array, bias: Float64Array): Float64Array {
  const mean = x.reduce((sum, value) => sum + value, 0) / x.length
  const centred = x.map(value => value - mean)
  const inverse = 1 / Math.sqrt(dot(centred, centred, x.length) / x.length + 1e-6)
  return centred.map((value, i) => value * inverse * weight[i]! + bias[i]!)
}

function rowsOf(t: Tensor): Rows {
  const values = Float64Array.from(t.floats())
  const width = t.shape.at(-1)!
  return Array.from({ length: values.length / width }, (_, r) => values.slice(r * width, (r + 1) * width))
}

const vector = (weights: TensorSource, name: string): Float64Array => Float64Array.from(weights.get(name)!.floats())

const blockOf = (i: number): number => Math.floor(i / weightScaleBlock)

/** A weight, times its block scales if it has some. */
function matrix(weights: TensorSource, name: string): Rows {
  const rows = rowsOf(weights.get(`${name}.weight`)!)
  const scale = weights.has(`${name}.weight_scale_inv`) && rowsOf(weights.get(`${name}.weight_scale_inv`)!)
  if (!scale) return rows
  return rows.map((row, r) => row.map((value, c) => value * scale[blockOf(r)]![blockOf(c)]!))
}
