/** The part of `cli-progress` that is used; the package has no types of its own. */
declare module 'cli-progress' {
  interface BarOptions {
    readonly format: string
    readonly stream: NodeJS.WritableStream
    readonly clearOnComplete: boolean
    readonly hideCursor: boolean
  }

  class SingleBar {
    constructor(options: BarOptions)
    start(total: number, startValue: number, payload?: object): void
    update(value: number, payload?: object): void
    stop(): void
  }

  const cliProgress: { readonly SingleBar: typeof SingleBar }
  export default cliProgress
}
