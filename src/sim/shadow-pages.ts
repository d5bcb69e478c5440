/**
 * What a memory's shadow knows of each byte, in pages that exist once they are touched. A page is cut into units as fine as
 * the accesses to it have been: all bytes of a unit have the same history.
 */

import type { Accessor } from './shadow.ts'

/** A list of those who have read a unit since it was written. */
export interface Reader {
  readonly by: Accessor
  readonly next: Reader | undefined
}

export interface ShadowPage {
  /** Log2 of the bytes of a unit. */
  shift: number
  /** Who wrote each unit last. */
  writers: (Accessor | undefined)[]
  readers: (Reader | undefined)[]
}

const pageShift = 10
const pageBytes = 1 << pageShift

/** First byte of the page after that of `at`. */
export const nextPage = (at: number): number => (Math.floor(at / pageBytes) + 1) * pageBytes

/** Index in its page of the unit with byte `at`. */
export const unitOf = ({ shift }: ShadowPage, at: number): number => (at & (pageBytes - 1)) >>> shift

const trailingZeros = (x: number): number => 31 - Math.clz32(x & -x)

export class ShadowPages {
  private readonly bytes: number
  private readonly pages: (ShadowPage | undefined)[]

  constructor(bytes: number) {
    this.bytes = bytes
    this.pages = new Array<ShadowPage | undefined>(Math.ceil(bytes / pageBytes))
  }

  /** The page of bytes `[from, to)`, which lie in one, with units that begin and end at them; undefined when untouched. */
  find(from: number, to: number): ShadowPage | undefined {
    const page = this.pages[from >>> pageShift]
    if (page !== undefined && ((from | to) & ((1 << page.shift) - 1)) !== 0) refine(page, trailingZeros(from | to))
    return page
  }

  /** The same; an untouched page comes into being. */
  make(from: number, to: number): ShadowPage {
    const found = this.find(from, to)
    if (found !== undefined) return found
    const shift = Math.min(pageShift, trailingZeros(from | to))
    const page = { shift, writers: empty(shift), readers: empty(shift) }
    this.pages[from >>> pageShift] = page
    return page
  }

  /** Gives every written unit one writer and no readers. */
  settle(by: Accessor): void {
    this.pages.forEach((page, i) => {
      const inside = Math.min(pageBytes, this.bytes - i * pageBytes)
      if (page === undefined) return
      const units = Math.ceil(inside / (1 << page.shift))
      let written = 0
      for (let unit = 0; unit < units; unit++) if (page.writers[unit] !== undefined) written++
      if (written === units) this.pages[i] = { shift: pageShift, writers: [by], readers: [undefined] }
      else {
        page.writers = page.writers.map(writer => writer && by)
        page.readers = empty(page.shift)
      }
    })
  }
}

const empty = (shift: number): undefined[] => new Array<undefined>(pageBytes >> shift).fill(undefined)

/** Cuts the units of a page into smaller ones. */
function refine(page: ShadowPage, shift: number): void {
  const more = page.shift - shift
  const finer = <T>(coarse: readonly T[]): T[] =>
    Array.from({ length: pageBytes >> shift }, (_, i) => coarse[i >> more]!)
  page.writers = finer(page.writers)
  page.readers = finer(page.readers)
  page.shift = shift
}
