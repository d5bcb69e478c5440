import { defineConfig, type ViteUserConfig } from 'vitest/config'

/**
 * Three projects: `unit` runs the sources, `browser` and `package` run the built package (`npm run build` first).
 * With CI set, the results are also written to out/vitest.json, from which .ci/run counts.
 */
const config: ViteUserConfig = defineConfig({
  test: {
    reporters: process.env.CI === undefined ? ['default'] : ['default', 'json'],
    outputFile: { json: 'out/vitest.json' },
    projects: [
      {
        test: {
          name: 'unit',
          pool: 'forks',
          include: ['src/**/*.test.ts', 'test/**/*.test.ts', 'scripts/**/*.test.ts'],
          exclude: ['test/browser/**', 'test/package/**'],
          testTimeout: 60_000,
        },
      },
      { test: { name: 'browser', pool: 'forks', include: ['test/browser/**/*.test.ts'], testTimeout: 120_000 } },
      { test: { name: 'package', pool: 'forks', include: ['test/package/**/*.test.ts'], testTimeout: 120_000 } },
    ],
  },
})

export default config
