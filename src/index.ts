/**
 * DeepSeek sparse attention (DSA) and multi-head latent attention (MLA): tensors, paged caches, devices, operations.
 * Runs in Node and in browsers; what needs the file system is in `sparse-mla/node`.
 *
 * @module
 */

export type { CpuOptions } from './cpu/options.ts'
export type { CudaDevice } from './cuda/device.ts'
export type { CudaGraph } from './cuda/graph.ts'
export type { KernelReport } from './cuda/modules.ts'
export type { CudaOptions } from './cuda/options.ts'
export type { CallOptions, Device, DeviceKind, DeviceLimits, Plan } from './device.ts'
export { decodeArray, encodeArray } from './dtypes/convert.ts'
export { type Dtype, dtypeInfo, type FloatDtype, isDtype, type StorageOf } from './dtypes/dtype.ts'
export { finiteAmax, powerOfTwoScaleForAmax, quantizeBlock, scaleForAmax } from './dtypes/quantize.ts'
export {
  AbortedError,
  DeviceError,
  DisposedError,
  DtypeError,
  type ErrorCode,
  type ErrorFacts,
  FaultError,
  FormatError,
  IndexSpaceError,
  MemoryError,
  OptionError,
  OverlapError,
  ShapeError,
  SparseMlaError,
  UnsupportedError,
  ValueError,
} from './errors.ts'
export type { Mask } from './kernels/dense-prefill/mask.ts'
export * as masks from './kernels/dense-prefill/masks.ts'
export type { ScoreMod } from './kernels/dense-prefill/score-mods.ts'
export * as scoreMods from './kernels/dense-prefill/score-mods.ts'
export { type DsaChoices, type DsaConfig, parseDsaConfig } from './model/config.ts'
export { DsaAttention, type DsaOptions, type StageTime } from './model/dsa-attention.ts'
export type { DsaCacheSpec, IndexLayoutName } from './model/dsa-cache.ts'
export {
  type RopeTable,
  type RopeTableSpec,
  ropeTable,
  type YarnOptions,
  yarnSoftmaxScale,
} from './model/rope-table.ts'
export type { DsaStage, StepArgs, StepOutput, StepResult } from './model/step-args.ts'
export { beginStep, type StepBatch } from './model/step-batch.ts'
export { StepFrame, type StepFrameSpec } from './model/step-frame.ts'
export { type DsaWeights, dsaWeights, fromRecord, type TensorSource } from './model/weights.ts'
export { type DeviceName, type DeviceOf, type OptionsOf, openDevice } from './open-device.ts'
export { type AppendSequencesArgs, type AppendSequencesResult, appendSequences } from './ops/append-sequences.ts'
export { type AppendToCacheArgs, appendToCache } from './ops/append-to-cache.ts'
export { type CastArgs, type CastResult, cast } from './ops/cast.ts'
export { type DenseDecodeArgs, type DenseDecodeResult, denseDecode } from './ops/dense-decode.ts'
export { type DensePrefillArgs, type DensePrefillResult, densePrefill } from './ops/dense-prefill.ts'
export { type GatherFromCacheArgs, type GatherFromCacheResult, gatherFromCache } from './ops/gather-from-cache.ts'
export { type HadamardArgs, hadamard } from './ops/hadamard.ts'
export { type IndexScoresArgs, type IndexScoresResult, indexScores } from './ops/index-scores.ts'
export { type IndexTopKArgs, indexTopK } from './ops/index-top-k.ts'
export { type LayerNormArgs, layerNorm } from './ops/layer-norm.ts'
export { type LinearArgs, linear } from './ops/linear.ts'
export { type MergeStatesArgs, type MergeStatesResult, mergeStates } from './ops/merge-states.ts'
export { type MultiplyArgs, multiply } from './ops/multiply.ts'
export type { Op } from './ops/op.ts'
export { type QuantizeArgs, type QuantizeResult, quantize } from './ops/quantize.ts'
export { type RemapIndicesArgs, type RemapIndicesResult, remapIndices } from './ops/remap-indices.ts'
export { type RmsNormArgs, rmsNorm } from './ops/rms-norm.ts'
export { type RopeArgs, type RopeStyle, rope } from './ops/rope.ts'
export type { OutResult } from './ops/row-args.ts'
export type { Selection } from './ops/selection-args.ts'
export { type SparseDecodeArgs, type SparseDecodeResult, sparseDecode } from './ops/sparse-decode.ts'
export { type SparsePrefillArgs, type SparsePrefillResult, sparsePrefill } from './ops/sparse-prefill.ts'
export { type TopKArgs, topK } from './ops/top-k.ts'
export { type Packed656Parts, type PlanarParts, packed656Parts, planarParts } from './tensor/byte-views.ts'
export {
  bytesPerToken,
  type CacheDtype,
  type IndexLayout,
  type LatentLayout,
  type LatentLayoutName,
  latentLayouts,
  packed656Offsets,
  planarBlock,
} from './tensor/cache-layout.ts'
export type { IndexPool, LatentPool } from './tensor/cache-pool.ts'
export { type AnyTensor, DeviceTensor } from './tensor/device-tensor.ts'
export { appendRows, gatherRows, type LayerRows, type RaggedBatch } from './tensor/host-cache.ts'
export { type NpyOptions, parseNpy, writeNpy } from './tensor/npy.ts'
export { type AppendRequest, PageTable, unusedPage } from './tensor/page-table.ts'
export { createPagedCache, PagedCache, type PagedCacheSpec } from './tensor/paged-cache.ts'
export type { QuantizeOptions } from './tensor/row-codec.ts'
export { parseSafetensors, type SafetensorsFile, writeSafetensors } from './tensor/safetensors.ts'
export type { Shape } from './tensor/shape.ts'
export { type IndexSpace, type Indices, logical, rows, slots } from './tensor/spaces.ts'
export { fromFloats, Tensor, tensor, zeros } from './tensor/tensor.ts'
