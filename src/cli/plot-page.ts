/** The page around the pictures of a run. */

import { escapeText } from './plot-svg.ts'

export interface Figure {
  /** SVG markup. */
  readonly svg: string
  /** How to read it, in a sentence or two. */
  readonly caption: string
}

export interface Page {
  readonly title: string
  /** What was run and what came out, as name and value. */
  readonly facts: readonly (readonly [name: string, value: string])[]
  readonly figures: readonly Figure[]
}

const style = `
body { margin: 2rem auto; max-width: 1024px; padding: 0 1rem; font: 15px/1.5 system-ui, sans-serif; color: #33363b; background: #ffffff }
h1 { font-size: 1.3rem }
table { border-collapse: collapse; margin: 1rem 0 }
th, td { text-align: left; padding: 0.15rem 1.5rem 0.15rem 0; font-weight: normal; vertical-align: top }
th { color: #6b7078 }
figure { margin: 2rem 0 }
svg { max-width: 100%; height: auto }
figcaption { color: #6b7078; max-width: 46rem }`

export function pageOf({ title, facts, figures }: Page): string {
  const rows = facts.map(([name, value]) => `<tr><th>${escapeText(name)}</th><td>${escapeText(value)}</td></tr>`)
  const shown = figures.map(
    ({ svg, caption }) => `<figure>\n${svg}<figcaption>${escapeText(caption)}</figcaption>\n</figure>`,
  )
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>${escapeText(title)}</title>
<style>${style}
</style>
<h1>${escapeText(title)}</h1>
<table>
${rows.join('\n')}
</table>
${shown.join('\n')}
</html>
`
}
