import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import type { KernelBuilder } from '../lang/builder.ts'
import { Fragments } from '../lang/fragments.ts'
import { type Bound, type Kernel, kernel } from '../lang/kernel.ts'
import { input, output, tensorMap } from '../lang/params.ts'
import { printPtx } from './print.ts'

const params = {
  x: input('bf16', 'x'),
  out: output('u32', 'out'),
  map: tensorMap({ dtype: 'bf16', box: [64, 64], swizzle: 128 }, 'tiles'),
  deep: tensorMap({ dtype: 'bf16', box: [64, 64, 1], swizzle: 128 }, 'tiles of tiles'),
}

type P = { readonly [K in keyof typeof params]: Bound<(typeof params)[K]> }

const hopper = (
  define: (k: KernelBuilder, p: P) => void,
  { threads = 128, cluster = 1 }: { readonly threads?: number; readonly cluster?: number } = {},
): Kernel =>
  kernel({ name: 'family', target: 'sm_90a', threads, cluster, params, residentBlocks: 1 }, (k, p) => define(k, p))

/** Keeps a value alive. */
const keep = (k: KernelBuilder, { out }: P, value: Parameters<P['out']['store']>[1]): void =>
  out.store(k.threadIdx, value)

const families: Readonly<Record<string, Kernel>> = {
  'copies by threads': hopper((k, p) => {
    const tile = k.shared('u32', 512)
    const bars = k.barriers(1)
    const policy = k.cachePolicy('evict_first')
    const target = tile.byteAt(k.threadIdx.mul(4))
    for (const bytes of [4, 8, 16] as const) {
      k.threadCopies.load(target, p.x.address(k.threadIdx.mul(8)), { bytes, valid: k.lane.bitAnd(3) })
      k.threadCopies.load(target, p.x.address(k.threadIdx.mul(8)), { bytes, policy })
    }
    k.threadCopies.commit()
    bars.arriveAfterCopies(0)
    k.threadCopies.wait(1)
    k.threadCopies.wait(0)
    keep(k, p, tile.load(k.threadIdx))
  }),
  'copies by the engine': hopper((k, p) => {
    const tile = k.tile({ dtype: 'bf16', rows: 64, columns: 64 })
    const bars = k.barriers(1)
    const policy = k.cachePolicy('evict_last')
    k.when(k.threadIdx.eq(0), () => {
      bars.init(1)
      k.fenceBarrierInit()
      p.map.prefetchMap()
      p.map.prefetch([0, 0])
      p.deep.prefetch([0, 0, 0])
      bars.arriveExpect(0, 3 * p.map.boxBytes)
      p.map.load(tile.address(), [0, 64], bars.address(0), { policy })
      p.deep.load(tile.address(), [0, 64, 1], bars.address(0))
      k.bulk.prefetch(p.x.address(0), 128)
      k.bulk.load(tile.address(), p.x.address(0), 1024, bars.address(0), { policy })
      k.bulk.load(tile.address(), p.x.address(0), 1024, bars.address(0))
      bars.expect(0, 16)
      bars.wait(0, 0)
      for (const memory of ['shared', 'global', 'all'] as const) k.fenceProxyAsync(memory)
      p.map.store(tile.address(), [0, 0])
      p.deep.store(tile.address(), [0, 0, 0])
      k.bulk.store(p.out.address(0), tile.address(), 1024)
      k.bulk.commit()
      k.bulk.waitRead(0)
      k.bulk.wait(0)
    })
  }),
  'matrices in lanes': hopper((k, p) => {
    const tile = k.tile({ dtype: 'bf16', rows: 64, columns: 64 })
    const address = tile.at(0, k.lane, k.threadIdx.shr(5).mul(16))
    const sum = k.var('u32', 0)
    for (const transposed of [false, true])
      for (const count of [1, 2, 4] as const) {
        const words = k.loadMatrices(address, count, { transposed })
        for (const word of words) sum.set(sum.add(word))
        k.storeMatrices(address, words, { transposed })
      }
    keep(k, p, sum)
  }),
  'multiplies of bf16': hopper((k, p) => {
    const a = k.tile({ dtype: 'bf16', rows: 64, columns: 128, stages: 2 })
    const b = k.tile({ dtype: 'bf16', rows: 64, columns: 128 })
    const [s, o] = [k.accumulator(64), k.accumulator(128)]
    k.fenceProxyAsync()
    k.barrier()
    for (const i of k.range(4)) {
      k.warpgroup.fence()
      s.multiply({ tile: a, stage: i.bitAnd(1) }, { tile: b })
      k.warpgroup.commit()
      k.warpgroup.wait(0)
      for (let j = 0; j < s.length; j++) s.set(j, s.get(j).mul(0.5))
      const probabilities = s.toFragments('bf16')
      k.warpgroup.fence()
      o.multiply(probabilities, { tile: b, transposed: true }, { accumulate: i })
      k.warpgroup.commit()
      k.warpgroup.wait(0)
    }
    let sum = o.get(0)
    for (let j = 1; j < o.length; j++) sum = sum.add(o.get(j))
    keep(k, p, sum.bits())
  }),
  'multiplies of e4m3': hopper((k, p) => {
    const a = k.tile({ dtype: 'e4m3', rows: 64, columns: 128 })
    const b = k.tile({ dtype: 'e4m3', rows: 64, columns: 128 })
    const [s, o] = [k.accumulator(64), k.accumulator(64)]
    k.barrier()
    const words = [0, 32].flatMap(byte => [...k.loadMatrices(a.at(0, k.lane, byte), 4)])
    k.warpgroup.fence()
    s.multiply(new Fragments('e4m3', words), { tile: b })
    s.multiply({ tile: a, column: 64 }, { tile: b, column: 64 }, { accumulate: true })
    k.warpgroup.commit()
    k.warpgroup.wait(0)
    const fragments = s.toFragments('e4m3')
    k.warpgroup.fence()
    o.multiply(fragments, { tile: b })
    k.warpgroup.commit()
    k.warpgroup.wait(0)
    let sum = o.get(0)
    for (let j = 1; j < o.length; j++) sum = sum.add(o.get(j))
    keep(k, p, sum.bits())
  }),
  'agreement and time': hopper((k, p) => {
    k.waitForPrevious()
    const start = k.clock()
    const x = k.threadIdx
    let sum = k
      .any(x.eq(3))
      .select(x, 0)
      .add(k.all(x.lt(3)).select(x, 1))
    for (const op of ['add', 'min', 'max'] as const)
      sum = sum.add(k.reduce(op, x)).add(k.reduce(op, x.to('i32')).to('u32'))
    k.sleep(20)
    k.barrierAmong(1, 64)
    k.arriveAmong(k.lane.shr(5).add(2), 128)
    k.when(k.elect(), () => keep(k, p, sum.add(k.clock().sub(start).to('u32'))))
    k.launchNext()
  }),
  'roles with registers': hopper(
    (k, p) => {
      k.role('copy', { warps: [0, 4], registers: 24 }, () => keep(k, p, k.lane))
      k.role('math', { warps: [4, 12], registers: 240 }, () => keep(k, p, k.lane))
    },
    { threads: 384 },
  ),
  clusters: hopper(
    (k, p) => {
      const [box, words] = [k.shared('u32', 128), k.shared('f32', 128)]
      const tile = k.tile({ dtype: 'bf16', rows: 64, columns: 64 })
      const bars = k.barriers(2)
      k.when(k.threadIdx.eq(0), () => {
        bars.init(1)
        k.fenceBarrierInit()
      })
      k.cluster.barrier()
      const peer = k.cluster.rank.bitXor(1)
      k.cluster.store(box, k.threadIdx, k.cluster.index, peer)
      k.cluster.storeAsync(words, k.threadIdx, [1], bars.address(0), peer)
      k.cluster.storeAsync(words, 0, [1, 2, 3, 4], bars.address(0), peer)
      k.when(k.threadIdx.eq(0), () => {
        const to = { source: box.byteAt(), target: box.byteAt(), bytes: 64, barrier: bars.address(1) }
        k.cluster.push(to, peer)
        p.map.load(tile.address(), [0, 0], bars.address(0), { multicast: 3 })
        p.map.load(tile.address(), [0, 0], bars.address(0), { multicast: 3, policy: k.cachePolicy('evict_normal') })
        k.bulk.load(tile.address(), p.x.address(0), 128, bars.address(0), { multicast: 3 })
        bars.arriveAt(0, peer)
        bars.arriveExpectAt(1, peer, 64)
      })
      bars.wait(0, 0)
      keep(k, p, k.cluster.load(box, k.threadIdx, peer))
      k.cluster.barrier()
    },
    { cluster: 2 },
  ),
}

const hasPtxas = ((): boolean => {
  try {
    execFileSync('ptxas', ['--version'], { stdio: 'ignore' })
    return true
  } catch {
    return false
  }
})()

describe.runIf(hasPtxas)('ptxas accepts every family for sm_90a, without spills, copies or injected waits', () => {
  test.each(Object.entries(families))('%s', (_, traced) => {
    const folder = mkdtempSync(join(tmpdir(), 'ptx-'))
    try {
      const file = join(folder, 'kernel.ptx')
      writeFileSync(file, printPtx(traced))
      const log = execFileSync('bash', ['-c', `ptxas -arch=sm_90a -v ${file} -o /dev/null 2>&1; true`], {
        encoding: 'utf8',
      })
      expect(log).toContain('0 bytes spill stores')
      expect(log).not.toMatch(/C75\d\d|error|warning/)
    } finally {
      rmSync(folder, { recursive: true })
    }
  })
})

test('clusters and their scope are in the text', () => {
  const text = printPtx(families.clusters!)
  expect(text).toContain('.reqnctapercluster 2, 1, 1')
  expect(text).toContain('mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64')
  expect(printPtx(families['copies by the engine']!)).toContain('mbarrier.try_wait.parity.shared::cta.b64')
})

test('descriptors count from where shared memory begins', () => {
  const text = printPtx(families['multiplies of bf16']!)
  const [, base] = /mov\.u32 (%u32_\d+), %smem;/.exec(text)!
  const [, address] = new RegExp(`add\\.u32 (%u32_\\d+), ${base}, %u32_\\d+;`).exec(text)!
  expect(text).toMatch(new RegExp(`bfe\\.u32 %t\\d+, ${address}, 4, 14;`))
})
