/** Copies from shared to tensor memory (tcgen05.cp; isa.md §6.11): rows of 16 or 32 bytes to lanes. */

import type { TensorCopyShape } from '../lang/isa/tensor-memory.ts'
import { tensorColumns } from '../lang/isa/tensor-shape.ts'
import type { Block } from './block.ts'
import type { Accessor } from './shadow.ts'
import { decodeShared } from './tensor-descriptor.ts'
import type { TensorAccess } from './tensor-memory.ts'
import { chunkAddress } from './tensor-operand.ts'

interface CopyForm {
  readonly rows: number
  readonly bytes: 16 | 32
  /** Lanes that row `r` goes to. */
  readonly lanes: (row: number) => readonly number[]
}

/**
 * Sources: PTX ISA 9.0, "tcgen05.cp": `.warpx4` gives 32 rows to every warp's lanes, `.warpx2::02_13` the first 32 of 64 to
 * warps 0 and 2, `::01_23` to warps 0 and 1; CUTLASS, `Copy_Traits` of `SM100_UTCCP_…` (CuTe layouts: 64 rows and again 64
 * lanes further; 32 rows and again 32 lanes further, the second half 64). `4x256b` replaces lanes of a shifted operand; no
 * source at hand says exactly which.
 */
const forms: Readonly<Partial<Record<TensorCopyShape, CopyForm>>> = {
  '128x256b': { rows: 128, bytes: 32, lanes: r => [r] },
  '128x128b': { rows: 128, bytes: 16, lanes: r => [r] },
  '64x128b.warpx2::02_13': { rows: 64, bytes: 16, lanes: r => [r, r + 64] },
  '64x128b.warpx2::01_23': {
    rows: 64,
    bytes: 16,
    lanes: r => [0, 32].map(offset => 64 * (r >> 5) + (r & 31) + offset),
  },
  '32x128b.warpx4': { rows: 32, bytes: 16, lanes: r => [0, 32, 64, 96].map(offset => r + offset) },
}

export interface CopyContext {
  readonly blocks: readonly Block[]
  readonly by: Accessor
  readonly access: TensorAccess
  readonly complain: (problem: string) => void
}

/** Judges a copy; undefined where it cannot run. */
export function prepareCopy(
  shape: TensorCopyShape,
  address: number,
  source: bigint,
  { blocks, by, access, complain }: CopyContext,
): { readonly blocks: readonly Block[]; readonly run: () => void; readonly sharedBytes: number } | undefined {
  const form = forms[shape]
  if (form === undefined) {
    complain(`the simulator does not know where ${shape} lies`)
    return undefined
  }
  const descriptor = decodeShared(source, false, complain)
  if (descriptor === undefined) return undefined
  const { rows, bytes, lanes } = form
  const [lane, column] = [address >>> 16, address & 0xffff]
  if (lane !== 0) complain(`a copy to lane ${lane}; it begins at lane 0`)
  const region = { lane: 0, lanes: 128, column, columns: bytes / 4 }
  const chunks = new Int32Array((rows * bytes) / 16)
  for (let i = 0; i < chunks.length; i++) {
    const perRow = bytes / 16
    chunks[i] = chunkAddress(descriptor, Math.floor(i / perRow), 16 * (i % perRow), false)
  }
  let allowed = true
  for (const block of blocks) {
    for (const chunk of chunks) block.asyncRead(by, chunk, 16)
    if (!block.tensorMemory.owns(region, access)) allowed = false
    else block.tensorMemory.write(region, access)
  }
  if (!allowed) return undefined
  const run = (): void => {
    for (const { shared, tensorMemory } of blocks)
      chunks.forEach((chunk, i) => {
        const [row, part] = [Math.floor((16 * i) / bytes), ((16 * i) % bytes) / 4]
        for (const to of lanes(row))
          for (let x = 0; x < 4; x++)
            tensorMemory.cells[to * tensorColumns + column + part + x] = shared.view.getUint32(chunk + 4 * x, true)
      })
  }
  return { blocks, run, sharedBytes: blocks.length * rows * bytes }
}
