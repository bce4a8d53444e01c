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

/// Sixteen lanes in whatever registers a level has. All implementations give the same bits.
trait Lanes: Copy {
    fn zero() -> Self;
    fn load(from: &[f32; LANES]) -> Self;
    /// self + a·b, rounded once, lane by lane.
    fn add_product(self, a: Self, b: Self) -> Self;
    fn to_array(self) -> [f32; LANES];
}

impl Lanes for [f32; LANES] {
    #[inline(always)]
    fn zero() -> Self {
        [0.0; LANES]
    }

    #[inline(always)]
    fn load(from: &[f32; LANES]) -> Self {
        *from
    }

    #[inline(always)]
    fn add_product(mut self, a: Self, b: Self) -> Self {
        for l in 0..LANES {
            self[l] = a[l].mul_add(b[l], self[l]);
        }
        self
    }

    #[inline(always)]
    fn to_array(self) -> [f32; LANES] {
        self
    }
}

/// The register forms; each is used only inside a function compiled for its instructions.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m256, __m512, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_setzero_ps, _mm256_storeu_ps, _mm512_fmadd_ps,
        _mm512_loadu_ps, _mm512_setzero_ps, _mm512_storeu_ps,
    };

    use super::{LANES, Lanes};

    #[derive(Clone, Copy)]
    pub(super) struct Avx512(__m512);

    impl Lanes for Avx512 {
        #[inline(always)]
        fn zero() -> Self {
            // SAFETY: reached only from functions compiled for avx512f, after `Level::detect`.
            Self(unsafe { _mm512_setzero_ps() })
        }

        #[inline(always)]
        fn load(from: &[f32; LANES]) -> Self {
            // SAFETY: as in `zero`; the array holds the 16 numbers that are read.
            Self(unsafe { _mm512_loadu_ps(from.as_ptr()) })
        }

        #[inline(always)]
        fn add_product(self, a: Self, b: Self) -> Self {
            // SAFETY: as in `zero`.
            Self(unsafe { _mm512_fmadd_ps(a.0, b.0, self.0) })
        }

        #[inline(always)]
        fn to_array(self) -> [f32; LANES] {
            let mut out = [0.0; LANES];
            // SAFETY: as in `zero`; the array takes the 16 numbers that are written.
            unsafe { _mm512_storeu_ps(out.as_mut_ptr(), self.0) };
            out
        }
    }

    #[derive(Clone, Copy)]
    pub(super) struct Avx2(__m256, __m256);

    impl Lanes for Avx2 {
        #[inline(always)]
        fn zero() -> Self {
            // SAFETY: reached only from functions compiled for avx2 and fma, after `Level::detect`.
            unsafe { Self(_mm256_setzero_ps(), _mm256_setzero_ps()) }
        }

        #[inline(always)]
        fn load(from: &[f32; LANES]) -> Self {
            // SAFETY: as in `zero`; the array holds the 16 numbers that are read.
            unsafe { Self(_mm256_loadu_ps(from.as_ptr()), _mm256_loadu_ps(from.as_ptr().add(LANES / 2))) }
        }

        #[inline(always)]
        fn add_product(self, a: Self, b: Self) -> Self {
            // SAFETY: as in `zero`.
            unsafe { Self(_mm256_fmadd_ps(a.0, b.0, self.0), _mm256_fmadd_ps(a.1, b.1, self.1)) }
        }

        #[inline(always)]
        fn to_array(self) -> [f32; LANES] {
            let mut out = [0.0; LANES];
            // SAFETY: as in `zero`; the array takes the 16 numbers that are written.
            unsafe {
                _mm256_storeu_ps(out.as_mut_ptr(), self.0);
                _mm256_storeu_ps(out.as_mut_ptr().add(LANES / 2), self.1);
            }
            out
        }
    }
}

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

/// The products of `R` rows with `Q` queries of one length; `out[r][q]`.
#[inline(always)]
fn tile<V: Lanes, const R: usize, const Q: usize>(rows: [&[f32]; R], queries: [&[f32]; Q]) -> [[f32; Q]; R] {
    let dim = rows[0].len();
    let whole = dim / LANES;
    let row_chunks: [&[[f32; LANES]]; R] = rows.map(|r| &r[..dim].as_chunks().0[..whole]);
    let query_chunks: [&[[f32; LANES]]; Q] = queries.map(|q| &q[..dim].as_chunks().0[..whole]);
    let mut acc = [[V::zero(); Q]; R];
    for j in 0..whole {
        let mut query = [V::zero(); Q];
        for q in 0..Q {
            query[q] = V::load(&query_chunks[q][j]);
        }
        for r in 0..R {
            let row = V::load(&row_chunks[r][j]);
            for q in 0..Q {
                acc[r][q] = acc[r][q].add_product(row, query[q]);
            }
        }
    }
    let mut out = [[0f32; Q]; R];
    for r in 0..R {
        for q in 0..Q {
            let mut lanes = acc[r][q].to_array();
            let (row, query) = (&rows[r][whole * LANES..], &queries[q][whole * LANES..]);
            for (lane, (x, y)) in lanes.iter_mut().zip(row.iter().zip(query)) {
                *lane = x.mul_add(*y, *lane);
            }
            out[r][q] = add_lanes(lanes);
        }
    }
    out
}

/// `out[q * n + r] = ⟨rows[r], queries[q]⟩` for a block of n contiguous rows.
#[inline(always)]
fn block<V: Lanes>(rows: &[f32], dim: usize, queries: &[&[f32]], out: &mut [f32]) {
    let n = rows.len() / dim;
    let row = |r: usize| &rows[r * dim..(r + 1) * dim];
    let (fours, rest) = queries.as_chunks::<TILE>();
    for (i, four) in fours.iter().enumerate() {
        let first = i * TILE;
        let mut r = 0;
        while r + TILE <= n {
            let found = tile::<V, TILE, TILE>([row(r), row(r + 1), row(r + 2), row(r + 3)], *four);
            for q in 0..TILE {
                for k in 0..TILE {
                    out[(first + q) * n + r + k] = found[k][q];
                }
            }
            r += TILE;
        }
        for r in r..n {
            let [found] = tile::<V, 1, TILE>([row(r)], *four);
            for q in 0..TILE {
                out[(first + q) * n + r] = found[q];
            }
        }
    }
    for (i, query) in rest.iter().enumerate() {
        let out = &mut out[(fours.len() * TILE + i) * n..][..n];
        let mut r = 0;
        while r + TILE <= n {
            let found = tile::<V, TILE, 1>([row(r), row(r + 1), row(r + 2), row(r + 3)], [*query]);
            for k in 0..TILE {
                out[r + k] = found[k][0];
            }
            r += TILE;
        }
        for (r, place) in out.iter_mut().enumerate().skip(r) {
            *place = tile::<V, 1, 1>([row(r)], [*query])[0][0];
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx2,fma")]
fn block_avx512(rows: &[f32], dim: usize, queries: &[&[f32]], out: &mut [f32]) {
    block::<x86::Avx512>(rows, dim, queries, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn block_avx2(rows: &[f32], dim: usize, queries: &[&[f32]], out: &mut [f32]) {
    block::<x86::Avx2>(rows, dim, queries, out);
}

fn block_at(level: Level, rows: &[f32], dim: usize, queries: &[&[f32]], out: &mut [f32]) {
    match level {
        // SAFETY: `Level::detect` found these instructions on this processor.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { block_avx512(rows, dim, queries, out) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { block_avx2(rows, dim, queries, out) },
        _ => block::<[f32; LANES]>(rows, dim, queries, out),
    }
}

fn dot_at(level: Level, a: &[f32], b: &[f32]) -> f32 {
    let mut out = [0f32];
    if !a.is_empty() {
        block_at(level, a, a.len(), &[b], &mut out);
    }
    out[0]
}

/// ⟨a, b⟩ of two rows of equal length.
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    debug_assert_eq!(a.len(), b.len());
    dot_at(Level::detect(), a, b)
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
