/** Launches that write numbers known to the host into scratch memory, for kernels that index them. */

import { kernel } from '../lang/kernel.ts'
import { type KernelLaunch, specialize } from '../lang/launch.ts'
import { f32, output, type Params, u32 } from '../lang/params.ts'
import type { Target } from '../lang/types.ts'
import type { Val } from '../lang/value.ts'

/** Numbers that one launch writes, its parameters. */
const perLaunch = 64

const names = Array.from({ length: perLaunch }, (_, i) => `value${i}`)

const traceConstants = specialize(({ target }: { readonly target: Target }) => {
  const values: Params = Object.fromEntries(names.map(name => [name, f32('a number')]))
  const params = { out: output('f32', '[count]'), first: u32('index of value0'), count: u32('numbers'), ...values }
  return kernel({ name: 'constants', target, threads: perLaunch, params }, (k, p) => {
    const numbers = p as unknown as Readonly<Record<string, Val<'f32'>>>
    names.forEach((name, i) =>
      k.when(k.threadIdx.eq(i).and(p.first.add(i).lt(p.count)), () => p.out.store(p.first.add(i), numbers[name]!)),
    )
  })
})

/** Fills the scratch region `scratch`, f32 `[values.length]`. */
export function constantLaunches(target: Target, scratch: string, values: readonly number[]): KernelLaunch[] {
  return Array.from({ length: Math.ceil(values.length / perLaunch) }, (_, i) => ({
    kernel: traceConstants({ target }),
    grid: [1, 1],
    args: {
      out: { scratch },
      first: i * perLaunch,
      count: values.length,
      ...Object.fromEntries(names.map((name, j) => [name, values[i * perLaunch + j] ?? 0])),
    },
  }))
}
