import { CommanderError } from '@commander-js/extra-typings'
import { expect, test } from 'vitest'
import { FaultError, OptionError } from '../errors.ts'
import { describeFailure } from './failure.ts'

test.each([
  [new OptionError({ where: 'x', allowed: 'a\n  b' }), { exitCode: 2, code: 'E_OPTION', message: 'x: expected a b' }],
  [new FaultError({ where: 'x', allowed: 'y' }), { exitCode: 1, code: 'E_FAULT', message: 'x: expected y' }],
  [Object.assign(new Error('no file'), { code: 'ENOENT' }), { exitCode: 2, code: 'ENOENT', message: 'no file' }],
  [new TypeError('bug'), { exitCode: 1, code: 'E_INTERNAL', message: 'bug' }],
  ['thrown text', { exitCode: 1, code: 'E_INTERNAL', message: 'thrown text' }],
  [
    new CommanderError(1, 'commander.unknownOption', 'error: x\n(y)'),
    { exitCode: 2, code: 'E_USAGE', message: 'x (y)' },
  ],
])('%s', (error, failure) => {
  expect(describeFailure(error)).toEqual(failure)
})

test('help is no failure', () => {
  expect(describeFailure(new CommanderError(0, 'commander.helpDisplayed', '(outputHelp)'))).toBeUndefined()
})
