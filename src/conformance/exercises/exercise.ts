/**
 * Small kernels for the records that have no function of one lane: exchanges, memory, copies, barriers, matrices. An
 * exercise runs on a device and in the simulator, on the same random words; all bits it puts out must be the same.
 */

import type { Buffer } from '../../lang/buffer.ts'
import type { KernelBuilder } from '../../lang/builder.ts'
import { instructions } from '../../lang/ir.ts'
import { type Kernel, kernel } from '../../lang/kernel.ts'
import { input, output, tensorMap } from '../../lang/params.ts'
import type { TensorMap } from '../../lang/tensor-map.ts'
import type { Target } from '../../lang/types.ts'
import type { Val } from '../../lang/value.ts'

/** Random words that an exercise reads, the same as rows of 128 e4m3 codes, and its results. */
export interface ExerciseData {
  readonly words: Buffer<'u32'>
  readonly floats: Buffer<'f32'>
  readonly bytes: Buffer<'u8'>
  readonly halves: Buffer<'bf16'>
  readonly signed: Buffer<'i32'>
  readonly out: Buffer<'u32'>
  readonly outFloats: Buffer<'f32'>
  readonly outSigned: Buffer<'i32'>
  readonly outHalves: Buffer<'bf16'>
  readonly outBytes: Buffer<'u8'>
  readonly matrix: TensorMap
  readonly cube: TensorMap
  readonly outMatrix: TensorMap
  readonly outCube: TensorMap
  /** Global thread index. */
  readonly thread: Val<'u32'>
  /** Puts out one word of every thread; the slots of a kernel follow each other. */
  put(value: Val<'u32' | 'i32' | 'f32' | 'pred'>): void
}

export interface Exercise {
  readonly name: string
  /** First architecture that has all of its instructions. */
  readonly since: 75 | 80 | 90 | '90a'
  readonly blocks?: number
  readonly threads?: number
  readonly cluster?: number
  readonly body: (k: KernelBuilder, data: ExerciseData) => void
}

/** Words of the random data. */
export const dataWords = 16_384
/** Words of the results; what nobody puts out stays as it was. */
export const outWords = 65_536
/** Rows of 128 codes that tensor copies may store to. */
export const outRows = 1024
/** First word of the part of `out` that copies and vector stores may write; slots end before it. */
export const freeWord = 32_768

const boxed = { dtype: 'e4m3', swizzle: 128 } as const

const params = {
  words: input('u32', 'random words'),
  floats: input('f32', 'the same'),
  bytes: input('u8', 'the same'),
  halves: input('bf16', 'the same'),
  signed: input('i32', 'the same'),
  out: output('u32', 'results'),
  outFloats: output('f32', 'the same'),
  outSigned: output('i32', 'the same'),
  outHalves: output('bf16', 'the same'),
  outBytes: output('u8', 'the same'),
  matrix: tensorMap({ ...boxed, box: [128, 16] }, 'the words as [512, 128] codes'),
  cube: tensorMap({ ...boxed, box: [128, 4, 2] }, 'the words as [32, 16, 128] codes'),
  outMatrix: tensorMap({ ...boxed, box: [128, 16] }, 'further results, [1024, 128] codes'),
  outCube: tensorMap({ ...boxed, box: [128, 4, 2] }, 'the same as [64, 16, 128] codes'),
}

/** Before Hopper there are no tensor maps. */
const plainParams = Object.fromEntries(Object.entries(params).filter(([, { kind }]) => kind === 'buffer'))

export function exerciseKernel(exercise: Exercise, target: Target): Kernel {
  const { name, threads = 128, blocks = 1, cluster = 1 } = exercise
  const isPlain = exercise.since === 75 || exercise.since === 80
  const bound = isPlain ? (plainParams as typeof params) : params
  return kernel({ name: `exercise_${name}`, target, threads, cluster, params: bound }, (k, p) => {
    const thread = k.blockIdx.x.mul(threads).add(k.threadIdx)
    const total = threads * blocks
    let slot = 0
    exercise.body(k, {
      ...p,
      thread,
      put: value => {
        if ((slot + 1) * total > freeWord) throw new RangeError(`exercise ${name} puts out more than it may`)
        p.out.store(thread.add(slot++ * total), wordOf(k, value))
      },
    })
  })
}

function wordOf(k: KernelBuilder, value: Val<'u32' | 'i32' | 'f32' | 'pred'>): Val<'u32'> {
  if (value.type === 'pred') return (value as Val<'pred'>).select(k.const('u32', 1), 0)
  if (value.type === 'f32') return (value as Val<'f32'>).bits()
  return value.type === 'i32' ? (value as Val<'i32'>).to('u32') : (value as Val<'u32'>)
}

/** Names of the records that a kernel runs. */
export const recordsOf = (traced: Kernel): ReadonlySet<string> =>
  new Set([...instructions(traced.body)].map(({ record }) => record.name))
