/** Exercises of the copy engine and of clusters. */

import type { KernelBuilder } from '../../lang/builder.ts'
import type { Barriers } from '../../lang/mbarrier.ts'
import { type Exercise, freeWord } from './exercise.ts'

/** Barriers of one arrival each, ready for use by every thread of the block or cluster. */
function readyBarriers(k: KernelBuilder, count: number, clustered = false): Barriers {
  const barriers = k.barriers(count)
  k.when(k.threadIdx.eq(0), () => {
    barriers.init(1)
    k.fenceBarrierInit()
  })
  if (clustered) k.cluster.barrier()
  else k.barrier()
  return barriers
}

const bulk: Exercise = {
  name: 'bulk',
  since: 90,
  body: (k, { words, out, thread, put }) => {
    const shared = k.shared('u32', 512)
    const barriers = readyBarriers(k, 2)
    k.when(k.threadIdx.eq(0), () => {
      k.bulk.prefetch(words.address(0), 2048)
      barriers.arriveExpect(0, 1024)
      k.bulk.load(shared.byteAt(0), words.address(64), 1024, barriers.address(0))
      barriers.expect(1, 1024)
      barriers.arrive(1)
      k.bulk.load(shared.byteAt(256), words.address(1000), 1024, barriers.address(1), {
        policy: k.cachePolicy('evict_first'),
      })
    })
    barriers.wait(0, 0)
    barriers.wait(1, 0)
    put(shared.load(k.threadIdx.mul(2)))
    put(shared.load(k.threadIdx.mul(2).add(256)))
    k.barrier()
    shared.store(k.threadIdx, thread.mul(0x9e3779b1))
    k.fenceProxyAsync('shared')
    k.barrier()
    k.when(k.threadIdx.eq(0), () => {
      k.bulk.store(out.address(freeWord), shared.byteAt(0), 512)
      k.bulk.commit()
      k.bulk.waitRead(0)
      k.bulk.store(out.address(freeWord + 512), shared.byteAt(256), 1024)
      k.bulk.commit()
      k.bulk.wait(0)
    })
  },
}

const tensorCopies: Exercise = {
  name: 'tensor_copies',
  since: 90,
  body: (k, { matrix, cube, outMatrix, outCube, put }) => {
    const tile = () => k.tile({ dtype: 'e4m3', rows: 16, columns: 128 })
    const box = () => k.tile({ dtype: 'e4m3', rows: 8, columns: 128 })
    const [a, b, c, d] = [tile(), tile(), box(), box()]
    const barriers = readyBarriers(k, 1)
    const policy = k.cachePolicy('evict_normal')
    k.when(k.threadIdx.eq(0), () => {
      matrix.prefetchMap()
      matrix.prefetch([0, 40])
      cube.prefetch([0, 3, 5])
      barriers.arriveExpect(0, 2 * matrix.boxBytes + 2 * cube.boxBytes)
      matrix.load(a.address(), [0, 40], barriers.address(0))
      matrix.load(b.address(), [16, 505], barriers.address(0), { policy })
      cube.load(c.address(), [0, 3, 5], barriers.address(0))
      cube.load(d.address(), [0, -1, 31], barriers.address(0), { policy })
    })
    barriers.wait(0, 0)
    for (const [of, rows] of [
      [a, 16],
      [b, 16],
      [c, 8],
      [d, 8],
    ] as const)
      for (let word = 0; word < (rows * 32) / 128; word++)
        put(of.loadWord(of.at(0, k.threadIdx.shr(5).add(4 * word), k.lane.mul(4))))
    k.barrier()
    k.when(k.threadIdx.eq(0), () => {
      outMatrix.store(a.address(), [0, 100])
      outCube.store(c.address(), [0, 4, 40])
      k.bulk.commit()
      k.bulk.wait(0)
    })
    k.fenceProxyAsync('global')
    k.fenceProxyAsync('all')
  },
}

const pairs = { since: 90, blocks: 4, cluster: 2 } as const

/** The blocks of a pair read and write each other's arrays. */
const remotes: Exercise = {
  ...pairs,
  name: 'cluster_remotes',
  body: (k, { words, signed, floats, thread, put }) => {
    const [w, i, f] = [k.shared('u32', 256), k.shared('i32', 256), k.shared('f32', 256)]
    const { rank, index } = k.cluster
    const peer = rank.bitXor(1)
    put(rank)
    put(index)
    w.store(k.threadIdx, words.load(thread))
    i.store(k.threadIdx, signed.load(thread))
    f.store(k.threadIdx, floats.load(thread))
    k.cluster.barrier()
    put(k.cluster.load(w, k.threadIdx, peer))
    put(k.cluster.load(i, k.threadIdx, peer))
    put(k.cluster.load(f, k.threadIdx, peer))
    k.cluster.store(w, k.threadIdx.add(128), thread, peer)
    k.cluster.store(i, k.threadIdx.add(128), signed.load(thread.add(5)), peer)
    k.cluster.store(f, k.threadIdx.add(128), floats.load(thread.add(5)), peer)
    k.cluster.barrier()
    put(w.load(k.threadIdx.add(128)))
    put(i.load(k.threadIdx.add(128)))
    put(f.load(k.threadIdx.add(128)))
  },
}

/** They send each other words, bytes and arrivals that complete on barriers. */
const asyncStores: Exercise = {
  ...pairs,
  name: 'cluster_async_stores',
  body: (k, { words, signed, floats, thread, put }) => {
    const source = k.shared('u32', 64)
    const [w, i, f] = [k.shared('u32', 704), k.shared('i32', 640), k.shared('f32', 640)]
    const barriers = readyBarriers(k, 4, true)
    const peer = k.cluster.rank.bitXor(1)
    k.when(k.threadIdx.lt(64), () => source.store(k.threadIdx, words.load(thread)))
    k.fenceProxyAsync('shared')
    k.barrier()
    k.when(k.threadIdx.eq(0), () => {
      barriers.arriveExpect(0, 3 * 128 * (4 + 16))
      barriers.arriveExpect(1, 256)
      barriers.arriveExpectAt(2, peer, 0)
      barriers.arriveAt(3, peer)
      const target = w.byteAt(640)
      k.cluster.push({ source: source.byteAt(0), target, bytes: 256, barrier: barriers.address(1) }, peer)
    })
    const to = barriers.address(0)
    const four = k.threadIdx.mul(4)
    k.cluster.storeAsync(w, k.threadIdx.add(512), [thread], to, peer)
    k.cluster.storeAsync(i, k.threadIdx.add(512), [signed.load(thread)], to, peer)
    k.cluster.storeAsync(f, k.threadIdx.add(512), [floats.load(thread)], to, peer)
    k.cluster.storeAsync(w, four, words.load4(thread.mul(4)), to, peer)
    k.cluster.storeAsync(i, four, signed.load4(thread.mul(4)), to, peer)
    k.cluster.storeAsync(f, four, floats.load4(thread.mul(4)), to, peer)
    for (let barrier = 0; barrier < 4; barrier++) barriers.wait(barrier, 0)
    for (const at of [0, 128, 256, 384, 512]) {
      put(w.load(k.threadIdx.add(at)))
      put(i.load(k.threadIdx.add(at)))
      put(f.load(k.threadIdx.add(at)))
    }
    put(w.load(k.threadIdx.bitAnd(63).add(640)))
    k.cluster.barrier()
  },
}

/** One block of a pair brings bytes for both. */
const multicasts: Exercise = {
  ...pairs,
  name: 'cluster_multicasts',
  body: (k, { words, matrix, cube, put }) => {
    const tile = () => k.tile({ dtype: 'e4m3', rows: 16, columns: 128 })
    const box = () => k.tile({ dtype: 'e4m3', rows: 8, columns: 128 })
    const tiles = [tile(), tile(), box(), box()] as const
    const received = k.shared('u32', 512)
    const barriers = readyBarriers(k, 1)
    k.when(k.threadIdx.eq(0), () => barriers.arriveExpect(0, 2 * matrix.boxBytes + 2 * cube.boxBytes + 2048))
    k.cluster.barrier()
    const multicast = 3
    const policy = k.cachePolicy('evict_last')
    k.when(k.threadIdx.eq(0).and(k.cluster.rank.eq(1)), () => {
      const arrived = barriers.address(0)
      matrix.load(tiles[0].address(), [0, 40], arrived, { multicast })
      matrix.load(tiles[1].address(), [0, 77], arrived, { multicast, policy })
      cube.load(tiles[2].address(), [0, 3, 5], arrived, { multicast })
      cube.load(tiles[3].address(), [0, 12, 7], arrived, { multicast, policy })
      k.bulk.load(received.byteAt(0), words.address(64), 1024, arrived, { multicast })
      k.bulk.load(received.byteAt(256), words.address(640), 1024, arrived, { multicast, policy })
    })
    barriers.wait(0, 0)
    for (const of of tiles) put(of.loadWord(of.at(0, k.threadIdx.shr(5).add(4), k.lane.mul(4))))
    for (let j = 0; j < 4; j++) put(received.load(k.threadIdx.add(128 * j)))
    k.cluster.barrier()
  },
}

export const engineExercises: readonly Exercise[] = [bulk, tensorCopies, remotes, asyncStores, multicasts]
