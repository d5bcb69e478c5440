/** The scores of a tile inside the portable kernel: products of queries and keys, their scales, and the score mod. */

import type { Buffer } from '../../lang/buffer.ts'
import type { KernelBuilder } from '../../lang/builder.ts'
import type { FloatBufferDtype } from '../../lang/params.ts'
import type { Val } from '../../lang/value.ts'
import { type AttentionTile, tileColumns } from '../attention-tile.ts'
import { exp } from '../exponential.ts'
import { columnAt, type RowReader } from '../row-reader.ts'
import type { KeyTile, SequenceKeys } from './portable-keys.ts'
import type { Lanes } from './portable-lanes.ts'

type U32 = Val<'u32'>
type F32 = Val<'f32'>
type Pred = Val<'pred'>

export interface ScoreConfig {
  readonly qScaled: boolean
  readonly scoreMod: 'identity' | 'alibi' | 'softcap'
}

export interface ScoreBound {
  readonly qNope: Buffer<FloatBufferDtype>
  readonly qNopeTokenStride: U32
  readonly qNopeHeadStride: U32
  readonly qRope: Buffer<FloatBufferDtype>
  readonly qRopeTokenStride: U32
  readonly qRopeHeadStride: U32
  readonly qScale: Buffer<'f32'>
  readonly scale: F32
  readonly cap: F32
  readonly slopes: Buffer<'f32'>
  readonly nope: U32
  readonly ropeFirst: U32
  readonly ropeScaleBlock: U32
}

/** What a block has. */
export interface ScoreParts {
  readonly tile: AttentionTile
  readonly keys: KeyTile
  readonly lanes: Lanes
}

export class Scorer {
  private readonly k: KernelBuilder
  private readonly c: ScoreConfig
  private readonly p: ScoreBound
  private readonly parts: ScoreParts

  constructor(k: KernelBuilder, c: ScoreConfig, p: ScoreBound, parts: ScoreParts) {
    this.k = k
    this.c = c
    this.p = p
    this.parts = parts
  }

  /** Scores of the thread's key and lanes, biases apart. Only keys for which `isRead` holds are read. */
  scores(s: SequenceKeys, base: U32, isRead: (index: U32) => Pred): readonly F32[] {
    const { tile, keys } = this.parts
    const dots = this.dots(s, base, isRead)
    const keyScale = keys.reader('keyScale', s, base, 0)?.(tile.key)(isRead(tile.key), 0)
    return tile.scoreLanes().map((lane, i) => {
      const product = dots[i]!.mul(this.factorOf(lane))
      return this.modified(keyScale === undefined ? product : product.mul(keyScale), lane, base.add(tile.key))
    })
  }

  private factorOf(lane: U32): F32 {
    const { c, p } = this
    if (!c.qScaled) return p.scale
    const { real, token } = this.parts.lanes.at(lane)
    return p.qScale.loadIf(real, token).mul(p.scale)
  }

  private modified(score: F32, lane: U32, key: U32): F32 {
    const { k, c, p } = this
    const { lanes } = this.parts
    if (c.scoreMod === 'softcap') return tanh(k, score.div(p.cap)).mul(p.cap)
    if (c.scoreMod === 'identity') return score
    const { real, head } = lanes.at(lane)
    const distance = lanes.positionOf(lane).sub(key.to('i32')).max(0).to('f32')
    return distance.neg().fma(p.slopes.loadIf(real, head), score)
  }

  /** Products of the thread's key and lanes. */
  private dots(s: SequenceKeys, base: U32, isRead: (index: U32) => Pred): readonly F32[] {
    const { k, p } = this
    const { tile, keys } = this.parts
    const dots = k.vars('f32', tile.threadLanes, 0)
    const add = (): void => {
      k.barrier()
      tile.addDots(dots)
      k.barrier()
    }
    const { loadColumn } = tile
    for (const first of k.range(p.nope, { step: tileColumns })) {
      const column = first.add(loadColumn)
      const open = keys.reader('nope', s, base, column)!
      const inside = (step: number): Pred => column.add(step).lt(p.nope)
      tile.loadQueries(lane => {
        const { exists, read } = this.query(p.qNope, p.qNopeTokenStride, p.qNopeHeadStride, lane, column)
        return step => read(exists.and(inside(step)), step)
      })
      tile.loadKeys(index => {
        const [read, exists] = [open(index), isRead(index)]
        return step => read(exists.and(inside(step)), step)
      })
      add()
    }
    tile.loadQueries(lane => {
      const { exists, read } = this.query(p.qRope, p.qRopeTokenStride, p.qRopeHeadStride, lane, loadColumn)
      return step => read(exists, step)
    })
    tile.loadKeys(index => this.rope(s, base, index, isRead(index)))
    add()
    return dots
  }

  /** The reader of a key's rope, scaled. */
  private rope(s: SequenceKeys, base: U32, index: U32, exists: Pred): RowReader {
    const { p } = this
    const { tile, keys } = this.parts
    const read = keys.reader('rope', s, base, tile.loadColumn)!(index)
    const scales = keys.reader('ropeScales', s, base, 0)?.(index)
    return step => {
      const value = read(exists, step)
      if (scales === undefined) return value
      return value.mul(scales(exists, tile.loadColumn.add(step).add(p.ropeFirst).div(p.ropeScaleBlock)))
    }
  }

  private query(from: Buffer<FloatBufferDtype>, tokenStride: U32, headStride: U32, lane: U32, column: U32) {
    const { k } = this
    const { real, token, head } = this.parts.lanes.at(lane)
    const row = k.offset(k.offset(column, token, tokenStride), head, headStride)
    const read = (condition: Pred, step: number): F32 => from.loadIf(condition, columnAt(k, row, step)) as F32
    return { exists: real, read }
  }
}

/** tanh, within a few ulp: Cephes' odd polynomial below 0.625, 1 - 2 / (e^2x + 1) above. NaN stays NaN. */
function tanh(k: KernelBuilder, x: F32): F32 {
  const magnitude = x.abs()
  const z = x.mul(x)
  const coefficients = [2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1]
  const p = coefficients.reduce<F32>((sum, c) => sum.fma(z, c), k.const('f32', -5.70498872745e-3))
  const near = p.mul(z).fma(x, x)
  const far = k.const('f32', 1).sub(k.const('f32', 2).div(exp(k, magnitude.add(magnitude)).add(1)))
  const signed = x.lt(0).select(far.neg(), far)
  return magnitude.lt(0.625).select(near, signed)
}
