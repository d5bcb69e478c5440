/** All exercises, and a run of them on a device against the simulator. */

import type { Device } from '../../device.ts'
import { gpuPlan, type LaunchArg } from '../../lang/launch.ts'
import { runsOn, type Target } from '../../lang/types.ts'
import { SimDevice } from '../../sim/device.ts'
import { tensor } from '../../tensor/tensor.ts'
import { seeded } from '../random.ts'
import { engineExercises } from './engine.ts'
import { dataWords, type Exercise, exerciseKernel, outRows, outWords, recordsOf } from './exercise.ts'
import { matrixExercises } from './matrices.ts'
import { memoryExercises } from './memory.ts'
import { warpExercises } from './warps.ts'

export const exercises: readonly Exercise[] = [
  ...warpExercises,
  ...memoryExercises,
  ...engineExercises,
  ...matrixExercises,
]

export interface ExerciseResult {
  readonly name: string
  /** Words put out or stored that are not 0. */
  readonly words: number
  /** Words that are not the simulator's. */
  readonly wrong: number
  /** Names of the records that ran. */
  readonly records: readonly string[]
  readonly detail?: string
}

/** Words whose f32, bf16 and e4m3 parts are all finite. */
const finite = 0xbfbfbfbf
const untouched = 0xdeadbeef

/** @param device one that runs traced kernels, for `target` */
export async function runExercises(
  device: Device,
  target: Target,
  { seed = 1, chosen = exercises }: { readonly seed?: number; readonly chosen?: readonly Exercise[] } = {},
): Promise<ExerciseResult[]> {
  const random = seeded(seed)
  const data = Uint32Array.from({ length: dataWords }, () => (random.int(2 ** 32) & finite) >>> 0)
  await using simulator = new SimDevice(target)
  const results: ExerciseResult[] = []
  for (const exercise of chosen.filter(({ since }) => runsOn(target, since))) {
    const records = [...recordsOf(exerciseKernel(exercise, target))]
    const actual = await resultsOf(device, target, exercise, data)
    const expected = await resultsOf(simulator, target, exercise, data)
    const wrong = [...expected.keys()].filter(i => actual[i] !== expected[i])
    const [first] = wrong
    results.push({
      name: exercise.name,
      words: expected.filter(word => word !== untouched && word !== 0).length,
      wrong: wrong.length,
      records,
      ...(first === undefined ? {} : { detail: `word ${first}: ${hex(actual[first]!)}, not ${hex(expected[first]!)}` }),
    })
  }
  return results
}

const hex = (word: number): string => `0x${word.toString(16)}`

async function resultsOf(device: Device, target: Target, exercise: Exercise, data: Uint32Array): Promise<Uint32Array> {
  const words = device.upload(tensor('u32', [dataWords], data))
  const codes = device.upload(tensor('e4m3', [dataWords / 32, 128], new Uint8Array(data.buffer)))
  const out = device.upload(tensor('u32', [outWords], new Uint32Array(outWords).fill(untouched)))
  const boxes = device.upload(tensor('e4m3', [outRows, 128], new Uint8Array(outRows * 128)))
  const all: Readonly<Record<string, LaunchArg>> = {
    ...{ words, floats: words, bytes: words, halves: words, signed: words },
    ...{ out, outFloats: out, outSigned: out, outHalves: out, outBytes: out },
    matrix: codes,
    cube: codes.reshape([codes.shape[0]! / 16, 16, 128]),
    outMatrix: boxes,
    outCube: boxes.reshape([outRows / 16, 16, 128]),
  }
  const kernel = exerciseKernel(exercise, target)
  const args = Object.fromEntries(Object.keys(kernel.params).map(name => [name, all[name]]))
  const launch = { kernel, grid: [exercise.blocks ?? 1, 1] as const, args }
  device.submit(gpuPlan(`exercise ${exercise.name}`, [launch]), { inputs: { words, codes }, outputs: { out, boxes } })
  const [slots, stored] = [(await out.read()).data as Uint32Array, (await boxes.read()).codes() as Uint8Array]
  for (const t of [words, codes, out, boxes]) t.dispose()
  const result = new Uint32Array(outWords + outRows * 32)
  result.set(slots)
  result.set(new Uint32Array(stored.slice().buffer), outWords)
  return result
}
