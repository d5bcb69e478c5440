"""
Lightning-indexer scores on Hopper by two kernels, with tensor maps, at the sizes of the examples in the manifest:

  scores[t, j] = kScale[j] * sum_h relu(q[t,h] . k[j]) * qScale[t,h]       key j up to the token's own position, else -inf
"""

import sys

import numpy as np
from kernels import Memory, load, open_device


def decode_e4m3(codes):
    exponent, mantissa = (codes >> 3) & 15, codes & 7
    magnitude = np.where(exponent == 0, mantissa * 2.0**-9, (8 + mantissa) * 2.0 ** (exponent.astype(int) - 10))
    return np.where(codes & 128, -magnitude, magnitude)


open_device()
kernels = load(sys.argv[1])
windows, scores = (kernels[name] for name in ("token_windows_paged", "index_scores_sm90_h64_paged"))

# Every scalar is that of the example; memory has the shapes of the example.
numbers = scores.example["args"]
tokens, heads, depth = numbers["q"]["shape"]
blocks, page, _ = numbers["keys"]["shape"]
cached = blocks * page - tokens

random = np.random.default_rng(1)
# Magnitudes below 2: no NaN, and small sums.
q = random.integers(0, 256, (tokens, heads, depth), np.uint8) & 0b1011_1111
keys = random.integers(0, 256, (blocks, page, depth), np.uint8) & 0b1011_1111
q_scale = random.standard_normal((tokens, heads), np.float32)
key_scale = random.uniform(1, 2, (blocks, page)).astype(np.float32)
table = random.permutation(blocks).astype(np.uint32).reshape(1, blocks)

memory = {
    "keyLengths": Memory("i32", (1,), np.array([cached], np.int32)),
    "q": Memory("e4m3", q.shape, q),
    "keys": Memory("e4m3", keys.shape, keys),
    "qScale": Memory("f32", q_scale.shape, q_scale),
    "kScale": Memory("f32", key_scale.shape, key_scale),
    "blockTable": Memory("u32", table.shape, table),
    "scores": Memory("f32", (tokens, blocks * page)),
}
window_words = Memory("i32", (tokens, 4))


def run(kernel, **own):
    """The example's launch with memory of one's own in place of its shapes."""
    args = {
        name: given if given is None or isinstance(given, (int, float)) else memory.get(name)
        for name, given in kernel.example["args"].items()
    }
    kernel.launch(kernel.example["grid"], **{**args, **own})


def as_u32(words):
    """The same memory under the type by which the next kernel reads it."""
    words.dtype = "u32"
    return words


run(windows, out=window_words)
run(scores, windows=as_u32(window_words))

rows = decode_e4m3(keys)[table[0]].reshape(-1, depth)
dots = np.einsum("thd,jd->thj", decode_e4m3(q), rows)
expected = key_scale[table[0]].reshape(-1) * np.einsum("thj,th->tj", np.maximum(dots, 0), q_scale.astype(np.float64))
absolute = key_scale[table[0]].reshape(-1) * np.einsum("thj,th->tj", np.maximum(dots, 0), np.abs(q_scale))
visible = np.arange(blocks * page) <= cached + np.arange(tokens)[:, None]

found = memory["scores"].read(np.float32)
assert np.all(np.isneginf(found[~visible])), "keys beyond a token's window must score -inf"
error = np.abs(found - expected)[visible].max() / absolute[visible].max()
print(f"index_scores_sm90_h64_paged: {tokens} tokens x {blocks * page} keys, largest error {error:.2e} of the largest sum")
assert error <= 1e-3
