/**
 * safetensors files on disk, for Node: the header is read once, tensors on demand. The only tensor module that imports
 * from `node:`; nothing that runs in a browser may import it.
 */

import { type FileHandle, open } from 'node:fs/promises'
import { type Dtype, dtypeInfo, type StorageOf } from '../dtypes/dtype.ts'
import { DisposedError, FormatError } from '../errors.ts'
import { SafetensorsCatalog } from './safetensors-catalog.ts'
import {
  headerLength,
  parseHeader,
  prefixBytes,
  type SafetensorsEntry,
  type SafetensorsHeader,
  whereIn,
} from './safetensors-header.ts'
import { sizeOf } from './shape.ts'
import { bytesOf } from './storage-bytes.ts'
import { type Tensor, tensor } from './tensor.ts'

/** Node refuses reads of 2^31 bytes and more. */
const maxReadBytes = 2 ** 30

/** An open safetensors file. Close it, or hold it with `await using`. */
export class SafetensorsReader extends SafetensorsCatalog implements AsyncDisposable {
  private readonly handle: FileHandle
  private closing: Promise<void> | undefined

  constructor(where: string, header: SafetensorsHeader, handle: FileHandle) {
    super(where, header)
    this.handle = handle
  }

  /**
   * Reads one tensor into memory of its own. Calls may overlap.
   *
   * @param dtype refuses a tensor of another dtype, and gives the result its type
   * @throws ValueError when there is none of that name, DtypeError when it has another dtype, DisposedError after
   *   `close()`, FormatError when the file has shrunk since it was opened
   */
  get(name: string): Promise<Tensor>
  get<D extends Dtype>(name: string, dtype: D): Promise<Tensor<D>>
  async get(name: string, dtype?: Dtype): Promise<Tensor> {
    if (this.closing !== undefined)
      throw new DisposedError({ where: this.where, argument: 'get', given: name, allowed: 'a file not yet closed' })
    return this.load(this.entry(name, dtype))
  }

  /** Closes the file once the reads under way have ended. A second call does nothing more. */
  close(): Promise<void> {
    this.closing ??= this.handle.close()
    return this.closing
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  private async load<D extends Dtype>({ dtype, shape, start }: SafetensorsEntry<D>): Promise<Tensor<D>> {
    const data: StorageOf<D> = new dtypeInfo[dtype].storage(sizeOf(shape))
    await fill(this.where, this.handle, bytesOf(data), start)
    return tensor(dtype, shape, data)
  }
}

/**
 * Opens a safetensors file and reads its header.
 *
 * @throws FormatError as `parseSafetensors` does, and the error of `node:fs` when the file cannot be read
 */
export async function openSafetensors(path: string): Promise<SafetensorsReader> {
  const where = whereIn(path)
  const handle = await open(path)
  try {
    return new SafetensorsReader(where, await readHeader(where, handle), handle)
  } catch (error) {
    await handle.close()
    throw error
  }
}

async function readHeader(where: string, handle: FileHandle): Promise<SafetensorsHeader> {
  const { size } = await handle.stat()
  const prefix = new Uint8Array(Math.min(size, prefixBytes))
  await fill(where, handle, prefix, 0)
  const header = new Uint8Array(headerLength(where, prefix, size))
  await fill(where, handle, header, prefixBytes)
  return parseHeader(where, header, size)
}

/** Reads `into.length` bytes from byte `start` of the file. @throws FormatError when the file ends before */
async function fill(where: string, handle: FileHandle, into: Uint8Array, start: number): Promise<void> {
  for (let done = 0; done < into.length; ) {
    const length = Math.min(into.length - done, maxReadBytes)
    const { bytesRead } = await handle.read(into, done, length, start + done)
    if (bytesRead === 0)
      throw new FormatError({
        where,
        argument: 'file',
        given: `${start + done} bytes`,
        allowed: `at least ${start + into.length}, its size when opened`,
      })
    done += bytesRead
  }
}
