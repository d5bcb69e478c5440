/** Machine code on disk, keyed by PTX text, driver version and card. Entries carry a digest of what they hold. */

const digestBytes = 32

export class DiskCache {
  private readonly folder: string
  private readonly salt: string

  /**
   * @param salt what the machine code depends on beside the text
   * @param folder default: `sparse-mla` in the user's cache folder
   */
  constructor(salt: string, folder: string = defaultFolder()) {
    this.folder = folder
    this.salt = salt
  }

  /** The machine code of a text; undefined when there is none, or when the entry is damaged. */
  get(ptx: string): Uint8Array | undefined {
    try {
      const entry = process.getBuiltinModule('node:fs').readFileSync(this.fileOf(ptx))
      const image = new Uint8Array(entry.subarray(digestBytes))
      return digest(image).equals(entry.subarray(0, digestBytes)) ? image : undefined
    } catch {
      return undefined
    }
  }

  /** Best effort: a cache that cannot be written costs only time. */
  set(ptx: string, image: Uint8Array): void {
    const { mkdirSync, renameSync, rmSync, writeFileSync } = process.getBuiltinModule('node:fs')
    const file = this.fileOf(ptx)
    const draft = `${file}.${crypto.randomUUID()}`
    try {
      mkdirSync(this.folder, { recursive: true })
      writeFileSync(draft, Buffer.concat([digest(image), image]))
      renameSync(draft, file)
    } catch {
      rmSync(draft, { force: true })
    }
  }

  /** Where the entry of a text is kept. */
  fileOf(ptx: string): string {
    const key = digest(new TextEncoder().encode(`${this.salt}\0${ptx}`)).toString('hex')
    return process.getBuiltinModule('node:path').join(this.folder, `${key}.cubin`)
  }
}

const digest = (bytes: Uint8Array): Buffer =>
  process.getBuiltinModule('node:crypto').createHash('sha256').update(bytes).digest()

function defaultFolder(): string {
  const { join } = process.getBuiltinModule('node:path')
  const { homedir } = process.getBuiltinModule('node:os')
  return join(process.env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'sparse-mla')
}
