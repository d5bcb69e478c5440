/** Prints a traced kernel as PTX: one register per traced register, structured nodes as labelled blocks. */

import { type Inst, isRegister, type Node, type Operand, type Register, type Site } from '../lang/ir.ts'
import type { Kernel } from '../lang/kernel.ts'
import { entryRegisters } from '../lang/register-budget.ts'
import { type Target, type Type, typeInfo } from '../lang/types.ts'
import { type Part, templateLines } from './template.ts'

/** Lowest PTX version each target assembles at (isa.md §1.1); a later one shuts out older drivers. */
const baseVersion: Record<Target, string> = { sm_75: '6.4', sm_80: '7.0', sm_90a: '8.0', sm_100a: '8.6' }

export interface PrintedPtx {
  /** A whole module. */
  readonly text: string
  /** Who wrote what line `line` of the text, counted from 1, does; undefined for lines of no instruction. */
  siteOf(line: number): Site | undefined
}

/** The PTX text of one kernel, a whole module. */
export const printPtx = (kernel: Kernel): string => printPtxWithSites(kernel).text

/** The same, and where each line of it comes from. */
export function printPtxWithSites(kernel: Kernel): PrintedPtx {
  const printer = new Printer(kernel)
  return printer.print()
}

const paramTypes = { buffer: '.u64', scalar: '.b32', tensorMap: '.align 64 .b8' } as const

class Printer {
  private readonly kernel: Kernel
  private readonly lines: string[] = []
  private readonly sites: Site[] = []
  private readonly declared = new Map<string, Set<string>>()
  /** By register. */
  private readonly names: string[] = []
  private version: string
  private labels = 0
  private temporaries = 0

  constructor(kernel: Kernel) {
    this.kernel = kernel
    this.version = baseVersion[kernel.target]
  }

  print(): PrintedPtx {
    const { name, target, threads, cluster, sharedBytes } = this.kernel
    if (sharedBytes > 0) this.lines.push(`mov.u32 ${this.smem()}, smem;`)
    this.loadParams()
    this.block(this.kernel.body)
    const params = Object.entries(this.kernel.params).map(
      ([param, { kind }]) => `  .param ${paramTypes[kind]} ${param}${kind === 'tensorMap' ? '[128]' : ''}`,
    )
    // A role that moves registers: ptxas needs to know how many blocks share a multiprocessor.
    const resident = this.kernel.residentBlocks ?? (hasRegisterRoles(this.kernel.body) ? 1 : undefined)
    const head = [
      `.version ${this.version}`,
      `.target ${target}`,
      '.address_size 64',
      ...(sharedBytes > 0 ? ['.extern .shared .align 1024 .b8 smem[];'] : []),
      `.visible .entry ${name}(`,
      ...params.map((param, i) => (i < params.length - 1 ? `${param},` : param)),
      ')',
      `.maxntid ${threads}, 1, 1`,
      ...(cluster === 1 ? [] : [`.reqnctapercluster ${cluster}, 1, 1`]),
      ...(resident === undefined ? [] : [`.minnctapersm ${resident}`]),
      '{',
      ...[...this.declared].map(([kind, names]) => `  .reg ${kind} ${[...names].join(', ')};`),
    ]
    const body = this.lines.map(line => (line.endsWith(':') ? line : `  ${line}`))
    return {
      text: [...head, ...body, '  ret;', '}', ''].join('\n'),
      siteOf: line => this.sites[line - head.length - 1],
    }
  }

  private loadParams(): void {
    Object.entries(this.kernel.params).forEach(([param, { kind }], i) => {
      const register = this.name(this.kernel.paramRegisters[i]!)
      if (kind === 'tensorMap') {
        this.lines.push(`mov.b64 ${register}, ${param};`, `cvta.param.u64 ${register}, ${register};`)
        return
      }
      this.lines.push(`ld.param${paramTypes[kind]} ${register}, [${param}];`)
      if (kind === 'buffer') this.lines.push(`cvta.to.global.u64 ${register}, ${register};`)
    })
  }

  private block(nodes: readonly Node[]): void {
    for (const node of nodes) {
      const first = this.lines.length
      this.node(node)
      for (let line = first; line < this.lines.length; line++) this.sites[line] ??= node.site
    }
  }

  private node(node: Node): void {
    switch (node.kind) {
      case 'inst':
        return this.inst(node)
      case 'loop': {
        const [head, end] = [this.label('loop'), this.label('end')]
        const index = this.name(node.index)
        const done = this.temporary('.pred')
        this.lines.push(`mov.b32 ${index}, ${this.operand(node.start)};`, `${head}:`)
        this.lines.push(`setp.ge.u32 ${done}, ${index}, ${this.operand(node.end)};`, `@${done} bra ${end};`)
        this.block(node.body)
        this.lines.push(`add.u32 ${index}, ${index}, ${this.operand(node.step)};`, `bra ${head};`, `${end}:`)
        return
      }
      case 'repeat': {
        const head = this.label('repeat')
        this.lines.push(`${head}:`)
        this.block(node.body)
        this.lines.push(`@${this.name(node.again)} bra ${head};`)
        return
      }
      case 'branch': {
        const [other, end] = [this.label('else'), this.label('end')]
        const bra = node.uniform ? 'bra.uni' : 'bra'
        this.lines.push(`@!${this.name(node.when)} ${bra} ${node.otherwise.length > 0 ? other : end};`)
        this.block(node.holds)
        if (node.otherwise.length > 0) {
          this.lines.push(`${bra} ${end};`, `${other}:`)
          this.block(node.otherwise)
        }
        this.lines.push(`${end}:`)
        return
      }
      case 'role':
        return this.role(node)
      default:
        node satisfies never
    }
  }

  /**
   * Threads outside the role jump over it; register counts move between warpgroups on entry. The warp's number goes
   * through an exchange: so ptxas knows that all its lanes take the same way, and keeps what they share in uniform
   * registers.
   */
  private role({ name, first, last, registers, body }: Extract<Node, { kind: 'role' }>): void {
    const end = this.label(`after_${name}`)
    const [warp, outside] = [this.temporary('.b32'), this.temporary('.pred')]
    this.lines.push(`mov.u32 ${warp}, %tid.x;`, `shr.u32 ${warp}, ${warp}, 5;`)
    this.lines.push(`shfl.sync.idx.b32 ${warp}, ${warp}, 0, 31, -1;`, `sub.u32 ${warp}, ${warp}, ${first};`)
    this.lines.push(`setp.ge.u32 ${outside}, ${warp}, ${last - first};`, `@${outside} bra.uni ${end};`)
    if (registers !== undefined) {
      const entry = entryRegisters(this.kernel.threads, this.kernel.residentBlocks)
      this.lines.push(`setmaxnreg.${registers > entry ? 'inc' : 'dec'}.sync.aligned.u32 ${registers};`)
    }
    this.block(body)
    this.lines.push(`${end}:`)
  }

  private inst({ record, operands, mods }: Inst): void {
    if (record.version !== undefined && later(record.version, this.version)) this.version = record.version
    const template = typeof record.ptx === 'string' ? record.ptx : record.ptx(mods, this.kernel.target)
    const temporaries = new Map<string, string>()
    for (const parts of templateLines(template)) {
      let line = ''
      for (const part of parts) line += typeof part === 'string' ? part : this.fill(part, operands, mods, temporaries)
      this.lines.push(line)
    }
  }

  /** The text at one place of a template; temporaries and labels are the same throughout the instruction. */
  private fill(
    part: Exclude<Part, string>,
    operands: Inst['operands'],
    mods: Inst['mods'],
    temporaries: Map<string, string>,
  ): string {
    const { kind, name } = part
    if (kind === 'operand') {
      if (name === 'smem') return this.smem()
      const value = operands[name]!
      return Array.isArray(value) ? `{${value.map(v => this.operand(v)).join(', ')}}` : this.operand(value as Operand)
    }
    if (kind === 'modifier') return String(mods[name])
    let text = temporaries.get(name)
    if (text === undefined) {
      text = kind === 'temporary' ? this.temporary(part.type) : this.label(name)
      temporaries.set(name, text)
    }
    return text
  }

  private operand(operand: Operand): string {
    return isRegister(operand) ? this.name(operand) : literal(operand.type, operand.value)
  }

  private name(register: Register): string {
    let name = this.names[register.id]
    if (name === undefined) {
      name = `%${register.hint ?? register.type}_${register.id}`
      this.names[register.id] = name
      this.declare(typeInfo(register.type).register, name)
    }
    return name
  }

  /** Register with the first byte of the block's shared memory. */
  private smem(): string {
    this.declare('.b32', '%smem')
    return '%smem'
  }

  private temporary(kind: string): string {
    const name = `%t${this.temporaries++}`
    this.declare(kind, name)
    return name
  }

  private declare(kind: string, name: string): void {
    const names = this.declared.get(kind) ?? new Set()
    this.declared.set(kind, names.add(name))
  }

  private label(word: string): string {
    return `${word.toUpperCase()}_${this.labels++}`
  }
}

/** Whether a role moves registers. */
const hasRegisterRoles = (body: readonly Node[]): boolean =>
  body.some(node => node.kind === 'role' && node.registers !== undefined)

const later = (a: string, b: string): boolean => Number(a) > Number(b)

/** Floats as their bits, so that every value survives. */
function literal(type: Type, value: number | bigint): string {
  if (type !== 'f32') return String(value)
  const bits = new DataView(new ArrayBuffer(4))
  bits.setFloat32(0, Number(value))
  return `0f${bits.getUint32(0).toString(16).toUpperCase().padStart(8, '0')}`
}
