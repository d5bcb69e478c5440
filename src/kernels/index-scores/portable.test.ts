import { afterAll } from 'vitest'
import { conformanceOf } from '../../../test/gpu-cases.ts'
import { SimDevice } from '../../sim/device.ts'

const device = new SimDevice('sm_80')
afterAll(() => device.dispose())

conformanceOf('indexScores', device)
