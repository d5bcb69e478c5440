/**
 * Tensor memory (isa.md §6): allocation, loads and stores of a warp's lanes, copies from shared memory, and their order.
 * An address is `lane << 16 | column` from what the allocation gave. Loads, stores, copies and multiplies are
 * asynchronous; their order between threads needs the fences here and a barrier in between.
 */

import type { InstRecord, OperandSpec } from '../record.ts'
import { type TensorShape, tensorShapes } from './tensor-shape.ts'

/** Blocks whose tensor memory an instruction concerns: its own, or those of a pair. */
export type TensorGroup = 1 | 2

const since = '100a'
const u32: OperandSpec = { type: 'u32', use: 'in' }
const immediate: OperandSpec = { type: 'u32', use: 'imm' }

/** Makes the records of a family when they are asked for. */
const family = <K>(nameOf: (key: K) => string, make: (key: K) => InstRecord): ((key: K) => InstRecord) => {
  const made = new Map<string, InstRecord>()
  return key => {
    const name = nameOf(key)
    let record = made.get(name)
    if (record === undefined) {
      record = make(key)
      made.set(name, record)
    }
    return record
  }
}

/** Columns of an allocation: 32 to 512, a power of two. */
export const tensorAllocate: (group: TensorGroup) => InstRecord = family(
  group => `tcgen05.alloc.cg${group}`,
  group => ({
    name: `tcgen05.alloc.cg${group}`,
    ptx: `add.u32 {%s:.b32}, {smem}, {slot};\ntcgen05.alloc.cta_group::${group}.sync.aligned.shared::cta.b32 [{%s:.b32}], {columns};`,
    since,
    operands: { slot: u32, columns: u32 },
    effect: 'sync',
    convergent: 'warp',
    cost: { unit: 'control', cycles: 16 },
    run: m => m.tensor.allocate(Number(m.uniform('slot')), Number(m.uniform('columns')), group),
    doc: 'allocates columns, waiting until they are free, and writes their address to shared memory; one warp (of each block of a pair)',
  }),
)

export const tensorFree: (group: TensorGroup) => InstRecord = family(
  group => `tcgen05.dealloc.cg${group}`,
  group => ({
    name: `tcgen05.dealloc.cg${group}`,
    ptx: `tcgen05.dealloc.cta_group::${group}.sync.aligned.b32 {address}, {columns};`,
    since,
    operands: { address: u32, columns: u32 },
    effect: 'sync',
    convergent: 'warp',
    cost: { unit: 'control', cycles: 16 },
    run: m => m.tensor.free(Number(m.uniform('address')), Number(m.uniform('columns')), group),
    doc: 'frees columns that the block allocated; all must be freed before it ends',
  }),
)

export const tensorRelinquish: (group: TensorGroup) => InstRecord = family(
  group => `tcgen05.relinquish.cg${group}`,
  group => ({
    name: `tcgen05.relinquish.cg${group}`,
    ptx: `tcgen05.relinquish_alloc_permit.cta_group::${group}.sync.aligned;`,
    since,
    operands: {},
    effect: 'sync',
    convergent: 'warp',
    cost: { unit: 'control', cycles: 4 },
    run: m => m.tensor.relinquish(group),
    doc: 'the block allocates no more, so that another on the multiprocessor may',
  }),
)

/** Loads and stores of `times` repetitions of a shape. */
export interface TensorMove {
  readonly shape: TensorShape
  readonly times: number
  /** Type of the registers; bits move as they are. */
  readonly type: 'u32' | 'f32'
}

const moveName = (access: 'ld' | 'st', { shape, times, type }: TensorMove): string =>
  `tcgen05.${access}.${shape}.x${times}.${type}`

function move(access: 'ld' | 'st', form: TensorMove): InstRecord {
  const { shape, times, type } = form
  const split = shape === '16x32bx2' ? ', {second}' : ''
  const spelled = `tcgen05.${access}.sync.aligned.${shape}.x${times}.b32`
  const place = `[{address}+{offset}]${split}`
  // A warp has a quarter of the multiprocessor's 228 (loads, measured on a B300) and about 400 bytes a cycle.
  const bytes = 128 * times * tensorShapes[shape].registers
  return {
    name: moveName(access, form),
    ptx: access === 'ld' ? `${spelled} {v}, ${place};` : `${spelled} ${place}, {v};`,
    since,
    operands: {
      v: { type, use: access === 'ld' ? 'out' : 'in', list: true },
      address: u32,
      offset: immediate,
      ...(split === '' ? {} : { second: immediate }),
    },
    effect: 'async',
    convergent: 'warp',
    cost: { unit: 'tmem', cycles: bytes / (access === 'ld' ? 228 : 400) },
    run: m => {
      const at = Number(m.uniform('address')) + Number(m.uniform('offset'))
      const second = split === '' ? 0 : Number(m.uniform('second'))
      m.tensor.move(access, { shape, address: at, second, registers: m.list('v') })
    },
    doc:
      access === 'ld'
        ? 'a warp’s lanes of tensor memory into registers, which are good after `wait::ld`'
        : 'registers into a warp’s lanes of tensor memory, there after `wait::st`',
  }
}

export const tensorLoad: (form: TensorMove) => InstRecord = family(
  form => moveName('ld', form),
  form => move('ld', form),
)
export const tensorStore: (form: TensorMove) => InstRecord = family(
  form => moveName('st', form),
  form => move('st', form),
)

const order = (
  name: string,
  ptx: string,
  convergent: 'warp' | undefined,
  run: InstRecord['run'] & {},
  doc: string,
): InstRecord => ({
  name,
  ptx,
  since,
  operands: {},
  effect: 'sync',
  ...(convergent === undefined ? {} : { convergent }),
  cost: { unit: 'control', cycles: 1 },
  run,
  doc,
})

export const tensorOrder: Readonly<Record<'waitLoads' | 'waitStores' | 'beforeSync' | 'afterSync', InstRecord>> = {
  waitLoads: order(
    'tcgen05.wait.ld',
    'tcgen05.wait::ld.sync.aligned;',
    'warp',
    m => m.tensor.wait('ld'),
    'the warp’s loads so far are in their registers',
  ),
  waitStores: order(
    'tcgen05.wait.st',
    'tcgen05.wait::st.sync.aligned;',
    'warp',
    m => m.tensor.wait('st'),
    'the warp’s stores so far are in tensor memory',
  ),
  beforeSync: order(
    'tcgen05.fence.before',
    'tcgen05.fence::before_thread_sync;',
    undefined,
    m => m.tensor.fence('before'),
    'orders the thread’s tensor operations so far before the barrier that follows',
  ),
  afterSync: order(
    'tcgen05.fence.after',
    'tcgen05.fence::after_thread_sync;',
    undefined,
    m => m.tensor.fence('after'),
    'orders the thread’s tensor operations from here on after the barrier or wait before',
  ),
}

/** What a copy brings: lanes × bits, and to which warps' lanes it is repeated. */
export type TensorCopyShape =
  | '128x256b'
  | '128x128b'
  | '4x256b'
  | '64x128b.warpx2::02_13'
  | '64x128b.warpx2::01_23'
  | '32x128b.warpx4'

export const tensorCopy: (form: { readonly shape: TensorCopyShape; readonly group: TensorGroup }) => InstRecord =
  family(
    ({ shape, group }) => `tcgen05.cp.${shape}.cg${group}`,
    ({ shape, group }) => ({
      name: `tcgen05.cp.${shape}.cg${group}`,
      ptx: `tcgen05.cp.cta_group::${group}.${shape} [{address}], {source};`,
      since,
      operands: { address: u32, source: { type: 'u64', use: 'in' } },
      effect: 'async',
      cost: { unit: 'tensor', cycles: 32 },
      run: m =>
        m.tensor.copy({ shape, group, address: Number(m.uniform('address')), source: m.uniform('source') as bigint }),
      doc: 'a block of shared memory, by its descriptor, into tensor memory; multiplies that the same thread issues later see it',
    }),
  )
