import { defineConfig, type ViteUserConfig } from 'vitest/config'

const speedTests = '**/speed.test.ts'

/**
 * `unit` runs the sources; `browser` and `package` run the built package (`npm run build` first); `speed`, whose tests
 * compare times, runs alone after all others. With CI set, the results are also written to out/vitest.json, from which
 * .ci/run counts.
 */
const config: ViteUserConfig = defineConfig({
  test: {
    pool: 'forks',
    reporters: process.env.CI === undefined ? ['default'] : ['default', 'json'],
    outputFile: { json: 'out/vitest.json' },
    projects: [
      {
        extends: true,
        test: {
          name: 'unit',
          include: ['src/**/*.test.ts', 'test/**/*.test.ts', 'scripts/**/*.test.ts'],
          exclude: ['test/browser/**', 'test/package/**', speedTests],
          testTimeout: 60_000,
        },
      },
      { extends: true, test: { name: 'browser', include: ['test/browser/**/*.test.ts'], testTimeout: 120_000 } },
      { extends: true, test: { name: 'package', include: ['test/package/**/*.test.ts'], testTimeout: 120_000 } },
      {
        extends: true,
        test: {
          name: 'speed',
          include: [`src/${speedTests}`],
          testTimeout: 120_000,
          fileParallelism: false,
          sequence: { groupOrder: 1 },
        },
      },
    ],
  },
})

export default config
