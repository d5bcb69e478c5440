/** What a program needs to load an emitted kernel and launch it through the CUDA driver, as plain data. */

import type { LaunchArg } from '../lang/launch.ts'
import type { Param } from '../lang/params.ts'
import { printPtx } from '../ptx/print.ts'
import { DeviceTensor } from '../tensor/device-tensor.ts'
import type { TracedKernel } from './kernels.ts'

/** A parameter; its bytes are what `cuLaunchKernel` copies. */
export type ManifestParam = { readonly name: string; readonly bytes: number; readonly meaning: string } & (
  | { readonly kind: 'buffer'; readonly dtype: string; readonly access: 'read' | 'write' }
  | { readonly kind: 'scalar'; readonly dtype: 'u32' | 'i32' | 'f32' }
  | {
      readonly kind: 'tensorMap'
      /** Bytes that the map must be aligned to. */
      readonly alignment: 64
      readonly dtype: string
      /** CUtensorMapDataType. */
      readonly dataType: string
      /** Elements of a box, innermost dimension first; as many dimensions as the tensor. */
      readonly box: readonly number[]
      /** CUtensorMapSwizzle. */
      readonly swizzle: string
      readonly elementStrides: readonly number[]
      readonly interleave: 'CU_TENSOR_MAP_INTERLEAVE_NONE'
      readonly l2Promotion: 'CU_TENSOR_MAP_L2_PROMOTION_L2_256B'
      readonly outOfBounds: 'CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE'
    }
)

/** An argument of the example: a number, memory of this shape, or null where the configuration does not read it. */
export type ExampleArg =
  | number
  | null
  | { readonly dtype: string; readonly shape: readonly number[]; readonly strides: readonly number[] }
  | { readonly scratch: string; readonly bytes: number; readonly byteOffset: number }

export interface ManifestKernel {
  readonly name: string
  readonly file: string
  readonly entry: string
  readonly target: string
  readonly ptxVersion: string
  readonly about: string
  readonly parameters: readonly ManifestParam[]
  /** Threads. */
  readonly block: readonly [number, number, number]
  /** Blocks of a cluster; null for a kernel without clusters. */
  readonly cluster: readonly [number, number, number] | null
  readonly dynamicSharedBytes: number
  readonly grid: string
  /** A launch of a small call, as this library makes it on a card of 132 multiprocessors. */
  readonly example: {
    readonly grid: readonly [number, number, number]
    readonly args: Readonly<Record<string, ExampleArg>>
  }
}

export interface Manifest {
  readonly package: string
  readonly target: string
  readonly kernels: readonly ManifestKernel[]
  /** Kernels that the target lacks, and the targets that have them. */
  readonly leftOut: readonly { readonly name: string; readonly targets: readonly string[] }[]
}

const dataTypes = {
  e4m3: 'CU_TENSOR_MAP_DATA_TYPE_UINT8',
  bf16: 'CU_TENSOR_MAP_DATA_TYPE_BFLOAT16',
  f16: 'CU_TENSOR_MAP_DATA_TYPE_FLOAT16',
  f32: 'CU_TENSOR_MAP_DATA_TYPE_FLOAT32',
} as const

function paramOf(name: string, param: Param): ManifestParam {
  const meaning = param.doc
  switch (param.kind) {
    case 'buffer':
      return { name, kind: 'buffer', dtype: param.dtype, access: param.access, bytes: 8, meaning }
    case 'scalar':
      return { name, kind: 'scalar', dtype: param.type, bytes: 4, meaning }
    case 'tensorMap':
      return {
        ...{ name, kind: 'tensorMap', bytes: 128, alignment: 64, dtype: param.dtype },
        dataType: dataTypes[param.dtype],
        box: param.box,
        swizzle: `CU_TENSOR_MAP_SWIZZLE_${param.swizzle === 0 ? 'NONE' : `${param.swizzle}B`}`,
        elementStrides: param.box.map(() => 1),
        interleave: 'CU_TENSOR_MAP_INTERLEAVE_NONE',
        l2Promotion: 'CU_TENSOR_MAP_L2_PROMOTION_L2_256B',
        outOfBounds: 'CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE',
        meaning,
      }
    default:
      return param satisfies never
  }
}

function exampleArg(arg: LaunchArg, scratch: TracedKernel['scratch']): ExampleArg {
  if (arg === undefined) return null
  if (typeof arg === 'number') return arg
  if (arg instanceof DeviceTensor) return { dtype: arg.dtype, shape: arg.shape, strides: arg.strides }
  return { scratch: arg.scratch, bytes: scratch[arg.scratch]!, byteOffset: arg.byteOffset ?? 0 }
}

/** The text of a kernel, and its entry in the manifest. */
export function emitKernel(traced: TracedKernel): { readonly ptx: string; readonly manifest: ManifestKernel } {
  const ptx = printPtx(traced.kernel)
  return { ptx, manifest: describe(traced, /^\.version (\S+)/m.exec(ptx)![1]!) }
}

function describe({ listed, kernel, launch, scratch }: TracedKernel, ptxVersion: string): ManifestKernel {
  const params = Object.entries(kernel.params)
  return {
    name: listed.name,
    file: `${listed.name}.ptx`,
    entry: kernel.name,
    target: kernel.target,
    ptxVersion,
    about: listed.about,
    parameters: params.map(([name, param]) => paramOf(name, param)),
    block: [kernel.threads, 1, 1],
    cluster: kernel.cluster === 1 ? null : [kernel.cluster, 1, 1],
    dynamicSharedBytes: kernel.sharedBytes,
    grid: listed.grid,
    example: {
      grid: [...launch.grid, 1],
      args: Object.fromEntries(params.map(([name]) => [name, exampleArg(launch.args[name], scratch)])),
    },
  }
}
