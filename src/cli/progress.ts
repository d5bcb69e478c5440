/** A progress bar on stderr while a person watches; nothing where stderr is a file or a pipe. */

import cliProgress from 'cli-progress'

export interface Progress extends Disposable {
  /** Names what runs now, after `done` pieces of work. */
  at(done: number, label: string): void
}

/** A bar of `total` pieces; it disappears when disposed, so that only the results stay. */
export function startProgress(total: number): Progress {
  if (!process.stderr.isTTY) return { at: () => {}, [Symbol.dispose]: () => {} }
  const bar = new cliProgress.SingleBar({
    format: '{bar} {value}/{total} {label}',
    stream: process.stderr,
    clearOnComplete: true,
    hideCursor: true,
  })
  bar.start(total, 0, { label: '' })
  return { at: (done, label) => bar.update(done, { label }), [Symbol.dispose]: () => bar.stop() }
}
