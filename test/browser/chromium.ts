/** Debian's Chromium, headless, and pages of the built package on this machine's loopback address. */

import { accessSync, constants, readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { extname, join, normalize } from 'node:path'
import { type Browser, chromium } from 'playwright-core'

/** The executable: `CHROMIUM` or where Debian's package puts it. A missing one is an error, never a skipped test. */
export function chromiumPath(): string {
  const path = process.env.CHROMIUM ?? '/usr/bin/chromium'
  try {
    accessSync(path, constants.X_OK)
  } catch (cause) {
    throw new Error(
      `browser tests need Chromium at ${path}: apt-get install chromium, or set CHROMIUM to an executable`,
      { cause },
    )
  }
  return path
}

export const launchChromium = (): Promise<Browser> =>
  chromium.launch({
    executablePath: chromiumPath(),
    args: [
      ...['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run'],
      ...['--disable-background-networking', '--disable-component-update', '--disable-sync'],
    ],
  })

const types: Record<string, string> = { '.html': 'text/html', '.js': 'text/javascript' }

/** What lets a page share memory between threads. */
const isolationHeaders = {
  'Cross-Origin-Opener-Policy': 'same-origin',
  'Cross-Origin-Embedder-Policy': 'require-corp',
}

export interface Site extends AsyncDisposable {
  readonly origin: string
}

/** Serves a folder; `/` is an empty page. @param isolated sends the headers that make pages cross-origin isolated */
export async function serve(folder: string, isolated: boolean): Promise<Site> {
  const server = createServer(({ url }, response) => {
    const { pathname } = new URL(url ?? '/', 'http://localhost')
    const headers = isolated ? isolationHeaders : {}
    try {
      const body = pathname === '/' ? '<!doctype html>' : readFileSync(join(folder, normalize(pathname)))
      response.writeHead(200, { 'Content-Type': types[extname(pathname)] ?? 'text/html', ...headers }).end(body)
    } catch {
      response.writeHead(404, headers).end()
    }
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  return {
    origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections()
      await new Promise(resolve => server.close(resolve))
    },
  }
}
