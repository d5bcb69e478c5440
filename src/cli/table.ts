/** Tables as text: for the terminal and as Markdown. */

/** A cell; numbers are given as text already, since only the column's owner knows how many digits count. */
export type Row = readonly string[]

export interface Table {
  readonly head: Row
  /** `r` sets a column flush right, for numbers. One letter a column. */
  readonly align: string
  readonly rows: readonly Row[]
}

/** Columns two spaces apart, the head underlined. */
export function textTable({ head, align, rows }: Table): string {
  const widths = columnWidths([head, ...rows])
  const line = (row: Row): string =>
    row
      .map((cell, i) => pad(cell, widths[i]!, align[i] === 'r'))
      .join('  ')
      .trimEnd()
  return [line(head), line(widths.map(width => '-'.repeat(width))), ...rows.map(line)].join('\n')
}

/** A GitHub table. */
export function markdownTable({ head, align, rows }: Table): string {
  const line = (row: Row): string => `| ${row.map(cell => cell.replaceAll('|', '\\|')).join(' | ')} |`
  const rule = head.map((_, i) => (align[i] === 'r' ? '---:' : '---'))
  return [line(head), line(rule), ...rows.map(line)].join('\n')
}

/** Four significant digits without an exponent where people read it without one; `-` for nothing. */
export function digits(value: number | undefined): string {
  if (value === undefined || Number.isNaN(value)) return '-'
  if (value === 0 || !Number.isFinite(value)) return String(value)
  const magnitude = Math.abs(value)
  if (magnitude < 1e-3 || magnitude >= 1e7) return value.toExponential(2)
  if (magnitude >= 1000) return value.toFixed(0)
  return value.toPrecision(4)
}

function columnWidths(rows: readonly Row[]): number[] {
  return rows[0]!.map((_, i) => rows.reduce((most, row) => Math.max(most, row[i]!.length), 0))
}

const pad = (cell: string, width: number, right: boolean): string => (right ? cell.padStart(width) : cell.padEnd(width))
