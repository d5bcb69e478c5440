import { availableParallelism } from 'node:os'
import { defineConfig, type ViteUserConfig } from 'vitest/config'
import { BaseSequencer, type TestSpecification } from 'vitest/node'

/** Tests that take a process of their own: those that fill memory with traced kernels, and those that start processes. */
const apart = [
  'src/kernels/**/{portable,sm90*,sm100*,layer-keys,layer-queries,e4m3-words}.test.ts',
  'src/{bench,conformance,cpu,emit}/**/*.test.ts',
  'src/cli/{main,emit,check}.test.ts',
  'test/sim/*.test.ts',
  'test/conformance.test.ts',
]

/** Files of ten seconds and more, longest first: begun late, they would leave all cores but one idle at the end. */
const long = [
  'src/emit/kernels',
  'test/sim/decode',
  'src/cli/main',
  'test/sim/others',
  'test/sim/prefill',
  'src/kernels/latent-attention/portable',
  'src/kernels/sparse-prefill/',
  'src/kernels/index-scores/',
  'src/kernels/dense-prefill/portable',
  'src/cpu/execution',
  'test/conformance',
  'src/kernels/linear/',
  'src/kernels/sparse-decode/',
]

class LongFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const place = ({ project: { name }, moduleId }: TestSpecification): number => {
      if (name !== 'unit') return name === 'small' ? long.length + 1 : -1
      const found = long.findIndex(file => moduleId.includes(`/${file}`))
      return found < 0 ? long.length : found
    }
    return (await super.sort(files)).toSorted((a, b) => place(a) - place(b))
  }
}

/**
 * `unit` and `small` run the sources; `browser` and `package` run the built package (`npm run build` first). With CI set,
 * the results are also written to out/vitest.json, from which .ci/run counts.
 */
const config: ViteUserConfig = defineConfig({
  test: {
    pool: 'forks',
    maxWorkers: Math.max(2, availableParallelism() - 1),
    reporters: process.env.CI === undefined ? ['default'] : ['default', 'json'],
    outputFile: { json: 'out/vitest.json' },
    hookTimeout: 120_000,
    sequence: { sequencer: LongFirst },
    projects: [
      { extends: true, test: { name: 'unit', include: apart, testTimeout: 60_000 } },
      {
        extends: true,
        test: {
          name: 'small',
          include: ['src/**/*.test.ts', 'test/**/*.test.ts', 'scripts/**/*.test.ts'],
          exclude: ['test/browser/**', 'test/package/**', ...apart],
          // A worker keeps its modules from file to file: to load them anew would take longer than the tests.
          isolate: false,
          testTimeout: 60_000,
        },
      },
      { extends: true, test: { name: 'browser', include: ['test/browser/**/*.test.ts'], testTimeout: 120_000 } },
      { extends: true, test: { name: 'package', include: ['test/package/**/*.test.ts'], testTimeout: 120_000 } },
    ],
  },
})

export default config
