/** Seeded random numbers for tests. */

export { type Random, seeded } from '../src/conformance/random.ts'
