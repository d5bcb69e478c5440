/** One multiply of the tensor cores: what its descriptors say, what it touches, and its arithmetic when it runs. */

import { type ResultForm, resultColumns, resultPlace, tensorColumns } from '../lang/isa/tensor-shape.ts'
import type { TensorMultiplyRequest } from '../lang/tensor-machine.ts'
import type { Block } from './block.ts'
import type { Accessor } from './shadow.ts'
import {
  decodeInstruction,
  decodeShared,
  type InstructionDescriptor,
  shapeProblem,
  type TensorDtype,
} from './tensor-descriptor.ts'
import type { TensorAccess, TensorRegion } from './tensor-memory.ts'
import { bytesOfLanes, bytesOfPart, type SharedPart, sharedPart } from './tensor-operand.ts'
import { multiplyRows, type ProductRows, productRows } from './tensor-product.ts'

/** A multiply that has been judged and will run. */
export interface PreparedMultiply {
  readonly blocks: readonly Block[]
  readonly run: () => void
  /** Bytes of shared memory that it reads. */
  readonly sharedBytes: number
}

export interface MultiplyContext {
  /** The issuing block, or the pair, even rank first. */
  readonly blocks: readonly Block[]
  readonly by: Accessor
  /** How the multiply accesses tensor memory, once its accumulator is known. */
  readonly access: (accumulator: string) => TensorAccess
  readonly complain: (problem: string) => void
}

const elementBytes: Readonly<Record<TensorDtype, 1 | 2>> = { f16: 2, bf16: 2, e4m3: 1, e5m2: 1 }

const placeOf = (address: number): { readonly lane: number; readonly column: number } => ({
  lane: address >>> 16,
  column: address & 0xffff,
})

/** Decodes and judges a multiply; undefined where it cannot run. */
export function prepareMultiply(
  request: TensorMultiplyRequest,
  context: MultiplyContext,
): PreparedMultiply | undefined {
  const { complain, blocks } = context
  const what = decodeInstruction(request.descriptor, request.kind, complain)
  if (what === undefined) return undefined
  const problem = shapeProblem(what, request)
  if (problem !== undefined) {
    complain(problem)
    return undefined
  }
  const form: ResultForm = { m: what.m, n: what.n, stationary: request.stationary, pair: request.group === 2 }
  const d = placeOf(request.d)
  checkLane(form, request, complain)
  const accumulator = `${request.d} ${what.m} ${what.n} ${request.stationary}`
  const access = context.access(accumulator)
  const b = sharedOperand('b', request.b, what, context)
  const a = typeof request.a === 'bigint' ? sharedOperand('a', request.a, what, context) : undefined
  if (typeof request.a !== 'bigint' && what.aTransposed)
    complain('A in tensor memory is K-major; its descriptor says MN-major')
  if (b === undefined || (typeof request.a === 'bigint' && a === undefined)) return undefined
  const allOwned = blocks.map(block => {
    const { tensorMemory } = block
    let owned = true
    for (const region of resultRegions(form, d)) {
      if (!tensorMemory.owns(region, access)) owned = false
      else {
        if (request.accumulate) tensorMemory.read(region, access)
        tensorMemory.write(region, access)
      }
    }
    if (typeof request.a !== 'bigint')
      for (const region of operandRegions(form, placeOf(request.a)))
        if (!tensorMemory.owns(region, access)) owned = false
        else tensorMemory.read(region, access)
    return owned
  })
  if (allOwned.includes(false)) return undefined
  const sharedBytes = [...(a ?? []), ...b].reduce((sum, { rows }) => sum + 32 * rows, 0)
  return { blocks, sharedBytes, run: () => run(form, request, what, blocks, a, b) }
}

/** 64 rows outside `.ws` use 16 lanes of each warp, A and D the same; all others begin at lane 0. */
function checkLane(form: ResultForm, { d, a }: TensorMultiplyRequest, complain: (problem: string) => void): void {
  const allowed = !form.pair && !form.stationary && form.m === 64 ? [0, 16] : [0]
  const { lane } = placeOf(d)
  if (!allowed.includes(lane)) complain(`D of ${form.m} rows begins at lane ${lane}; expected ${allowed.join(' or ')}`)
  if (typeof a !== 'bigint' && placeOf(a).lane !== lane)
    complain(`A in tensor memory begins at lane ${placeOf(a).lane}, D at ${lane}; expected the same`)
}

/** Each block's part of an operand in shared memory. */
function sharedOperand(
  name: 'a' | 'b',
  bits: bigint,
  what: InstructionDescriptor,
  { blocks, by, complain }: MultiplyContext,
): readonly SharedPart[] | undefined {
  const transposed = name === 'a' ? what.aTransposed : what.bTransposed
  const descriptor = decodeShared(bits, transposed, problem => complain(`${name.toUpperCase()}: ${problem}`))
  if (descriptor === undefined) return undefined
  const rows = (name === 'a' ? what.m : what.n) / blocks.length
  return blocks.map(block => sharedPart(block, by, descriptor, rows, elementBytes[what[name]], transposed))
}

const lanesOf = (form: ResultForm): readonly (readonly [first: number, lanes: number])[] =>
  !form.pair && !form.stationary && form.m === 64
    ? [0, 32, 64, 96].map(first => [first, 16] as const)
    : [[0, 128] as const]

const resultRegions = (form: ResultForm, d: { readonly lane: number; readonly column: number }): TensorRegion[] =>
  lanesOf(form).map(([first, lanes]) => ({
    lane: d.lane + first,
    lanes,
    column: d.column,
    columns: resultColumns(form),
  }))

const operandRegions = (form: ResultForm, a: { readonly lane: number; readonly column: number }): TensorRegion[] =>
  lanesOf(form).map(([first, lanes]) => ({ lane: a.lane + first, lanes, column: a.column, columns: 8 }))

/** All rows of an operand, of the blocks one after the other. */
function rowsOf(parts: readonly SharedPart[], dtype: TensorDtype, negated: boolean): ProductRows {
  const images = parts.map(bytesOfPart)
  const all = new Uint8Array(images.reduce((sum, { length }) => sum + length, 0))
  let at = 0
  for (const image of images) {
    all.set(image, at)
    at += image.length
  }
  return productRows(dtype, all, negated)
}

function run(
  form: ResultForm,
  request: TensorMultiplyRequest,
  what: InstructionDescriptor,
  blocks: readonly Block[],
  a: readonly SharedPart[] | undefined,
  b: readonly SharedPart[],
): void {
  const columns = rowsOf(b, what.b, what.bNegated)
  const d = placeOf(request.d)
  const width = resultColumns(form)
  const own = form.m / blocks.length
  blocks.forEach((block, rank) => {
    const { cells } = block.tensorMemory
    const shared = a && productRows(what.a, bytesOfPart(a[rank]!), what.aNegated)
    for (let first = 0; first < form.n; first += width) {
      const rows =
        shared ?? productRows(what.a, bytesOfLanes(cells, form, rank, first, placeOf(Number(request.a))), what.aNegated)
      const at = (row: number): number => {
        const place = resultPlace(form, rank * own + row, first)
        return (d.lane + place.lane) * tensorColumns + d.column + place.column
      }
      multiplyRows(rows, columns, own, [first, first + width], cells, at, request.accumulate)
    }
  })
}
