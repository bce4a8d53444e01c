//! Dense inner products in `f32` with one fixed order of sums.
//!
//! ⟨a, b⟩ is kept in 16 lanes: lane l takes the products at positions l, l + 16, l + 32, … by fused multiply-add in ascending
//! order; the lanes are then added as a fixed tree (16 → 8 → 4 → 2 → 1). A pair's result therefore does not depend on its
//! neighbours in a batch, on tiling, threads, or the width of the processor's registers.
//! Cost: 2·dim operations a pair; a tile of 4 rows by 4 queries loads 8 vectors for 16 fused operations.

use rayon::prelude::*;

use crate::backend::Matrix;
use crate::backend::cpu::simd::Level;

/// Lanes of one accumulator.
const LANES: usize = 16;
/// Rows and queries of a register tile.
const TILE: usize = 4;
/// Rows one task handles: 64 rows of 768 numbers are 192 KiB, which stay in the second-level cache while the queries pass.
const ROWS_PER_TASK: usize = 64;

/// Adds the lanes as a fixed tree.
#[inline(always)]
fn add_lanes(mut acc: [f32; LANES]) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for l in 0..width {
            acc[l] += acc[l + width];
        }
        width /= 2;
    }
    acc[0]
}

/// One pair.
#[inline(always)]
fn dot_body(a: &[f32], b: &[f32]) -> f32 {
    let mut acc = [0f32; LANES];
    let (a_chunks, a_rest) = a.as_chunks::<LANES>();
    let (b_chunks, b_rest) = b.as_chunks::<LANES>();
    for (x, y) in a_chunks.iter().zip(b_chunks) {
        for l in 0..LANES {
            acc[l] = x[l].mul_add(y[l], acc[l]);
        }
    }
    for (l, (x, y)) in a_rest.iter().zip(b_rest).enumerate() {
        acc[l] = x.mul_add(*y, acc[l]);
    }
    add_lanes(acc)
}

/// A tile of `TILE` rows by `TILE` queries; `out[r][q]`.
#[inline(always)]
fn tile_body(rows: [&[f32]; TILE], queries: [&[f32]; TILE]) -> [[f32; TILE]; TILE] {
    let mut acc = [[[0f32; LANES]; TILE]; TILE];
    let row_chunks = rows.map(|r| r.as_chunks::<LANES>().0);
    let query_chunks = queries.map(|q| q.as_chunks::<LANES>().0);
    let n = row_chunks[0].len();
    for j in 0..n {
        for (acc_row, row) in acc.iter_mut().zip(&row_chunks) {
            for (acc_pair, query) in acc_row.iter_mut().zip(&query_chunks) {
                for l in 0..LANES {
                    acc_pair[l] = row[j][l].mul_add(query[j][l], acc_pair[l]);
                }
            }
        }
    }
    let mut out = [[0f32; TILE]; TILE];
    for r in 0..TILE {
        for q in 0..TILE {
            let (x, y) = (&rows[r][n * LANES..], &queries[q][n * LANES..]);
            for (l, (x, y)) in x.iter().zip(y).enumerate() {
                acc[r][q][l] = x.mul_add(*y, acc[r][q][l]);
            }
            out[r][q] = add_lanes(acc[r][q]);
        }
    }
    out
}

macro_rules! levels {
    ($body:ident, $avx2:ident, $avx512:ident, $dispatch:ident, ($($arg:ident: $ty:ty),*) -> $ret:ty) => {
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma")]
        fn $avx2($($arg: $ty),*) -> $ret {
            $body($($arg),*)
        }

        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx512f,avx2,fma")]
        fn $avx512($($arg: $ty),*) -> $ret {
            $body($($arg),*)
        }

        #[inline]
        fn $dispatch(level: Level, $($arg: $ty),*) -> $ret {
            match level {
                // SAFETY: `Level::detect` found these instructions on this processor.
                #[cfg(target_arch = "x86_64")]
                Level::Avx512 => unsafe { $avx512($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                Level::Avx2 => unsafe { $avx2($($arg),*) },
                _ => $body($($arg),*),
            }
        }
    };
}

levels!(dot_body, dot_avx2, dot_avx512, dot_at, (a: &[f32], b: &[f32]) -> f32);
levels!(block_body, block_avx2, block_avx512, block_at, (rows: &[f32], dim: usize, queries: &[&[f32]], out: &mut [f32]) -> ());

/// ⟨a, b⟩ of two rows of equal length.
#[inline]
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    debug_assert_eq!(a.len(), b.len());
    dot_at(Level::detect(), a, b)
}

/// `out[q][r] = ⟨rows[r], queries[q]⟩` for a block of contiguous rows; `out` has `queries.len() * n_rows` places.
#[inline(always)]
fn block_body(rows: &[f32], dim: usize, queries: &[&[f32]], out: &mut [f32]) {
    let n = rows.len() / dim;
    let row = |r: usize| &rows[r * dim..(r + 1) * dim];
    let mut q = 0;
    while q + TILE <= queries.len() {
        let tile_queries = [queries[q], queries[q + 1], queries[q + 2], queries[q + 3]];
        let mut r = 0;
        while r + TILE <= n {
            let tile = tile_body([row(r), row(r + 1), row(r + 2), row(r + 3)], tile_queries);
            for (i, by_query) in tile.iter().enumerate() {
                for (j, value) in by_query.iter().enumerate() {
                    out[(q + j) * n + r + i] = *value;
                }
            }
            r += TILE;
        }
        for r in r..n {
            for (j, query) in tile_queries.iter().enumerate() {
                out[(q + j) * n + r] = dot_body(row(r), query);
            }
        }
        q += TILE;
    }
    for (j, query) in queries.iter().enumerate().skip(q) {
        for r in 0..n {
            out[j * n + r] = dot_body(row(r), query);
        }
    }
}

/// Calls `take(first_row, n_rows, block)` for every block of rows, where `block[q * n_rows + r]` is the product of query q and row
/// `first_row + r`; results come back in row order.
pub fn by_row_blocks<T: Send>(
    rows: &Matrix,
    queries: &[&[f32]],
    take: impl Fn(usize, usize, &[f32]) -> T + Sync,
) -> Vec<T> {
    let dim = rows.dim();
    if dim == 0 || queries.is_empty() {
        return Vec::new();
    }
    let level = Level::detect();
    rows.as_slice()
        .par_chunks(ROWS_PER_TASK * dim)
        .enumerate()
        .map(|(block, slice)| {
            let n = slice.len() / dim;
            let mut out = vec![0f32; queries.len() * n];
            block_at(level, slice, dim, queries, &mut out);
            take(block * ROWS_PER_TASK, n, &out)
        })
        .collect()
}

/// All products as one `[n_rows]` a query.
pub fn products(rows: &Matrix, queries: &[&[f32]]) -> Vec<Vec<f32>> {
    let blocks = by_row_blocks(rows, queries, |first, n, block| (first, n, block.to_vec()));
    let mut out = vec![vec![0f32; rows.rows()]; queries.len()];
    for (first, n, block) in blocks {
        for (q, row) in out.iter_mut().enumerate() {
            row[first..first + n].copy_from_slice(&block[q * n..(q + 1) * n]);
        }
    }
    out
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn levels_here() -> Vec<Level> {
        [Level::Portable, Level::Avx2, Level::Avx512].into_iter().filter(|&l| l <= Level::detect()).collect()
    }

    proptest! {
        /// Every level, tile position and batch gives the same bits, and they agree with the `f64` reference.
        #[test]
        fn one_result_whatever_the_tiling(
            dim in 1usize..70, n in 1usize..14, b in 1usize..10, seed in any::<u32>(),
        ) {
            let mut state = seed;
            let mut next = move || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 8) as f32 / (1 << 24) as f32 - 0.5
            };
            let rows: Vec<f32> = (0..n * dim).map(|_| next()).collect();
            let queries: Vec<Vec<f32>> = (0..b).map(|_| (0..dim).map(|_| next()).collect()).collect();
            let views: Vec<&[f32]> = queries.iter().map(Vec::as_slice).collect();
            let all = products(&Matrix::new(dim, rows.clone()), &views);
            for (q, query) in queries.iter().enumerate() {
                for r in 0..n {
                    let row = &rows[r * dim..(r + 1) * dim];
                    let reference = crate::math::similarity::dot(row, query);
                    prop_assert!((f64::from(all[q][r]) - reference).abs() < 1e-5);
                    for level in levels_here() {
                        prop_assert_eq!(dot_at(level, row, query).to_bits(), all[q][r].to_bits());
                        prop_assert_eq!(dot_at(level, query, row).to_bits(), all[q][r].to_bits());
                    }
                }
            }
        }
    }
}
