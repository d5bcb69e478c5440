import { describe, expect, test } from 'vitest'
import { printPtx } from '../ptx/print.ts'
import { kernel } from './kernel.ts'
import type { BarrierScope } from './mbarrier.ts'

const textOf = (cluster: number, scope?: BarrierScope): string =>
  printPtx(
    kernel({ name: 'scopes', target: 'sm_90a', threads: 32, cluster, params: {} }, k => {
      const ring = k.pipeline({ stages: 2, producers: 1, consumers: 2, ...(scope && { scope }) })
      ring.init()
      const [producer, consumer] = [ring.producer(), ring.consumer()]
      producer.acquire(16)
      consumer.acquire()
      if (cluster > 1) consumer.releaseAll(cluster)
    }),
  )

describe('the scope of the barriers of a cluster', () => {
  test('is the cluster by default: waits and remote arrivals publish all memory', () => {
    const text = textOf(2)
    expect(text.match(/try_wait\.parity\.acquire\.cluster/g)).toHaveLength(2)
    expect(text).toContain('mbarrier.arrive.release.cluster.shared::cluster.b64')
    expect(textOf(2, 'cluster')).toBe(text)
  })

  test('of a block leaves both plain', () => {
    const text = textOf(2, 'block')
    expect(text.match(/try_wait\.parity\.shared::cta/g)).toHaveLength(2)
    expect(text).toContain('mbarrier.arrive.shared::cluster.b64 _,')
    expect(text).not.toMatch(/acquire\.cluster|arrive\.release/)
  })

  test('does not matter without a cluster', () => {
    expect(textOf(1)).toBe(textOf(1, 'block'))
    expect(textOf(1)).not.toContain('cluster')
  })
})

test('an array over a tile takes its bytes, and no more than it has', () => {
  const traced = kernel({ name: 'over', target: 'sm_90a', threads: 32, params: {} }, k => {
    const tile = k.tile({ dtype: 'bf16', rows: 8, columns: 64 })
    expect(k.shared('f32', 256, tile).startByte).toBe(tile.startByte)
    expect(() => k.shared('f32', 257, tile)).toThrow('an array of 1040 bytes over a tile of 1024')
  })
  expect(traced.sharedBytes).toBe(1024)
})
