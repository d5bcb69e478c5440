import { expect, test } from 'vitest'
import { conformanceCases } from '../../src/conformance/cases.ts'
import { conformanceShare, shares } from './conformance.ts'

await conformanceShare('others')

test('the shares are the whole table', () => {
  expect(new Set(Object.values(shares).flat())).toEqual(new Set(conformanceCases.map(({ op }) => op)))
})
