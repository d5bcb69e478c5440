import { conformanceShare } from './conformance.ts'

await conformanceShare('decode')
