/** What copies of several bytes at a time ask of a tensor. */

import { dtypeInfo } from '../dtypes/dtype.ts'
import type { DeviceTensor } from '../tensor/device-tensor.ts'

/** Whether rows along the last axis are contiguous and start at multiples of `bytes`. */
export const aligned = ({ dtype, offset, strides }: DeviceTensor, bytes: number): boolean =>
  strides.at(-1) === 1 &&
  [offset, ...strides.slice(0, -1)].every(elements => (elements * dtypeInfo[dtype].bytes) % bytes === 0)
