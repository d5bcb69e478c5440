/**
 * Warpgroup multiplies on the card against the simulator's model of their rounding, bit by bit. Needs a Hopper card.
 *
 * node --import tsx scripts/measure-tensor-cores.ts [folder that receives the card's results as raw f32]
 */

import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { seeded } from '../src/conformance/random.ts'
import { type CudaDevice, openCudaDevice } from '../src/cuda/device.ts'
import { encodeArray } from '../src/dtypes/convert.ts'
import { kStep, type MatrixDtype } from '../src/lang/isa/wgmma.ts'
import { type Kernel, kernel } from '../src/lang/kernel.ts'
import { output, tensorMap } from '../src/lang/params.ts'
import { fusedDot, matrixRows } from '../src/sim/matrix.ts'
import { tensor } from '../src/tensor/tensor.ts'

const [rows, columns, steps] = [64, 32, 4]
const problems = 72
type Codes = Uint8Array | Uint16Array

/** D[64][32] = A[64][4 K] B[32][4 K]ᵀ of problem `blockIdx.x`: four multiplies into one accumulator. */
const multiplyKernel = (dtype: MatrixDtype): Kernel => {
  const depth = steps * kStep[dtype]
  const params = {
    a: tensorMap({ dtype, box: [depth, rows], swizzle: 128 }, 'A [problems * 64, depth]'),
    b: tensorMap({ dtype, box: [depth, columns], swizzle: 128 }, 'B [problems * 32, depth]'),
    out: output('f32', '[problems, 64, 32]'),
  }
  return kernel({ name: `multiply_${dtype}`, target: 'sm_90a', threads: 128, params }, (k, { a, b, out }) => {
    const tileA = k.tile({ dtype, rows, columns: depth })
    const tileB = k.tile({ dtype, rows: columns, columns: depth })
    const arrived = k.barriers(1)
    const problem = k.blockIdx.x
    k.when(k.threadIdx.eq(0), () => {
      arrived.init(1)
      k.fenceBarrierInit()
      arrived.arriveExpect(0, a.boxBytes + b.boxBytes)
      a.load(tileA.address(), [0, problem.mul(rows).to('i32')], arrived.address(0))
      b.load(tileB.address(), [0, problem.mul(columns).to('i32')], arrived.address(0))
    })
    k.barrier()
    arrived.wait(0, 0)
    const d = k.accumulator(columns)
    k.warpgroup.fence()
    d.multiply({ tile: tileA }, { tile: tileB })
    k.warpgroup.commit()
    k.warpgroup.wait(0)
    const row = k.threadIdx.shr(5).mul(16).add(k.lane.shr(2))
    for (let j = 0; j < d.length; j++) {
      const at = row.add(8 * ((j >> 1) & 1)).mul(columns)
      const column = k.lane
        .bitAnd(3)
        .mul(2)
        .add(8 * (j >> 2) + (j & 1))
      out.store(k.offset(at.add(column), problem, rows * columns), d.get(j))
    }
  })
}

/** An element, by its column and side. */
type Element = (random: ReturnType<typeof seeded>, dtype: MatrixDtype, column: number, side: 'a' | 'b') => number

/** What the elements of a problem are like. */
const classes: Readonly<Record<string, Element>> = {
  normal: random => random.normal(),
  'small integers': random => random.int(9) - 4,
  'wide exponents': (random, dtype) =>
    (random.int(2) === 0 ? 1 : -1) *
    (1 + random.uniform()) *
    2 ** (random.int(dtype === 'e4m3' ? 15 : 40) - (dtype === 'e4m3' ? 7 : 20)),
  'mostly zero': random => (random.int(4) === 0 ? random.normal() : 0),
  'subnormal and small': (random, dtype) => random.normal() * (dtype === 'e4m3' ? 2 ** -7 : 2 ** -70),
  'one large': random => (random.int(16) === 0 ? 400 * random.normal() : random.normal()),
  huge: (random, dtype) => random.normal() * (dtype === 'e4m3' ? 200 : 2 ** 63),
  'zeros against large': (random, dtype, column, side) => {
    if (column % 2 === 0) return side === 'a' ? 0 : dtype === 'e4m3' ? 448 : 2 ** 127
    return random.normal() * (dtype === 'e4m3' ? 2 ** -4 : 2 ** -12)
  },
  'with NaN and infinity': (random, dtype) =>
    random.int(60) === 0
      ? dtype === 'e4m3' || random.int(2) === 0
        ? Number.NaN
        : Infinity * (random.int(2) - 0.5)
      : random.normal(),
}
const classNames = Object.keys(classes)
const classOf = (problem: number): string => classNames[problem % classNames.length]!

function operands(dtype: MatrixDtype, side: 'a' | 'b'): Codes {
  const random = seeded(side === 'a' ? 1 : 2)
  const height = side === 'a' ? rows : columns
  const count = height * steps * kStep[dtype]
  const values = Float32Array.from({ length: problems * count }, (_, i) =>
    classes[classOf(Math.floor(i / count))]!(random, dtype, i % (steps * kStep[dtype]), side),
  )
  return encodeArray(dtype, values) as Codes
}

/** The model's result of one problem. */
function modelled(dtype: MatrixDtype, a: Codes, b: Codes, problem: number): Float32Array {
  const depth = steps * kStep[dtype]
  const part = (codes: Codes, height: number, step: number) => {
    const first = problem * height * depth
    const picked = codes.slice(0, height * kStep[dtype])
    for (let row = 0; row < height; row++) {
      const from = first + row * depth + step * kStep[dtype]
      picked.set(codes.subarray(from, from + kStep[dtype]), row * kStep[dtype])
    }
    return matrixRows(dtype, picked, kStep[dtype])
  }
  const result = new Float32Array(rows * columns)
  for (let step = 0; step < steps; step++) {
    const [left, right] = [part(a, rows, step), part(b, columns, step)]
    for (let i = 0; i < rows; i++)
      for (let j = 0; j < columns; j++)
        result[i * columns + j] = fusedDot(dtype, left, i, right, j, result[i * columns + j]!)
  }
  return result
}

async function onCard(device: CudaDevice, dtype: MatrixDtype, a: Codes, b: Codes): Promise<Float32Array> {
  const depth = steps * kStep[dtype]
  const upload = (codes: Codes, height: number) =>
    device.upload(tensor(dtype, [problems * height, depth], codes as never))
  const [x, y] = [upload(a, rows), upload(b, columns)]
  const out = device.alloc('f32', [problems, rows, columns])
  const launch = { kernel: multiplyKernel(dtype), grid: [problems, 1], args: { a: x, b: y, out } } as const
  const plan = { kind: 'gpu', op: 'multiply', scratch: {}, scratchBytes: 0, launches: [launch] } as const
  device.submit(plan, { inputs: { x, y }, outputs: { out } })
  return (await out.read()).data
}

const hex = (value: number): string => {
  const bits = new DataView(new ArrayBuffer(4))
  bits.setFloat32(0, value)
  return bits.getUint32(0).toString(16).padStart(8, '0')
}

/** Prints, for each class, how many results have other bits. */
function report(dtype: MatrixDtype, a: Codes, b: Codes, card: Float32Array): void {
  const counts = new Map(classNames.map(name => [name, { all: 0, differ: 0, first: '' }]))
  for (let problem = 0; problem < problems; problem++) {
    const expected = modelled(dtype, a, b, problem)
    const count = counts.get(classOf(problem))!
    expected.forEach((value, i) => {
      const seen = card[problem * rows * columns + i]!
      count.all++
      if (Object.is(value, seen)) return
      count.differ++
      count.first ||= `problem ${problem}, element ${i}: card ${seen} ${hex(seen)}, model ${value} ${hex(value)}`
    })
  }
  for (const [name, { all, differ, first }] of counts)
    console.log(`${dtype}, ${name}: ${differ} of ${all} differ${first === '' ? '' : `; ${first}`}`)
}

await using device = await openCudaDevice()
console.log(device.explain())
for (const dtype of ['bf16', 'e4m3'] as const) {
  const [a, b] = [operands(dtype, 'a'), operands(dtype, 'b')]
  const card = await onCard(device, dtype, a, b)
  report(dtype, a, b, card)
  const [folder] = process.argv.slice(2)
  if (folder !== undefined) writeFileSync(join(folder, `multiply-${dtype}.f32`), new Uint8Array(card.buffer))
}
