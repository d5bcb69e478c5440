import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { type Level, runLevel } from '../examples/indexer.ts'
import { level as level1 } from '../examples/level-1.ts'
import { level as level2 } from '../examples/level-2.ts'
import { level as level3 } from '../examples/level-3.ts'
import { level as level4 } from '../examples/level-4.ts'
import { SimDevice } from '../src/sim/device.ts'

const levels: readonly Level[] = [level1, level2, level3, level4]

test.each(levels)('$name agrees with the plain loop', async level => {
  await using device = new SimDevice('sm_90a')
  const { error } = await runLevel(level, device)
  expect(error).toBeLessThan(1e-6)
})

test.each(levels)('$name takes less than a tile of keys, and one token', async level => {
  await using device = new SimDevice('sm_90a', { seed: 3 })
  const { error } = await runLevel(level, device, { ...level.small, tokens: 1, keys: 3 })
  expect(error).toBeLessThan(1e-6)
})

test.each([1, 2, 3, 4])('level %d is one page', number => {
  const text = readFileSync(fileURLToPath(new URL(`../examples/level-${number}.ts`, import.meta.url)), 'utf8')
  expect(text.split('\n').length).toBeLessThan(150)
})
