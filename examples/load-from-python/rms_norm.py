"""out = x * weight / sqrt(mean(x^2) + eps) over rows of f32, by the kernel rms_norm_f32. Runs on any card from sm_75 on."""

import sys

import numpy as np
from kernels import Memory, load, open_device

rows, width, eps = 1000, 1536, 1e-6

open_device()
rms_norm = load(sys.argv[1])["rms_norm_f32"]

random = np.random.default_rng(1)
x = random.standard_normal((rows, width), np.float32)
weight = random.standard_normal(width, np.float32)
out = Memory("f32", (rows, width))

rms_norm.launch(
    (rows, 1, 1),
    x=Memory("f32", x.shape, x),
    weight=Memory("f32", weight.shape, weight),
    out=out,
    eps=eps,
    heads=1,
    width=width,
    xTokenStride=width,
    xHeadStride=0,
    outTokenStride=width,
    outHeadStride=0,
)

exact = x.astype(np.float64)
expected = exact * weight / np.sqrt((exact**2).mean(axis=1, keepdims=True) + np.float64(np.float32(eps)))
error = np.abs(out.read(np.float32) / expected - 1).max()
print(f"rms_norm_f32: {rows} x {width}, largest relative error {error:.2e}")
assert error <= 2.0**-23
