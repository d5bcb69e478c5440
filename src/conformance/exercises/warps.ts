/** Exercises of what lanes and warps exchange, and of who they are. */

import type { Exercise } from './exercise.ts'

const exchange: Exercise = {
  name: 'exchange',
  since: 75,
  body: (k, { words, thread, put }) => {
    const word = words.load(thread)
    const few = word.bitAnd(7)
    const small = word.shr(8).bitAnd(0xff).to('f32').sub(100)
    put(k.lane)
    put(k.blockIdx.x.add(k.blockIdx.y))
    put(k.gridDim.x)
    put(k.shuffle(word, k.lane.mul(7).add(3).bitAnd(31)))
    put(k.shuffle(small, few))
    for (const mask of [1, 2, 4, 8, 16] as const) put(k.shuffleXor(word, mask))
    put(k.shuffleXor(small, 8))
    put(k.ballot(few.gt(3)))
    put(k.any(few.eq(k.lane)))
    put(k.all(few.lt(8)))
    put(k.all(few.lt(7)))
    put(k.runningSum(word))
    put(k.warpSum(word))
    put(k.warpSum(small.mul(1.1)))
    put(k.warpMax(small))
  },
}

const reductions: Exercise = {
  name: 'reductions',
  since: 80,
  body: (k, { words, signed, thread, put }) => {
    for (const op of ['add', 'min', 'max'] as const) {
      put(k.reduce(op, words.load(thread)))
      put(k.reduce(op, signed.load(thread)))
    }
  },
}

const elected: Exercise = {
  name: 'elected',
  since: 90,
  body: (k, { put }) => {
    const one = k.elect()
    put(k.ballot(one))
    k.warpBarrier()
    put(one)
  },
}

/** Warps that hand words on: through the block's barrier, through named ones, and by an atomic sum. */
const barriers: Exercise = {
  name: 'barriers',
  since: 75,
  body: (k, { words, thread, put }) => {
    const shared = k.shared('u32', 256)
    const sum = k.shared('u32', 4)
    const word = words.load(thread)
    shared.store(k.threadIdx, word)
    k.when(k.threadIdx.lt(4), () => sum.store(k.threadIdx, 0))
    k.barrier()
    put(shared.load(k.threadIdx.bitXor(96)))
    sum.atomicAdd(k.threadIdx.bitAnd(3), word)
    k.role('first', { warps: [0, 2] }, () => {
      shared.store(k.threadIdx.add(128), word.add(1))
      k.barrierAmong(1, 64)
      shared.store(k.threadIdx.add(192), shared.load(k.threadIdx.bitXor(32).add(128)))
      k.arriveAmong(2, 128)
    })
    k.role('second', { warps: [2, 4] }, () => k.barrierAmong(2, 128))
    k.role('third', { warps: [2, 4] }, () => put(shared.load(k.threadIdx.add(128))))
    k.barrier()
    put(sum.load(k.threadIdx.bitAnd(3)))
  },
}

/** What has no value to compare: the exercise is that the kernel runs. */
const time: Exercise = {
  name: 'time',
  since: 90,
  body: (k, { put }) => {
    k.waitForPrevious()
    const start = k.clock()
    k.sleep(100)
    k.launchNext()
    put(k.clock().gt(start).select(k.const('u32', 0), 0))
  },
}

export const warpExercises: readonly Exercise[] = [exchange, reductions, elected, barriers, time]
