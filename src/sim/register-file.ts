/** Lane storage of registers, many in one buffer: a buffer for each would take longer to make than most instructions. */

import { type Lanes, type Type, typeInfo } from '../lang/types.ts'

const lanes = 32
const slabBytes = 16 << 10

export class RegisterFile {
  private slab = new ArrayBuffer(0)
  private used = 0

  /** A register of zeros. */
  make(type: Type): Lanes {
    const { lanes: storage, perLane } = typeInfo(type)
    const bytes = lanes * perLane * storage.BYTES_PER_ELEMENT
    if (this.used + bytes > this.slab.byteLength) {
      this.slab = new ArrayBuffer(slabBytes)
      this.used = 0
    }
    const made = new storage(this.slab, this.used, lanes * perLane)
    this.used += bytes
    return made
  }
}
