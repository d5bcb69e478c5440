/**
 * Copies by threads from global to shared memory, past the registers (cp.async, isa.md §4). They are ordinary (generic)
 * accesses that end later: by groups of the same thread, or on an mbarrier.
 */

import type { InstRecord, OperandSpec } from '../record.ts'

/** Bytes of one copy. */
export type CopyBytes = 4 | 8 | 16

const cost = { unit: 'global', cycles: 1 } as const
const address: OperandSpec = { type: 'u32', use: 'in' }

function copy(bytes: CopyBytes, hint: boolean): InstRecord {
  const cache = bytes === 16 ? 'cg' : 'ca'
  const name = `cp.async.${cache}.${bytes}${hint ? '.hint' : ''}`
  return {
    name,
    ptx: [
      'add.u32 {%d:.b32}, {smem}, {target};',
      `cp.async.${cache}.shared.global${hint ? '.L2::cache_hint' : ''} [{%d:.b32}], [{source}], ${bytes}, {valid}${hint ? ', {policy}' : ''};`,
    ].join('\n'),
    since: 80,
    ...(hint ? { version: '7.4' } : {}),
    operands: {
      target: address,
      source: { type: 'u64', use: 'in' },
      valid: { type: 'u32', use: 'in' },
      ...(hint ? { policy: { type: 'u64', use: 'in' } as const } : {}),
    },
    effect: 'async',
    cost,
    run: m =>
      m.eachLane(lane =>
        m.threadCopies.copy(lane, {
          source: m.operand('source')[lane] as bigint,
          target: m.operand('target')[lane] as number,
          bytes,
          valid: m.operand('valid')[lane] as number,
        }),
      ),
    doc: `copies the first \`valid\` of ${bytes} bytes to shared memory and zeroes the rest; both ends aligned to ${bytes}`,
  }
}

const sizes: readonly CopyBytes[] = [4, 8, 16]

export const threadCopies: Readonly<Record<string, InstRecord>> = Object.fromEntries(
  sizes.flatMap(bytes => [false, true].map(hint => [`${bytes}${hint ? '.hint' : ''}`, copy(bytes, hint)])),
)

const control = (name: string, ptx: string, run: InstRecord['run'] & {}, doc: string): InstRecord => ({
  name,
  ptx,
  since: 80,
  operands: {},
  effect: 'sync',
  cost: { unit: 'control', cycles: 1 },
  run,
  doc,
})

export const threadCopyCommit: InstRecord = control(
  'cp.async.commit',
  'cp.async.commit_group;',
  m => m.eachLane(lane => m.threadCopies.commit(lane)),
  'closes a group of the thread’s copies',
)

/** Waits until at most `pending` groups are under way. */
export const threadCopyWait = (pending: number): InstRecord =>
  control(
    `cp.async.wait.${pending}`,
    `cp.async.wait_group ${pending};`,
    m => m.eachLane(lane => m.threadCopies.wait(lane, pending)),
    `at most ${pending} groups of the thread stay under way; it sees what the others brought`,
  )

export const threadCopyArrive: InstRecord = {
  name: 'cp.async.mbarrier.arrive.noinc',
  ptx: 'add.u32 {%b:.b32}, {smem}, {address};\ncp.async.mbarrier.arrive.noinc.shared.b64 [{%b:.b32}];',
  since: 80,
  operands: { address },
  effect: 'async',
  cost: { unit: 'barrier', cycles: 4 },
  run: m => m.threadCopies.arrive('address'),
  doc: 'one of the initialised arrivals of each active lane, once its copies so far have landed',
}
