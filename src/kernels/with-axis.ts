/** Views with one more axis, as tensor maps of a fixed rank want them. */

import { DeviceTensor } from '../tensor/device-tensor.ts'

/** The tensor with an axis of extent 1 before axis `axis`; no copy, whatever its strides. */
export function withAxis({ dtype, shape, strides, offset, allocation }: DeviceTensor, axis: number): DeviceTensor {
  const spec = { dtype, offset, dims: undefined, space: undefined }
  const [extents, steps] = [
    shape.toSpliced(axis, 0, 1),
    strides.toSpliced(axis, 0, strides[axis === 0 ? 0 : axis - 1]!),
  ]
  return new DeviceTensor({ ...spec, shape: extents, strides: steps }, allocation)
}
