/** The version in package.json, two folders up from the sources and from the built files alike. */

import { readFileSync } from 'node:fs'

export function packageVersion(): string {
  const { version } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as {
    version: string
  }
  return version
}
