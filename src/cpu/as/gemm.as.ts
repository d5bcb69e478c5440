// The two register tiles every kernel is made of: 4 rows x 8 columns, the largest that V8 11.3 keeps in registers.

import { madd } from "./simd.as";

/** Columns of a packed panel. */
export const PANEL: u32 = 8;

/**
 * C[4][8] = A[4][k] * B[k][8].
 * A: four rows `lda` bytes apart, elements contiguous. B: packed panel, 32 bytes a step. C: rows `ldc` bytes apart.
 * k a multiple of 4. The sum over k runs in index order.
 */
export function dotTile(a0: usize, lda: usize, b: usize, k: u32, c: usize, ldc: usize): void {
  let a1 = a0 + lda;
  let a2 = a1 + lda;
  let a3 = a2 + lda;
  let c00 = f32x4.splat(0);
  let c01 = c00, c10 = c00, c11 = c00, c20 = c00, c21 = c00, c30 = c00, c31 = c00;
  for (const end = b + (k << 5); b < end; b += 128) {
    let b0 = v128.load(b), b1 = v128.load(b, 16);
    let x = v128.load_splat<f32>(a0);
    c00 = madd(x, b0, c00); c01 = madd(x, b1, c01);
    x = v128.load_splat<f32>(a1);
    c10 = madd(x, b0, c10); c11 = madd(x, b1, c11);
    x = v128.load_splat<f32>(a2);
    c20 = madd(x, b0, c20); c21 = madd(x, b1, c21);
    x = v128.load_splat<f32>(a3);
    c30 = madd(x, b0, c30); c31 = madd(x, b1, c31);
    b0 = v128.load(b, 32); b1 = v128.load(b, 48);
    x = v128.load_splat<f32>(a0, 4);
    c00 = madd(x, b0, c00); c01 = madd(x, b1, c01);
    x = v128.load_splat<f32>(a1, 4);
    c10 = madd(x, b0, c10); c11 = madd(x, b1, c11);
    x = v128.load_splat<f32>(a2, 4);
    c20 = madd(x, b0, c20); c21 = madd(x, b1, c21);
    x = v128.load_splat<f32>(a3, 4);
    c30 = madd(x, b0, c30); c31 = madd(x, b1, c31);
    b0 = v128.load(b, 64); b1 = v128.load(b, 80);
    x = v128.load_splat<f32>(a0, 8);
    c00 = madd(x, b0, c00); c01 = madd(x, b1, c01);
    x = v128.load_splat<f32>(a1, 8);
    c10 = madd(x, b0, c10); c11 = madd(x, b1, c11);
    x = v128.load_splat<f32>(a2, 8);
    c20 = madd(x, b0, c20); c21 = madd(x, b1, c21);
    x = v128.load_splat<f32>(a3, 8);
    c30 = madd(x, b0, c30); c31 = madd(x, b1, c31);
    b0 = v128.load(b, 96); b1 = v128.load(b, 112);
    x = v128.load_splat<f32>(a0, 12);
    c00 = madd(x, b0, c00); c01 = madd(x, b1, c01);
    x = v128.load_splat<f32>(a1, 12);
    c10 = madd(x, b0, c10); c11 = madd(x, b1, c11);
    x = v128.load_splat<f32>(a2, 12);
    c20 = madd(x, b0, c20); c21 = madd(x, b1, c21);
    x = v128.load_splat<f32>(a3, 12);
    c30 = madd(x, b0, c30); c31 = madd(x, b1, c31);
    a0 += 16; a1 += 16; a2 += 16; a3 += 16;
  }
  v128.store(c, c00); v128.store(c, c01, 16);
  c += ldc;
  v128.store(c, c10); v128.store(c, c11, 16);
  c += ldc;
  v128.store(c, c20); v128.store(c, c21, 16);
  c += ldc;
  v128.store(c, c30); v128.store(c, c31, 16);
}

/**
 * C[4][8] = diag(alpha[0..3]) * C + P^T * B, where P[n][4] has rows `ldp` bytes apart and B[n][8] rows `ldb` apart.
 * P^T * B is summed in index order and added to alpha * C at the end, so that long sums are sums of block sums.
 */
export function outerTile(
  p: usize, ldp: usize, b: usize, ldb: usize, n: u32, c: usize, ldc: usize, alpha: usize,
): void {
  let c00 = f32x4.splat(0);
  let c01 = c00, c10 = c00, c11 = c00, c20 = c00, c21 = c00, c30 = c00, c31 = c00;
  for (; n > 0; n--) {
    const b0 = v128.load(b), b1 = v128.load(b, 16);
    let x = v128.load_splat<f32>(p);
    c00 = madd(x, b0, c00); c01 = madd(x, b1, c01);
    x = v128.load_splat<f32>(p, 4);
    c10 = madd(x, b0, c10); c11 = madd(x, b1, c11);
    x = v128.load_splat<f32>(p, 8);
    c20 = madd(x, b0, c20); c21 = madd(x, b1, c21);
    x = v128.load_splat<f32>(p, 12);
    c30 = madd(x, b0, c30); c31 = madd(x, b1, c31);
    p += ldp;
    b += ldb;
  }
  let x = v128.load_splat<f32>(alpha);
  v128.store(c, madd(x, v128.load(c), c00)); v128.store(c, madd(x, v128.load(c, 16), c01), 16);
  c += ldc;
  x = v128.load_splat<f32>(alpha, 4);
  v128.store(c, madd(x, v128.load(c), c10)); v128.store(c, madd(x, v128.load(c, 16), c11), 16);
  c += ldc;
  x = v128.load_splat<f32>(alpha, 8);
  v128.store(c, madd(x, v128.load(c), c20)); v128.store(c, madd(x, v128.load(c, 16), c21), 16);
  c += ldc;
  x = v128.load_splat<f32>(alpha, 12);
  v128.store(c, madd(x, v128.load(c), c30)); v128.store(c, madd(x, v128.load(c, 16), c31), 16);
}

/** Writes an f32 row of `k` elements as column `column` of a packed panel [k][8]. */
export function packColumn(row: usize, k: u32, panel: usize, column: u32): void {
  let to = panel + (column << 2);
  for (const end = row + (k << 2); row < end; row += 4, to += 32) store<f32>(to, load<f32>(row));
}

/** Writes eight f32 rows of `k` elements, `ld` bytes apart, as a packed panel [k][8]; k a multiple of 4. */
export function packPanel(rows: usize, ld: usize, k: u32, panel: usize): void {
  packFour(rows, ld, k, panel);
  packFour(rows + (ld << 2), ld, k, panel + 16);
}

function packFour(row0: usize, ld: usize, k: u32, to: usize): void {
  let row1 = row0 + ld;
  let row2 = row1 + ld;
  let row3 = row2 + ld;
  for (const end = row0 + (k << 2); row0 < end; row0 += 16, row1 += 16, row2 += 16, row3 += 16, to += 128) {
    const a = v128.load(row0), b = v128.load(row1), c = v128.load(row2), d = v128.load(row3);
    let ab = v128.shuffle<f32>(a, b, 0, 4, 1, 5), cd = v128.shuffle<f32>(c, d, 0, 4, 1, 5);
    v128.store(to, v128.shuffle<f32>(ab, cd, 0, 1, 4, 5));
    v128.store(to, v128.shuffle<f32>(ab, cd, 2, 3, 6, 7), 32);
    ab = v128.shuffle<f32>(a, b, 2, 6, 3, 7);
    cd = v128.shuffle<f32>(c, d, 2, 6, 3, 7);
    v128.store(to, v128.shuffle<f32>(ab, cd, 0, 1, 4, 5), 64);
    v128.store(to, v128.shuffle<f32>(ab, cd, 2, 3, 6, 7), 96);
  }
}
