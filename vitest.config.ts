import { availableParallelism } from 'node:os'
import { defineConfig, type ViteUserConfig } from 'vitest/config'

/**
 * `unit` runs the sources; `browser` and `package` run the built package (`npm run build` first). With CI set, the results
 * are also written to out/vitest.json, from which .ci/run counts.
 */
const config: ViteUserConfig = defineConfig({
  test: {
    pool: 'forks',
    maxWorkers: Math.max(2, availableParallelism() - 1),
    reporters: process.env.CI === undefined ? ['default'] : ['default', 'json'],
    outputFile: { json: 'out/vitest.json' },
    hookTimeout: 120_000,
    projects: [
      {
        extends: true,
        test: {
          name: 'unit',
          include: ['src/**/*.test.ts', 'test/**/*.test.ts', 'scripts/**/*.test.ts'],
          exclude: ['test/browser/**', 'test/package/**'],
          testTimeout: 60_000,
        },
      },
      { extends: true, test: { name: 'browser', include: ['test/browser/**/*.test.ts'], testTimeout: 120_000 } },
      { extends: true, test: { name: 'package', include: ['test/package/**/*.test.ts'], testTimeout: 120_000 } },
    ],
  },
})

export default config
