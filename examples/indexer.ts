/**
 * What the four levels share: the problem, a plain loop to compare with, and how a level is run.
 *
 *   scores[t, j] = kScale[j] · Σ_h weights[t, h] · relu(q[t, h] · keys[j])
 */

import { pathToFileURL } from 'node:url'
import type { Device } from '../src/device.ts'
import type { Kernel } from '../src/lang/kernel.ts'
import { gpuPlan } from '../src/lang/launch.ts'
import type { Target } from '../src/lang/types.ts'
import { type DeviceName, openDevice } from '../src/open-device.ts'
import type { DeviceTensor } from '../src/tensor/device-tensor.ts'
import { fromFloats } from '../src/tensor/tensor.ts'

export const depth = 128

export interface Problem {
  readonly tokens: number
  readonly heads: number
  readonly keys: number
}

export interface Level {
  readonly name: string
  /** Problem for the simulator; a card gets a larger one. */
  readonly small: Problem
  readonly trace: (target: Target, problem: Problem) => Kernel
  readonly grid: (problem: Problem) => readonly [x: number, y: number]
}

export interface Outcome {
  readonly level: string
  readonly device: string
  readonly milliseconds: number
  /** Largest difference from the plain loop, as a share of the largest score. */
  readonly error: number
}

/** q and keys are small integers: every level then forms the same dot products, and only sums over heads round. */
export interface Data {
  readonly q: Float32Array
  readonly weights: Float32Array
  readonly keys: Float32Array
  readonly kScale: Float32Array
}

function dataFor({ tokens, heads, keys }: Problem): Data {
  let state = 1
  const random = (): number => (state = (Math.imul(state, 48_271) >>> 0) % 2_147_483_647) / 2_147_483_647
  const integers = (n: number): Float32Array => Float32Array.from({ length: n }, () => Math.floor(9 * random()) - 4)
  const reals = (n: number): Float32Array => Float32Array.from({ length: n }, () => random() - 0.25)
  return {
    q: integers(tokens * heads * depth),
    weights: reals(tokens * heads),
    keys: integers(keys * depth),
    kScale: reals(keys),
  }
}

/** The formula as a plain loop. */
export function plainScores({ tokens, heads, keys }: Problem, data: Data): Float64Array {
  const scores = new Float64Array(tokens * keys)
  for (let t = 0; t < tokens; t++)
    for (let j = 0; j < keys; j++) {
      let sum = 0
      for (let h = 0; h < heads; h++) {
        let dot = 0
        for (let d = 0; d < depth; d++) dot += data.q[(t * heads + h) * depth + d]! * data.keys[j * depth + d]!
        sum += data.weights[t * heads + h]! * Math.max(dot, 0)
      }
      scores[t * keys + j] = data.kScale[j]! * sum
    }
  return scores
}

/** Runs a level on a device and compares it with the plain loop. */
export async function runLevel(level: Level, device: Device, problem: Problem = level.small): Promise<Outcome> {
  const { tokens, heads, keys } = problem
  const data = dataFor(problem)
  const inputs: Record<string, DeviceTensor> = {
    q: device.upload(fromFloats('e4m3', [tokens, heads, depth], data.q)),
    weights: device.upload(fromFloats('f32', [tokens, heads], data.weights)),
    keys: device.upload(fromFloats('e4m3', [keys, depth], data.keys)),
    kScale: device.upload(fromFloats('f32', [keys], data.kScale)),
  }
  const scores = device.alloc('f32', [tokens, keys])
  const kernel = level.trace(device.limits.target as Target, problem)
  const args = { ...inputs, scores, keyCount: keys, heads }
  const plan = gpuPlan(level.name, [{ kernel, grid: level.grid(problem), args }])
  device.submit(plan, { inputs, outputs: { scores } })
  const result = await scores.read()
  const milliseconds = await device.time(() => device.submit(plan, { inputs, outputs: { scores } }))
  const expected = plainScores(problem, data)
  const largest = expected.reduce((most, x) => Math.max(most, Math.abs(x)), 0)
  const error = expected.reduce((most, x, i) => Math.max(most, Math.abs(x - result.data[i]!)), 0) / largest
  for (const t of [...Object.values(inputs), scores]) t.dispose()
  return { level: level.name, device: device.name, milliseconds, error }
}

/** The body of a level's file: `npx tsx examples/level-1.ts [sim:sm_90a|cuda]` runs it and prints the outcome. */
export async function runAsMain(level: Level, file: string): Promise<void> {
  if (process.argv[1] === undefined || pathToFileURL(process.argv[1]).href !== file) return
  const name = (process.argv[2] ?? 'sim:sm_90a') as DeviceName
  await using device = await openDevice(name)
  const problem = device.kind === 'cuda' ? { tokens: 128, heads: 64, keys: 2048 } : level.small
  const { milliseconds, error } = await runLevel(level, device, problem)
  const { tokens, heads, keys } = problem
  const rate = (2 * tokens * heads * keys * depth) / (milliseconds * 1e9)
  console.log(`${level.name} on ${device.name}: ${tokens} tokens, ${heads} heads, ${keys} keys`)
  console.log(`  ${milliseconds.toFixed(3)} ms${device.kind === 'cuda' ? `, ${rate.toFixed(2)} TFLOP/s` : ''}`)
  console.log(`  largest difference from the plain loop: ${error.toExponential(1)} ${error < 1e-5 ? 'ok' : 'WRONG'}`)
  if (!(error < 1e-5)) process.exitCode = 1
}
