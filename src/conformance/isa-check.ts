/**
 * Differential test of instructions: each pure record runs on a device, one instruction a thread, and its results are
 * compared with what the record says, bit by bit; approximations within the distance that they state. The records that
 * act on memory and other lanes run in exercises, whose results are compared with the simulator's.
 */

import type { Device } from '../device.ts'
import type { Buffer } from '../lang/buffer.ts'
import type { KernelBuilder } from '../lang/builder.ts'
import { records } from '../lang/isa/index.ts'
import { type Kernel, kernel } from '../lang/kernel.ts'
import { gpuPlan } from '../lang/launch.ts'
import { reinterpret } from '../lang/packed.ts'
import { type BufferParam, input, output, u32 } from '../lang/params.ts'
import type { InstRecord } from '../lang/record.ts'
import { runsOn, type Target, type Type, typeInfo } from '../lang/types.ts'
import { emitValue, type Val } from '../lang/value.ts'
import { tensor } from '../tensor/tensor.ts'
import { type ExerciseResult, runExercises } from './exercises/index.ts'
import { operandsFor, randomBits } from './isa-inputs.ts'
import { isCloseEnough, laneResults } from './isa-lanes.ts'

export interface IsaCase {
  readonly name: string
  /** Operand tuples that ran. */
  readonly cases: number
  /** Results that are not as the record says. */
  readonly wrong: number
  /** Largest distance of an approximation in units in the last place; 0 for exact results. */
  readonly ulps: number
  /** What the record allows. */
  readonly allowed: string
  /** The first results that differ. */
  readonly detail?: string
}

export interface IsaReport {
  readonly device: string
  readonly target: Target
  readonly agree: number
  readonly disagree: number
  readonly records: readonly IsaCase[]
  /** Kernels of the other records; empty when only some records were asked for. */
  readonly exercises: readonly ExerciseResult[]
  /** Pure records that did not run, and why. */
  readonly skipped: readonly { readonly name: string; readonly why: string }[]
}

export interface IsaCheckOptions {
  /** Operand tuples of each record. Default 65,536. */
  readonly cases?: number
  /** Only records whose name contains this. */
  readonly filter?: string
  readonly seed?: number
}

const threads = 128
const isWide = (type: Type): boolean => typeInfo(type).bits === 64

/** Records whose result depends on more than their operands. */
const placed: Readonly<Record<string, string>> = {
  'matrix.descriptor': 'the result contains where shared memory begins',
  mapa: 'the result contains where the shared window of the cluster begins',
}

/** @param device a device that runs traced kernels, for `target` */
export async function isaCheck(device: Device, target: Target, options: IsaCheckOptions = {}): Promise<IsaReport> {
  const { cases = 65_536, filter = '', seed = 1 } = options
  const pure = [...records.values()].filter(({ lane, name }) => lane !== undefined && name.includes(filter))
  const reason = (record: InstRecord): string | undefined =>
    placed[record.name] ??
    (record.operands.d!.type === 'f32x2' ? 'two results of a thread' : undefined) ??
    (runsOn(target, record.since) ? undefined : `needs sm_${record.since}`)
  const results: IsaCase[] = []
  for (const record of pure)
    if (reason(record) === undefined) results.push(await checkRecord(device, target, record, cases, seed))
  const disagree = results.filter(({ wrong }) => wrong > 0).length
  return {
    device: device.name,
    target,
    agree: results.length - disagree,
    disagree,
    records: results,
    exercises: filter === '' ? await runExercises(device, target, { seed }) : [],
    skipped: pure.flatMap(record => {
      const why = reason(record)
      return why === undefined ? [] : [{ name: record.name, why }]
    }),
  }
}

/** Names and types of the operands that an instruction reads. */
const inputsOf = (record: InstRecord): [string, Type][] =>
  Object.entries(record.operands).flatMap(([name, { type }]) => (name === 'd' ? [] : [[name, type] as [string, Type]]))

async function checkRecord(
  device: Device,
  target: Target,
  record: InstRecord,
  cases: number,
  seed: number,
): Promise<IsaCase> {
  const types = inputsOf(record).map(([, type]) => type)
  const columns = operandsFor(types, cases, randomBits(seed))
  const expected = laneResults(record, types, columns)
  const actual = await runOn(device, isaKernel(record, target), record, columns)
  let [wrong, ulps] = [0, 0]
  const details: string[] = []
  for (let i = 0; i < cases; i++) {
    const [close, distance] = isCloseEnough(record, actual[i]!, expected[i]!)
    ulps = Math.max(ulps, close ? distance : 0)
    if (close) continue
    wrong++
    const given = columns.map(column => hex(column[i]!)).join(', ')
    if (details.length < 4) details.push(`(${given}) gives ${hex(actual[i]!)}, expected ${hex(expected[i]!)}`)
  }
  const within = record.within === undefined ? '' : ` or ${record.within}`
  const allowed = record.ulps === undefined ? 'same bits' : `${record.ulps} ulp${within}`
  return { name: record.name, cases, wrong, ulps, allowed, ...(wrong > 0 ? { detail: details.join('; ') } : {}) }
}

const hex = (value: number | bigint): string => `0x${value.toString(16)}`

/** out[i] = the instruction on operands i. */
export function isaKernel(record: InstRecord, target: Target): Kernel {
  const inputs = inputsOf(record)
  const result = record.operands.d!.type
  const buffers: Record<string, BufferParam> = Object.fromEntries(
    inputs.map(([name, type]) => [`in_${name}`, input('u32', `operand ${name}: ${type}`)]),
  )
  const params = { ...buffers, out: output('u32', `result: ${result}`), n: u32('results') }
  const name = `isa_${record.name.replaceAll('.', '_')}`
  return kernel({ name, target, threads, params }, (k, bound) => {
    const operandBuffers = bound as Readonly<Record<string, unknown>>
    const at = k.blockIdx.x.mul(threads).add(k.threadIdx)
    k.when(at.lt(bound.n), () => {
      const operands = Object.fromEntries(
        inputs.map(([operand, type]) => [operand, load(operandBuffers[`in_${operand}`] as Buffer<'u32'>, at, type)]),
      )
      store(k, bound.out, at, emitValue(at.trace, record, result, operands))
    })
  })
}

/** A register of `type` from its bits in memory: one word, or two with the lower first. */
function load(buffer: Buffer<'u32'>, at: Val<'u32'>, type: Type): Val {
  if (isWide(type)) {
    const [low, high] = [buffer.load(at.mul(2)), buffer.load(at.mul(2).add(1))]
    return reinterpret(high.to('u64').shl(32).bitOr(low.to('u64')), type)
  }
  const word = buffer.load(at)
  if (type === 'pred') return word.ne(0)
  if (type === 'f32') return word.asF32()
  if (type === 'i32') return word.to('i32')
  return reinterpret(typeInfo(type).bits === 16 ? word.to('b16') : word, type)
}

function store(k: KernelBuilder, out: Buffer<'u32'>, at: Val<'u32'>, value: Val): void {
  const { type } = value
  if (isWide(type)) {
    const bits = reinterpret(value, 'u64')
    out.store(at.mul(2), bits.to('u32'))
    out.store(at.mul(2).add(1), bits.shr(32).to('u32'))
    return
  }
  const one = k.const('u32', 1)
  if (type === 'pred') out.store(at, (value as Val<'pred'>).select(one, 0))
  else if (type === 'f32') out.store(at, (value as Val<'f32'>).bits())
  else if (type === 'i32') out.store(at, (value as Val<'i32'>).to('u32'))
  else out.store(at, typeInfo(type).bits === 16 ? reinterpret(value, 'b16').to('u32') : reinterpret(value, 'u32'))
}

async function runOn(
  device: Device,
  traced: Kernel,
  record: InstRecord,
  columns: readonly (number | bigint)[][],
): Promise<(number | bigint)[]> {
  const cases = columns[0]!.length
  const wideOut = isWide(record.operands.d!.type)
  const inputs = Object.fromEntries(
    inputsOf(record).map(([name, type], j) => {
      const words = wordsOf(columns[j]!, isWide(type))
      return [`in_${name}`, device.upload(tensor('u32', [words.length], words))]
    }),
  )
  const out = device.alloc('u32', [wideOut ? 2 * cases : cases])
  const launch = {
    kernel: traced,
    grid: [Math.ceil(cases / threads), 1] as const,
    args: { ...inputs, out, n: cases },
  }
  device.submit(gpuPlan(`isa-check ${record.name}`, [launch]), { inputs, outputs: { out } })
  const words = (await out.read()).data as Uint32Array
  for (const t of [...Object.values(inputs), out]) t.dispose()
  if (!wideOut) return [...words]
  return Array.from({ length: cases }, (_, i) => BigInt(words[2 * i]!) | (BigInt(words[2 * i + 1]!) << 32n))
}

function wordsOf(values: readonly (number | bigint)[], wide: boolean): Uint32Array {
  if (!wide) return Uint32Array.from(values as readonly number[])
  return Uint32Array.from(values.flatMap(value => [Number(BigInt(value) & 0xffffffffn), Number(BigInt(value) >> 32n)]))
}
