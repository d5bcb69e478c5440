/**
 * The compiled kernels: one AssemblyScript program in two builds, with and without relaxed SIMD (fused
 * multiply-add). A 40-byte probe decides which one this engine takes.
 */

import { relaxed } from './generated/relaxed.ts'
import { simd128 } from './generated/simd128.ts'

export const builds = ['relaxed', 'simd128'] as const
export type Build = (typeof builds)[number]

/** A kernel export; `args` and `scratch` are addresses. */
export type Kernel = (args: number, item: number, scratch: number) => void

/**
 * (module (func (param v128 v128 v128) (result v128)
 *   local.get 0  local.get 1  local.get 2  f32x4.relaxed_madd))
 */
const relaxedProbe: Uint8Array<ArrayBuffer> = Uint8Array.of(
  ...[0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00],
  ...[0x01, 0x08, 0x01, 0x60, 0x03, 0x7b, 0x7b, 0x7b, 0x01, 0x7b],
  ...[0x03, 0x02, 0x01, 0x00],
  ...[0x0a, 0x0d, 0x01, 0x0b, 0x00, 0x20, 0x00, 0x20, 0x01, 0x20, 0x02, 0xfd, 0x85, 0x02, 0x0b],
)

/** Node 20 keeps relaxed SIMD behind a V8 flag that must be set before the first such module is compiled. */
function allowRelaxedSimd(): void {
  const node = globalThis.process?.getBuiltinModule?.('node:v8')
  if (node !== undefined && !WebAssembly.validate(relaxedProbe))
    node.setFlagsFromString('--experimental-wasm-relaxed-simd')
}

/** The fastest build this engine runs. */
export function preferredBuild(): Build {
  allowRelaxedSimd()
  return WebAssembly.validate(relaxedProbe) ? 'relaxed' : 'simd128'
}

const compiled = new Map<Build, Promise<WebAssembly.Module>>()

/** The module of a build, compiled once per process. */
export function compileKernels(build: Build): Promise<WebAssembly.Module> {
  let module = compiled.get(build)
  if (module === undefined) {
    if (build === 'relaxed') allowRelaxedSimd()
    const text = build === 'relaxed' ? relaxed : simd128
    module = WebAssembly.compile(Uint8Array.from(atob(text), char => char.charCodeAt(0)))
    compiled.set(build, module)
  }
  return module
}
