/** The pictures of a run: which keys each token selected, and the scores they were selected by. */

import { writeFileSync } from 'node:fs'
import type { LayerReport } from '../model/run-layer.ts'
import { pageOf } from './plot-page.ts'
import { scorePicture } from './plot-scores.ts'
import { selectionPicture } from './plot-selection.ts'
import { digits } from './table.ts'

const selectionCaption =
  'Each row is a query token, each column a key of its sequence. A token sees the keys up to its own position, the causal edge, ' +
  'and attends to those that the indexer selects; the file holds what the other implementation selected.'

const scoreCaption =
  "The indexer's score of every key that a token sees: a weighted sum over its heads, without a unit. The keys with the " +
  'largest scores are selected; the dashed line is the lowest of them.'

/**
 * Writes `<stem>.svg` with the selection, `<stem>-scores.svg` with the scores and `<stem>.html` with both.
 *
 * @param path of the SVG or of the page; its ending does not matter
 * @returns the paths written
 */
export function writePictures(path: string, title: string, layer: LayerReport): string[] {
  const stem = path.replace(/\.(svg|html)$/i, '')
  const { tokens, selected, stored, scores, selection, out } = layer
  const subtitle = `${title.replace(/^.*?: /, '')}; ${layer.device.split('\n')[0]}`
  const chosen = selectionPicture({
    title: 'Keys that each token selected',
    subtitle,
    keys: tokens,
    firstPosition: 0,
    selected,
    stored,
  })
  const shown = [...new Set([1, 2, 3].map(third => Math.ceil((third * tokens) / 3) - 1))].filter(token => token >= 0)
  const panels = shown.map(token => ({ token, scores: padded(scores![token]!, tokens), selected: selected[token]! }))
  const scored = scorePicture({ title: 'Indexer score of every visible key', subtitle, panels })
  const page = pageOf({
    title,
    facts: [
      ['device', layer.device.split('\n')[0]!],
      [
        'selection',
        `${selection.identicalRows} of ${selection.rows} tokens as in the file, ${(100 * selection.overlap).toFixed(3)} % of its keys`,
      ],
      ['output', `largest error ${digits(out.maxRelToPeak)} of the peak, cosine ${out.cosine.toFixed(9)}`],
    ],
    figures: [
      { svg: chosen, caption: selectionCaption },
      { svg: scored, caption: scoreCaption },
    ],
  })
  const files: readonly (readonly [string, string])[] = [
    [`${stem}.svg`, chosen],
    [`${stem}-scores.svg`, scored],
    [`${stem}.html`, page],
  ]
  for (const [name, text] of files) writeFileSync(name, text)
  return files.map(([name]) => name)
}

/** Scores of the keys up to the token's own, and -inf for the later ones. */
function padded(scores: Float32Array, keys: number): Float32Array {
  const all = new Float32Array(keys).fill(-Infinity)
  all.set(scores)
  return all
}
