/** e4m3 quantisation by the host codecs, which define it. */

import { packRow } from '../../tensor/row-codec.ts'
import type { Tensor } from '../../tensor/tensor.ts'
import type { QuantizeProblem } from './problem.ts'

export interface Quantized {
  /** Row-major, as x. */
  readonly codes: Uint8Array
  /** ceil(width / scaleBlock) a row; empty without scales. */
  readonly scales: Float32Array
}

export function quantizeReference(x: Tensor, { scaleBlock, powerOfTwoScales }: QuantizeProblem): Quantized {
  const width = x.shape.at(-1)!
  const xs = x.floats()
  const perRow = scaleBlock === 0 ? 0 : Math.ceil(width / scaleBlock)
  const rows = xs.length / width
  const codes = new Uint8Array(xs.length)
  const scales = new Float32Array(rows * perRow)
  for (let r = 0; r < rows; r++) {
    const [start, end] = [r * width, (r + 1) * width]
    const own = scales.subarray(r * perRow, (r + 1) * perRow)
    packRow({ dtype: 'e4m3', scaleBlock }, xs.subarray(start, end), codes.subarray(start, end), own, {
      powerOfTwoScales,
    })
  }
  return { codes, scales }
}
