/**
 * The part of the CUDA driver API that the device uses, as one table. `openDriver` binds it to libcuda through koffi;
 * tests bind it to a stand-in. Handles and device addresses are bigints; results that the driver writes come back
 * through typed arrays, since 64-bit outputs would otherwise arrive as numbers when they are small.
 */

import { DeviceError } from '../errors.ts'

/** C prototypes, in the form koffi reads. `CUresult` is an int; 0 is success. */
export const prototypes = {
  cuInit: 'int cuInit(uint flags)',
  cuDriverGetVersion: 'int cuDriverGetVersion(void *version)',
  cuGetErrorName: 'int cuGetErrorName(int error, void *text)',
  cuGetErrorString: 'int cuGetErrorString(int error, void *text)',
  cuDeviceGetCount: 'int cuDeviceGetCount(void *count)',
  cuDeviceGet: 'int cuDeviceGet(void *device, int ordinal)',
  cuDeviceGetName: 'int cuDeviceGetName(void *name, int length, int device)',
  cuDeviceGetAttribute: 'int cuDeviceGetAttribute(void *value, int attribute, int device)',
  cuDeviceTotalMem_v2: 'int cuDeviceTotalMem_v2(void *bytes, int device)',
  cuDevicePrimaryCtxRetain: 'int cuDevicePrimaryCtxRetain(void *context, int device)',
  cuDevicePrimaryCtxRelease_v2: 'int cuDevicePrimaryCtxRelease_v2(int device)',
  cuCtxSetCurrent: 'int cuCtxSetCurrent(uint64 context)',
  cuStreamCreate: 'int cuStreamCreate(void *stream, uint flags)',
  cuStreamSynchronize: 'int cuStreamSynchronize(uint64 stream)',
  cuStreamDestroy_v2: 'int cuStreamDestroy_v2(uint64 stream)',
  cuStreamBeginCapture_v2: 'int cuStreamBeginCapture_v2(uint64 stream, int mode)',
  cuStreamEndCapture: 'int cuStreamEndCapture(uint64 stream, void *graph)',
  cuGraphInstantiateWithFlags: 'int cuGraphInstantiateWithFlags(void *exec, uint64 graph, uint64 flags)',
  cuGraphLaunch: 'int cuGraphLaunch(uint64 exec, uint64 stream)',
  cuGraphExecDestroy: 'int cuGraphExecDestroy(uint64 exec)',
  cuGraphDestroy: 'int cuGraphDestroy(uint64 graph)',
  cuEventCreate: 'int cuEventCreate(void *event, uint flags)',
  cuEventRecord: 'int cuEventRecord(uint64 event, uint64 stream)',
  cuEventQuery: 'int cuEventQuery(uint64 event)',
  cuEventElapsedTime: 'int cuEventElapsedTime(void *milliseconds, uint64 start, uint64 end)',
  cuEventDestroy_v2: 'int cuEventDestroy_v2(uint64 event)',
  cuMemAlloc_v2: 'int cuMemAlloc_v2(void *address, uint64 bytes)',
  cuMemFree_v2: 'int cuMemFree_v2(uint64 address)',
  cuMemGetInfo_v2: 'int cuMemGetInfo_v2(void *free, void *total)',
  cuMemHostAlloc: 'int cuMemHostAlloc(void *address, uint64 bytes, uint flags)',
  cuMemFreeHost: 'int cuMemFreeHost(uint64 address)',
  cuMemcpyHtoD_v2: 'int cuMemcpyHtoD_v2(uint64 target, const void *source, uint64 bytes)',
  cuMemcpyHtoDAsync_v2: 'int cuMemcpyHtoDAsync_v2(uint64 target, const void *source, uint64 bytes, uint64 stream)',
  cuMemcpyDtoHAsync_v2: 'int cuMemcpyDtoHAsync_v2(uint64 target, uint64 source, uint64 bytes, uint64 stream)',
  cuModuleLoadDataEx:
    'int cuModuleLoadDataEx(void *module, const void *image, uint count, void *options, void *values)',
  cuModuleUnload: 'int cuModuleUnload(uint64 module)',
  cuModuleGetFunction: 'int cuModuleGetFunction(void *function, uint64 module, str name)',
  cuFuncSetAttribute: 'int cuFuncSetAttribute(uint64 function, int attribute, int value)',
  cuFuncGetAttribute: 'int cuFuncGetAttribute(void *value, int attribute, uint64 function)',
  cuLaunchKernel:
    'int cuLaunchKernel(uint64 function, uint gx, uint gy, uint gz, uint bx, uint by, uint bz, uint sharedBytes, uint64 stream, void *params, void *extra)',
  cuLaunchKernelEx: 'int cuLaunchKernelEx(void *config, uint64 function, void *params, void *extra)',
  cuTensorMapEncodeTiled:
    'int cuTensorMapEncodeTiled(void *map, int dtype, uint rank, uint64 address, void *extents, void *strides, void *box, void *elementStrides, int interleave, int swizzle, int promotion, int fill)',
} as const

export type DriverFunction = keyof typeof prototypes

/** A driver call's arguments: numbers, bigints, strings, or arrays whose memory the driver reads or writes. */
export type DriverArg = number | bigint | string | ArrayBufferView | null

/** The driver as a table of functions that return a CUresult, and what reading foreign memory takes. */
export interface Driver {
  /** @throws DeviceError when the installed driver is too old to have the function */
  call(name: DriverFunction, ...args: DriverArg[]): number
  /** Text at an address, zero-terminated. */
  text(address: bigint): string
  /** The memory at an address itself, valid as long as its owner keeps it. */
  view(address: bigint, bytes: number): Uint8Array
  /** Address of an array's memory; the array must stay alive while the address is used. */
  addressOf(array: ArrayBufferView): bigint
}

/** The part of koffi that is used. */
export interface ForeignFunctions {
  load(library: string): { func(prototype: string): (...args: DriverArg[]) => number }
  decode(address: bigint, type: string, length: number): unknown
  view(address: bigint, bytes: number): ArrayBuffer
  address(array: ArrayBufferView): bigint
}

/** Where the driver is looked for. */
export interface DriverHost {
  readonly platform: string
  /** @throws when the optional dependency is not installed */
  foreignFunctions(): ForeignFunctions
}

/** Not an import: bundles for browsers contain this file and never run it. */
const thisHost: DriverHost = {
  platform: globalThis.process?.platform ?? 'browser',
  foreignFunctions: () => process.getBuiltinModule('node:module').createRequire(import.meta.url)('koffi'),
}

/** Beside the loader's own places: containers, WSL, NixOS. */
const libraries: Readonly<Record<string, readonly string[]>> = {
  linux: [
    'libcuda.so.1',
    '/usr/local/nvidia/lib64/libcuda.so.1',
    '/usr/lib/wsl/lib/libcuda.so.1',
    '/run/opengl-driver/lib/libcuda.so.1',
  ],
  win32: ['nvcuda.dll'],
}

/** Binds the table to the installed driver. @throws DeviceError when koffi or the driver is missing */
export function openDriver(host: DriverHost = thisHost): Driver {
  const names = libraries[host.platform]
  if (names === undefined) throw missing(`there is no CUDA driver for ${host.platform}`)
  const koffi = loadForeignFunctions(host)
  const library = loadLibrary(koffi, names)
  const functions = new Map<DriverFunction, (...args: DriverArg[]) => number>()
  const bind = (name: DriverFunction): ((...args: DriverArg[]) => number) => {
    try {
      const bound = library.func(prototypes[name])
      functions.set(name, bound)
      return bound
    } catch (cause) {
      throw missing(`the installed one has no ${name}: install a newer one`, cause)
    }
  }
  return {
    call: (name, ...args) => (functions.get(name) ?? bind(name))(...args),
    text: address => koffi.decode(address, 'char', -1) as string,
    view: (address, bytes) => new Uint8Array(koffi.view(address, bytes)),
    addressOf: array => BigInt(koffi.address(array)),
  }
}

function loadForeignFunctions(host: DriverHost): ForeignFunctions {
  try {
    return host.foreignFunctions()
  } catch (cause) {
    throw missing('the optional dependency koffi is not installed: npm install koffi', cause)
  }
}

function loadLibrary(koffi: ForeignFunctions, names: readonly string[]): ReturnType<ForeignFunctions['load']> {
  let first: unknown
  for (const name of names)
    try {
      return koffi.load(name)
    } catch (error) {
      first ??= error
    }
  throw missing(`${names[0]} cannot be loaded: install the NVIDIA driver`, first)
}

const missing = (hint: string, cause?: unknown): DeviceError =>
  new DeviceError({ where: "openDevice('cuda')", allowed: 'an NVIDIA driver', hint, cause })
