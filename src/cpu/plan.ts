/**
 * Plans of the cpu device: a list of stages, each a WASM kernel run over independent items. Stages run one after the
 * other; the items of a stage run on any worker in any order, so an item writes only what no other item touches.
 */

import type { Plan } from '../device.ts'

/** One kernel over `items` items. `args` are the words of the kernel's argument struct. */
export interface CpuStage {
  /** Name of the export: `(args: usize, item: i32, scratch: usize) => void`. */
  readonly kernel: string
  readonly items: number
  readonly args: Uint32Array
}

/** Addresses in WASM memory, known when the launch starts. */
export interface CpuAddresses {
  /** First element of an input, 0 when the input is absent. */
  input(name: string): number
  /** First element of an output, 0 when the output is absent. */
  output(name: string): number
  /** Scratch shared by all workers, `sharedBytes` long, 64-byte aligned. */
  readonly shared: number
}

export interface CpuPlan extends Plan {
  readonly kind: 'cpu'
  /** Scratch all workers see: what one stage leaves for the next. */
  readonly sharedBytes: number
  /** Scratch of each worker, handed to the kernels. */
  readonly workerBytes: number
  stages(at: CpuAddresses): CpuStage[]
}

type FieldKind = 'ptr' | 'u32' | 'i32' | 'f32'

/** A kernel's argument struct: 4-byte fields in the order of the AssemblyScript class of the same name. */
export interface ArgStruct<F extends Record<string, FieldKind>> {
  readonly name: string
  readonly fields: F
  pack(values: { readonly [K in keyof F]: number }): Uint32Array
}

/** Declares an argument struct. `assembly.test.ts` checks every one against its AssemblyScript class. */
export const argStruct = <const F extends Record<string, FieldKind>>(name: string, fields: F): ArgStruct<F> => ({
  name,
  fields,
  pack(values) {
    const words = new Uint32Array(Object.keys(fields).length)
    const floats = new Float32Array(words.buffer)
    Object.entries(fields).forEach(([field, kind], i) => {
      const value = values[field as keyof F]
      if (kind === 'f32') floats[i] = value
      else words[i] = value
    })
    return words
  },
})

/** Rounds a byte count up to whole cache lines. */
export const lines = (bytes: number): number => Math.ceil(bytes / 64) * 64
