/** Sets of keys as sorted, disjoint, non-touching half-open intervals: how masks are intersected and united exactly. */

/** `[first, end)`. */
export type Interval = readonly [first: number, end: number]
export type IntervalSet = readonly Interval[]

/** One interval as a set; empty when `end <= first`. */
export const intervalSet = (first: number, end: number): IntervalSet => (first < end ? [[first, end]] : [])

/** Keys in both sets. At most `a.length + b.length - 1` intervals. */
export function intersect(a: IntervalSet, b: IntervalSet): IntervalSet {
  const out: Interval[] = []
  for (let i = 0, j = 0; i < a.length && j < b.length; ) {
    const first = Math.max(a[i]![0], b[j]![0])
    const end = Math.min(a[i]![1], b[j]![1])
    if (first < end) out.push([first, end])
    if (a[i]![1] < b[j]![1]) i++
    else j++
  }
  return out
}

/** Keys in either set. At most `a.length + b.length` intervals. */
export function unite(a: IntervalSet, b: IntervalSet): IntervalSet {
  const out: Interval[] = []
  for (const [first, end] of [...a, ...b].sort((x, y) => x[0] - y[0])) {
    const last = out.at(-1)
    if (last === undefined || last[1] < first) out.push([first, end])
    else if (last[1] < end) out[out.length - 1] = [last[0], end]
  }
  return out
}

/** Whether every key of `[first, end)` is in the set. */
export const covers = (set: IntervalSet, first: number, end: number): boolean =>
  set.some(interval => interval[0] <= first && end <= interval[1])

/** Whether some key of `[first, end)` is in the set. */
export const touches = (set: IntervalSet, first: number, end: number): boolean =>
  set.some(interval => Math.max(interval[0], first) < Math.min(interval[1], end))
