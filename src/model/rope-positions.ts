/** The rope tables of a layer on a device: as long as its sequences have become. */

import type { Device } from '../device.ts'
import { DeviceError, ShapeError, ValueError } from '../errors.ts'
import type { DeviceTensor } from '../tensor/device-tensor.ts'
import type { Tensor } from '../tensor/tensor.ts'
import type { DsaConfig } from './config.ts'
import { type RopeTable, ropeTable } from './rope-table.ts'

const leastPositions = 256

/** Tables `[positions, rope / 2]`, computed when a longer sequence needs them, or given once. */
export class RopePositions implements Disposable {
  private readonly device: Device
  private readonly config: DsaConfig
  private readonly given: RopeTable | undefined
  private table: { readonly cos: DeviceTensor<'f32'>; readonly sin: DeviceTensor<'f32'> } | undefined

  /**
   * @param given tables f32 `[positions, rope / 2]`, or `[positions, rope]` as Hugging Face has them, whose second half
   *   repeats the first
   * @throws ShapeError
   */
  constructor(device: Device, config: DsaConfig, given?: RopeTable) {
    this.device = device
    this.config = config
    this.given = given && {
      cos: firstHalf('rope.cos', given.cos, config),
      sin: firstHalf('rope.sin', given.sin, config, given.cos.shape[0]),
    }
  }

  /**
   * Tables with at least the positions 0 .. positions-1.
   *
   * @throws ValueError when the given ones are shorter; DeviceError when they are missing while a graph is recorded, which
   *   would own them; MemoryError
   */
  upTo(positions: number): { readonly cos: DeviceTensor<'f32'>; readonly sin: DeviceTensor<'f32'> } {
    const { table } = this
    if (table !== undefined && positions <= table.cos.shape[0]!) return table
    this.checkGiven(positions)
    if ('isRecording' in this.device && this.device.isRecording === true)
      throw new DeviceError({
        where: 'DsaAttention.step',
        argument: 'device',
        given: `${this.device.name} while it records a graph, without rope tables of ${positions} positions`,
        allowed: 'tables made before',
        hint: `call attention.reserve(${positions}) first`,
      })
    const rows = Math.max(leastPositions, 2 ** Math.ceil(Math.log2(Math.max(1, positions))))
    const { rope: dim, ropeTheta: theta, yarn } = this.config
    const { cos, sin } = this.given ?? ropeTable({ positions: rows, dim, theta, yarn })
    this[Symbol.dispose]()
    const uploaded = this.device.upload(cos)
    try {
      return (this.table = { cos: uploaded, sin: this.device.upload(sin) })
    } catch (error) {
      uploaded.dispose()
      throw error
    }
  }

  private checkGiven(positions: number): void {
    const most = this.given?.cos.shape[0] ?? positions
    if (positions > most)
      throw new ValueError({
        where: 'DsaAttention.step',
        argument: 'sequences',
        given: `${positions} positions`,
        allowed: `at most ${most}, the rows of the given rope tables`,
      })
  }

  [Symbol.dispose](): void {
    this.table?.cos.dispose()
    this.table?.sin.dispose()
    this.table = undefined
  }
}

function firstHalf(
  argument: string,
  table: Tensor<'f32'>,
  { rope }: DsaConfig,
  positions: number | string = 'positions',
): Tensor<'f32'> {
  const [rows, width] = table.shape
  const fits = table.shape.length === 2 && (width === rope || width === rope / 2)
  if (fits && (rows === positions || typeof positions === 'string')) return table.narrow(1, 0, rope / 2)
  throw new ShapeError({
    where: 'DsaAttention.create',
    argument,
    given: [...table.shape],
    allowed: `[${positions}, ${rope / 2}] or [${positions}, ${rope}]`,
  })
}
