/**
 * One worker of the cpu device, in Node and in browsers. Plain JavaScript, so that the same file is the worker of the
 * sources and of the built package.
 *
 * A job is a list of stages over a control block of i32 words in shared memory (job.ts): word 0 stops all workers,
 * then each stage has a counter from which workers draw items and a barrier that the last worker to arrive opens.
 */

const node = globalThis.process?.getBuiltinModule?.('node:worker_threads')
const port = node?.parentPort ?? globalThis

/** @type {WebAssembly.Exports} */
let kernels
/** @type {WebAssembly.Memory} */
let memory

const runJob = ({ stages, workers, scratch }, words) => {
  stages.forEach(({ kernel, items, args }, stage) => {
    const counter = 1 + 2 * stage
    const barrier = counter + 1
    const run = kernels[kernel]
    for (let item; Atomics.load(words, 0) === 0 && (item = Atomics.add(words, counter, 1)) < items; )
      run(args, item, scratch)
    if (Atomics.add(words, barrier, 1) + 1 === workers) Atomics.notify(words, barrier)
    for (let seen; Atomics.load(words, 0) === 0 && (seen = Atomics.load(words, barrier)) < workers; )
      Atomics.wait(words, barrier, seen)
  })
}

/** Lets every worker leave its loop or its barrier: `stopWorkers` of job.ts. */
const stopAll = words => {
  Atomics.store(words, 0, 1)
  for (let barrier = 2; barrier < words.length; barrier += 2) {
    Atomics.store(words, barrier, 1 << 30)
    Atomics.notify(words, barrier)
  }
}

const receive = message => {
  if (message.module !== undefined) {
    memory = message.memory
    kernels = new WebAssembly.Instance(message.module, { env: { memory } }).exports
    port.postMessage({ ready: true })
    return
  }
  const words = new Int32Array(memory.buffer, message.control, 1 + 2 * message.stages.length)
  try {
    runJob(message, words)
    port.postMessage({ job: message.job })
  } catch (error) {
    stopAll(words)
    port.postMessage({ job: message.job, error: String(error) })
  }
}

if (node) port.on('message', receive)
else port.addEventListener('message', event => receive(event.data))
