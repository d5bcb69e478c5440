// The one AssemblyScript program: every kernel of the cpu device.

/** First byte after the program's static data. */
export const staticBytes: usize = __heap_base;

export * from "../../kernels/latent-attention/cpu.as";
export * from "../../kernels/merge-states/cpu.as";
export * from "../../kernels/rms-norm/cpu.as";
export * from "../../kernels/layer-norm/cpu.as";
export * from "../../kernels/rope/cpu.as";
export * from "../../kernels/hadamard/cpu.as";
export * from "../../kernels/quantize/cpu.as";
export * from "../../kernels/cast/cpu.as";
export * from "../../kernels/cache-rows/cpu.as";
export * from "../../kernels/linear/cpu.as";
export * from "../../bench/cpu.as";
export * from "../../kernels/index-scores/cpu.as";
export * from "../../kernels/multiply/cpu.as";
export * from "../../kernels/remap-indices/cpu.as";
export * from "../../kernels/top-k/cpu.as";
export * from "../../kernels/dense-prefill/cpu.as";
export * from "../../kernels/index-top-k/cpu.as";
