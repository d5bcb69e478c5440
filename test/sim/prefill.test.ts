import { conformanceShare } from './conformance.ts'

await conformanceShare('prefill')
