/** Indexer logits of DeepGEMM: `mqa<n>.{q,k,k_scale,weights,ks,ke,logits}`; e4m3 as bytes, -inf outside `[ks, ke)`. */

import { indexScores } from '../ops/index-scores.ts'
import type { SafetensorsFile } from '../tensor/safetensors.ts'
import { type Tensor, tensor } from '../tensor/tensor.ts'
import { type ConformanceCase, judge } from './case.ts'
import { collect, poisonedOutputs } from './data.ts'
import { caseNames, type GoldenFormat } from './golden-format.ts'
import { deepGemmLogits } from './peer-gates.ts'

export const deepGemmCases: GoldenFormat = file => {
  const names = caseNames(file, /^mqa\d+\.q$/)
  return names.length === 0 ? undefined : names.map(name => caseOf(file, name))
}

function caseOf(file: SafetensorsFile, name: string): ConformanceCase {
  const [q, values] = [asE4m3(file.get(`${name}.q`, 'u8')), asE4m3(file.get(`${name}.k`, 'u8'))]
  const [qScale, scales] = [file.get(`${name}.weights`, 'f32'), file.get(`${name}.k_scale`, 'f32')]
  const window = { lo: file.get(`${name}.ks`, 'i32'), hi: file.get(`${name}.ke`, 'i32') }
  const logits = file.get(`${name}.logits`, 'f32')
  return {
    op: 'indexScores',
    name,
    async run(device) {
      const into = poisonedOutputs(device, { scores: ['f32', logits.shape] })
      indexScores(device, { q, qScale, keys: { values, scales }, window, into })
      return judge(deepGemmLogits((await collect(into)).scores, logits.codes()))
    },
  }
}

const asE4m3 = (t: Tensor<'u8'>): Tensor<'e4m3'> => tensor('e4m3', t.shape, t.data)
