/**
 * Q of the Hopper sparse kernel for few heads, brought by the scoring warpgroup: asked for as soon as the item before needs
 * its own no more. Heads that do not exist become zeros.
 */

import type { KernelBuilder } from '../../lang/builder.ts'
import type { Val } from '../../lang/value.ts'
import { panelColumns } from './sm90-config.ts'
import {
  named,
  roleThreads,
  type SparseFewConfig,
  type SparseFewParams,
  type SparseFewShared,
} from './sm90-few-config.ts'
import type { WorkItem } from './sm90-work.ts'

type U32 = Val<'u32'>

/** Eight lanes copy 128 bytes of a head. */
const passHeads: number = roleThreads / 8

export class FewQuery {
  private readonly k: KernelBuilder
  private readonly c: SparseFewConfig
  private readonly p: SparseFewParams
  private readonly s: SparseFewShared

  constructor(k: KernelBuilder, c: SparseFewConfig, p: SparseFewParams, s: SparseFewShared) {
    this.k = k
    this.c = c
    this.p = p
    this.s = s
  }

  /** Starts the copies of an item's Q. */
  bring(item: WorkItem): void {
    const { k, c } = this
    const thread = k.threadIdx.bitAnd(roleThreads - 1)
    for (let first = 0; first < c.heads; first += passHeads) {
      const within = thread.shr(3).add(first)
      if (first + passHeads <= c.heads) this.bringHead(item, within)
      else k.when(within.lt(c.heads), () => this.bringHead(item, within))
    }
    k.threadCopies.commit()
  }

  private bringHead({ token, firstHead }: WorkItem, within: U32): void {
    const { k, p, s } = this
    const column = k.lane.bitAnd(7).mul(8)
    const head = firstHead.add(within)
    const real = head.lt(p.heads)
    const row = k.offset(column, token, p.qTokenStride)
    const address = p.q.address(k.offset(row, real.select(head, 0), p.qHeadStride))
    const target = s.queries.at(0, within, column.mul(2))
    const valid = real.select(k.const('u32', 16), 0)
    for (let panel = 0; panel < s.queries.panels; panel++)
      k.threadCopies.load(target.add(panel * s.queries.panelBytes), address.add(BigInt(2 * panelColumns * panel)), {
        valid,
      })
  }

  /** Waits until all of Q is there. */
  await(): void {
    const { k } = this
    k.threadCopies.wait(0)
    k.fenceProxyAsync()
    k.barrierAmong(named.exchange, roleThreads)
  }
}
