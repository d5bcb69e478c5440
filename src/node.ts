/**
 * The part of the library that needs Node's file system.
 *
 * @module
 */

export { type CheckpointLayer, loadDsaLayer } from './model/checkpoint.ts'
export { openSafetensors, type SafetensorsReader } from './tensor/safetensors-node.ts'
