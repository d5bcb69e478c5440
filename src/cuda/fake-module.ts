/** What the fake driver reads of a printed kernel: the entry and its parameters. */

/** A kernel launch as the driver saw it. */
export interface FakeLaunch {
  readonly kernel: string
  readonly grid: readonly number[]
  readonly threads: readonly number[]
  readonly sharedBytes: number
  /** By parameter name: addresses as bigints, 32-bit words as unsigned numbers, tensor maps as bytes. */
  readonly args: Readonly<Record<string, bigint | number | Uint8Array>>
}

export interface FakeFunction {
  readonly kernel: string
  readonly params: readonly { readonly name: string; readonly kind: 'u64' | 'b32' | 'map' }[]
}

/** Entry and parameters of a printed kernel. */
export function functionOf(text: string): FakeFunction {
  const [, kernel, list] = /\.entry (\w+)\(([^)]*)\)/.exec(text)!
  const params = [...list!.matchAll(/\.param (\.u64|\.b32|\.align 64 \.b8) (\w+)/g)].map(([, type, name]) => ({
    name: name!,
    kind: type === '.u64' ? ('u64' as const) : type === '.b32' ? ('b32' as const) : ('map' as const),
  }))
  return { kernel: kernel!, params }
}
