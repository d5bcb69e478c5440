/** Progress on stderr: a bar while a person watches, nothing where stderr is a file or a pipe, or a line a piece. */

import cliProgress from 'cli-progress'

export interface Progress extends Disposable {
  /** Names what runs now, after `done` pieces of work. */
  at(done: number, label: string): void
  /** Tells how the piece that ran came out. */
  ended?(result: string): void
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

/** A line a piece: its label when it begins, its result and seconds when it has ended. */
export function startLog(total: number): Progress {
  let begun = 0
  return {
    at: (done, label) => {
      begun = performance.now()
      process.stderr.write(`${done + 1}/${total} ${label} … `)
    },
    ended: result => {
      process.stderr.write(`${result}, ${((performance.now() - begun) / 1000).toFixed(2)} s\n`)
    },
    [Symbol.dispose]: () => {},
  }
}
