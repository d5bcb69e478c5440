/** Exercises of loads and stores of every width, and of copies by threads. */

import { memory } from '../../lang/isa/memory.ts'
import { wides } from '../../lang/isa/wide.ts'
import { Val } from '../../lang/value.ts'
import { loadFloatIf, loadWordsIf, storeSharedWords } from '../../lang/words.ts'
import { type Exercise, freeWord } from './exercise.ts'

const globalMemory: Exercise = {
  name: 'global_memory',
  since: 75,
  body: (k, { words, floats, bytes, halves, signed, thread, put, ...results }) => {
    const odd = thread.bitAnd(1).eq(1)
    const at = thread.mul(5)
    const read = [words, floats, bytes, halves, signed] as const
    for (const buffer of read) put(buffer.load(at))
    for (const buffer of read) put(buffer.loadIf(odd, at))
    for (const buffer of [words, floats, signed]) for (const value of buffer.load4(thread.mul(4))) put(value as never)
    const free = k.const('u32', freeWord).add(thread)
    results.out.store(free, words.load(at))
    results.outFloats.store(free.add(128), floats.load(at))
    results.outSigned.store(free.add(256), signed.load(at))
    results.outHalves.store(free.add(384).mul(2), halves.load(at))
    results.outBytes.store(free.add(512).mul(4).add(3), bytes.load(at))
    const four = k.const('u32', freeWord + 1024).add(thread.mul(4))
    results.out.store4(four, words.load4(thread.mul(8)) as never)
    results.outFloats.store4(four.add(512), floats.load4(thread.mul(8)) as never)
    results.outSigned.store4(four.add(1024), signed.load4(thread.mul(8)) as never)
  },
}

const guarded: Exercise = {
  name: 'guarded_loads',
  since: 80,
  body: (_, { words, floats, thread, put }) => {
    const where = thread.bitAnd(3).ne(2)
    for (const use of ['stream', 'keep'] as const)
      for (const word of loadWordsIf(where, words.address(thread.mul(4)), use)) put(word)
    put(loadFloatIf(where, floats.address(thread)))
  },
}

const wide: Exercise = {
  name: 'wide',
  since: 75,
  body: (k, { words, out, thread }) => {
    const { trace } = thread
    let free = freeWord
    for (const count of [2, 4] as const)
      for (const type of ['u32', 'f32'] as const) {
        const v = Array.from({ length: count }, () => trace.register(type))
        trace.emit(wides[`ld.${count}.${type}`]!, { v, address: words.address(thread.mul(count)).operand })
        const target = out.address(k.const('u32', free).add(thread.mul(count)))
        trace.emit(wides[`st.${count}.${type}`]!, { v, address: target.operand })
        free += 128 * count
      }
  },
}

const sharedMemory: Exercise = {
  name: 'shared_memory',
  since: 75,
  body: (k, { words, floats, signed, thread, put }) => {
    const [w, f, i] = [k.shared('u32', 1024), k.shared('f32', 512), k.shared('i32', 512)]
    const { trace } = thread
    w.store(k.threadIdx, words.load(thread))
    f.store(k.threadIdx, floats.load(thread))
    i.store(k.threadIdx, signed.load(thread))
    storeSharedWords(w.byteAt(k.threadIdx.mul(4).add(512)), words.load4(thread.mul(4)) as never)
    k.barrier()
    const other = k.threadIdx.bitXor(37)
    put(w.load(other))
    put(f.load(other))
    put(i.load(other))
    for (const value of [...w.load4(other.bitAnd(31).mul(4)), ...w.load4(other.mul(4).add(512))]) put(value)
    for (const value of f.load4(other.bitAnd(31).mul(4))) put(value)
    for (const value of i.load4(other.bitAnd(31).mul(4))) put(value)
    k.barrier()
    for (const type of ['f32', 'i32'] as const) {
      const loaded = (type === 'f32' ? floats : signed).load4(thread.mul(4))
      const target = (type === 'f32' ? f : i).byteAt(k.threadIdx.mul(4))
      const names = Object.fromEntries(loaded.map((value, j) => [`v${j}`, value.operand]))
      trace.emit(memory[`st.shared.v4.${type}`]!, { ...names, address: target.operand })
    }
    const [byte, half] = [w.byteAt(k.threadIdx), w.byteAt(k.threadIdx.add(128))]
    trace.emit(memory['st.shared.u8']!, { v: k.threadIdx.operand, address: byte.operand })
    trace.emit(memory['st.shared.u16']!, { v: words.load(thread).bitAnd(0xffff).operand, address: half.operand })
    k.barrier()
    put(f.load(k.threadIdx.mul(3)))
    put(i.load(k.threadIdx.mul(3)))
    for (const [type, array] of [
      ['u8', k.threadIdx],
      ['u16', k.threadIdx.add(128)],
    ] as const) {
      const v = trace.register('u32')
      trace.emit(memory[`ld.shared.${type}`]!, { v, address: w.byteAt(array).operand })
      put(new Val(trace, 'u32', v))
    }
  },
}

/**
 * Copies of one size: a card with driver 580 refuses a kernel in which copies of several sizes share an L2 policy as an
 * illegal instruction.
 */
const threadCopies = (bytes: 4 | 8 | 16, hint: boolean): Exercise => ({
  name: `thread_copies_${bytes}${hint ? '_hint' : ''}`,
  since: 80,
  body: (k, { words, thread, put }) => {
    const count = bytes / 4
    const shared = k.shared('u32', 128 * count)
    const options = hint ? { policy: k.cachePolicy('evict_last') } : {}
    const valid = thread.bitAnd(3).mul(count)
    k.threadCopies.load(shared.byteAt(k.threadIdx.mul(count)), words.address(thread.mul(count)), {
      ...{ bytes, valid },
      ...options,
    })
    k.threadCopies.commit()
    k.threadCopies.wait(0)
    k.barrier()
    for (let j = 0; j < count; j++) put(shared.load(k.threadIdx.bitXor(33).mul(count).add(j)))
  },
})

/** Copies by threads that complete on an mbarrier. */
const announcedCopies: Exercise = {
  name: 'announced_copies',
  since: 90,
  body: (k, { words, thread, put }) => {
    const shared = k.shared('u32', 512)
    const arrived = k.barriers(1)
    k.when(k.threadIdx.eq(0), () => {
      arrived.init(128)
      k.fenceBarrierInit()
    })
    k.barrier()
    k.threadCopies.load(shared.byteAt(k.threadIdx.mul(4)), words.address(thread.mul(4)))
    arrived.arriveAfterCopies(0)
    arrived.wait(0, 0)
    for (const word of shared.load4(k.threadIdx.bitXor(85).mul(4))) put(word)
  },
}

export const memoryExercises: readonly Exercise[] = [
  ...[globalMemory, guarded, wide, sharedMemory],
  ...([4, 8, 16] as const).flatMap(bytes => [threadCopies(bytes, false), threadCopies(bytes, true)]),
  announcedCopies,
]
