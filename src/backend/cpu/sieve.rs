//! Nearest row by cosine, exactly, at a quarter of the memory traffic: an 8-bit sieve with rigorous bounds, then `f32` products for
//! the few rows that can still win.
//!
//! A row r is kept as r̂ = scale · codes with codes in -127..=127 and the length of what is lost, ‖r - r̂‖; a query q likewise. Then
//! ⟨q, r⟩ = ⟨q̂, r̂⟩ + ⟨q̂, r - r̂⟩ + ⟨q - q̂, r⟩, so |⟨q, r⟩ - ⟨q̂, r̂⟩| <= ‖q̂‖ ‖r - r̂‖ + ‖q - q̂‖ ‖r‖. A row whose upper bound lies below the best
//! lower bound cannot be the nearest. The rest are compared by the backend's exact products, ties to the lowest row, so the result is
//! that of comparing all rows. Cost: dim bytes a row instead of 4·dim.

use rayon::prelude::*;

use crate::backend::Matrix;
use crate::backend::cpu::dense;
use crate::backend::cpu::simd::Level;

/// Codes of one row are padded to a multiple of this.
const CHUNK: usize = 32;
/// Rows one task handles: 512 rows of 768 codes stay in the second-level cache while the queries pass.
const ROWS_PER_TASK: usize = 512;
/// Queries that share one load of a row.
const TILE: usize = 4;
/// Room for the rounding of `f32` products and bounds, a share of ‖q‖ ‖r‖: far above their error, far below the sieve's own width.
const MARGIN: f32 = 1e-4;

/// The rows of a matrix in 8 bits.
pub struct Sieve {
    rows: Matrix,
    width: usize,
    /// `[n, width]`
    codes: Vec<i8>,
    bounds: Vec<Bound>,
}

/// What turns a product of codes into an interval.
#[derive(Clone, Copy)]
struct Bound {
    scale: f32,
    /// ‖r̂‖
    kept: f32,
    /// ‖r - r̂‖
    lost: f32,
    /// ‖r‖
    length: f32,
}

fn quantize(row: &[f32], codes: &mut [i8]) -> Bound {
    let largest = row.iter().fold(0f32, |m, v| m.max(v.abs()));
    let scale = if largest > 0.0 { largest / 127.0 } else { 1.0 };
    let (mut kept, mut lost, mut length) = (0f64, 0f64, 0f64);
    for (code, &v) in codes.iter_mut().zip(row) {
        *code = (v / scale).round() as i8;
        let back = f64::from(*code) * f64::from(scale);
        kept += back * back;
        lost += (f64::from(v) - back) * (f64::from(v) - back);
        length += f64::from(v) * f64::from(v);
    }
    Bound { scale, kept: kept.sqrt() as f32, lost: lost.sqrt() as f32, length: length.sqrt() as f32 }
}

/// A query's codes, widened so that a product needs no conversion of its own.
struct Query {
    codes: Vec<i16>,
    bound: Bound,
}

/// A row that may be the nearest, with its upper bound.
type Candidate = (u32, f32);

/// What one task found for one query.
#[derive(Default)]
struct Found {
    candidates: Vec<Candidate>,
    best_lower: Option<f32>,
}

impl Found {
    fn offer(&mut self, row: u32, product: i32, q: &Bound, r: &Bound) {
        let middle = product as f32 * q.scale * r.scale;
        let error = q.kept * r.lost + q.lost * r.length + MARGIN * q.length * r.length;
        let (lower, upper) = (middle - error, middle + error);
        if self.best_lower.is_none_or(|best| upper >= best) {
            self.candidates.push((row, upper));
        }
        if self.best_lower.is_none_or(|best| lower > best) {
            self.best_lower = Some(lower);
        }
    }
}

impl Sieve {
    /// Encodes the rows once.
    pub fn new(rows: &Matrix) -> Self {
        let width = rows.dim().next_multiple_of(CHUNK);
        let mut codes = vec![0i8; rows.rows() * width];
        let bounds = codes.chunks_exact_mut(width.max(1)).enumerate().map(|(i, c)| quantize(rows.row(i), c)).collect();
        Self { rows: rows.clone(), width, codes, bounds }
    }

    /// For each query the row of highest product (ties: lowest row) and that product; `None` without rows.
    pub fn nearest(&self, queries: &[&[f32]]) -> Vec<Option<(u32, f32)>> {
        let encoded: Vec<Query> = queries
            .iter()
            .map(|q| {
                let mut codes = vec![0i8; self.width];
                let bound = quantize(q, &mut codes);
                Query { codes: codes.into_iter().map(i16::from).collect(), bound }
            })
            .collect();
        let level = Level::detect();
        let blocks: Vec<Vec<Found>> = self
            .codes
            .par_chunks(ROWS_PER_TASK * self.width.max(1))
            .enumerate()
            .map(|(block, codes)| {
                let mut found: Vec<Found> = encoded.iter().map(|_| Found::default()).collect();
                let first = block * ROWS_PER_TASK;
                let bounds = &self.bounds[first..first + codes.len() / self.width];
                scan_at(level, first as u32, codes, bounds, &encoded, &mut found);
                found
            })
            .collect();
        queries
            .iter()
            .enumerate()
            .map(|(q, query)| {
                let of_query = || blocks.iter().map(|block| &block[q]);
                let best_lower = of_query().filter_map(|f| f.best_lower).reduce(f32::max)?;
                let mut best: Option<(u32, f32)> = None;
                for &(row, upper) in of_query().flat_map(|f| &f.candidates) {
                    if upper < best_lower {
                        continue;
                    }
                    let product = dense::dot(self.rows.row(row as usize), query);
                    // Rows ascend, so only a strictly better one replaces an earlier one.
                    if best.is_none_or(|(_, b)| product > b) {
                        best = Some((row, product));
                    }
                }
                best
            })
            .collect()
    }
}

/// Sums of products of `CHUNK` codes in whatever registers a level has. Integers are exact, so every order of sums is the same.
trait Sums: Copy {
    /// A row's codes, widened once for all queries of a tile.
    type Row: Copy;
    fn zero() -> Self;
    fn widen(codes: &[i8; CHUNK]) -> Self::Row;
    fn add_products(self, row: Self::Row, query: &[i16; CHUNK]) -> Self;
    fn total(self) -> i32;
}

impl Sums for i32 {
    type Row = [i16; CHUNK];

    #[inline(always)]
    fn zero() -> Self {
        0
    }

    #[inline(always)]
    fn widen(codes: &[i8; CHUNK]) -> Self::Row {
        codes.map(i16::from)
    }

    #[inline(always)]
    fn add_products(self, row: Self::Row, query: &[i16; CHUNK]) -> Self {
        row.iter().zip(query).fold(self, |sum, (&a, &b)| sum + i32::from(a) * i32::from(b))
    }

    #[inline(always)]
    fn total(self) -> i32 {
        self
    }
}

/// The register forms; each is used only inside a function compiled for its instructions.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m256i, __m512i, _mm_loadu_si128, _mm256_add_epi32, _mm256_cvtepi8_epi16, _mm256_loadu_si256,
        _mm256_madd_epi16, _mm256_setzero_si256, _mm256_storeu_si256, _mm512_add_epi32, _mm512_cvtepi8_epi16,
        _mm512_loadu_si512, _mm512_madd_epi16, _mm512_reduce_add_epi32, _mm512_setzero_si512,
    };

    use super::{CHUNK, Sums};

    #[derive(Clone, Copy)]
    pub(super) struct Avx512(__m512i);

    impl Sums for Avx512 {
        type Row = __m512i;

        #[inline(always)]
        fn zero() -> Self {
            // SAFETY: reached only from functions compiled for avx512f and avx512bw, after `Level::detect`.
            Self(unsafe { _mm512_setzero_si512() })
        }

        #[inline(always)]
        fn widen(codes: &[i8; CHUNK]) -> Self::Row {
            // SAFETY: as in `zero`; the array holds the 32 codes that are read.
            unsafe { _mm512_cvtepi8_epi16(_mm256_loadu_si256(codes.as_ptr().cast())) }
        }

        #[inline(always)]
        fn add_products(self, row: Self::Row, query: &[i16; CHUNK]) -> Self {
            // SAFETY: as in `zero`; the array holds the 32 codes that are read.
            unsafe {
                let query = _mm512_loadu_si512(query.as_ptr().cast());
                Self(_mm512_add_epi32(self.0, _mm512_madd_epi16(row, query)))
            }
        }

        #[inline(always)]
        fn total(self) -> i32 {
            // SAFETY: as in `zero`.
            unsafe { _mm512_reduce_add_epi32(self.0) }
        }
    }

    #[derive(Clone, Copy)]
    pub(super) struct Avx2(__m256i);

    impl Sums for Avx2 {
        type Row = (__m256i, __m256i);

        #[inline(always)]
        fn zero() -> Self {
            // SAFETY: reached only from functions compiled for avx2, after `Level::detect`.
            Self(unsafe { _mm256_setzero_si256() })
        }

        #[inline(always)]
        fn widen(codes: &[i8; CHUNK]) -> Self::Row {
            // SAFETY: as in `zero`; the array holds the two halves of 16 codes that are read.
            unsafe {
                let half = |at: usize| _mm256_cvtepi8_epi16(_mm_loadu_si128(codes.as_ptr().add(at).cast()));
                (half(0), half(CHUNK / 2))
            }
        }

        #[inline(always)]
        fn add_products(self, row: Self::Row, query: &[i16; CHUNK]) -> Self {
            // SAFETY: as in `zero`; the array holds the two halves of 16 codes that are read.
            unsafe {
                let low = _mm256_loadu_si256(query.as_ptr().cast());
                let high = _mm256_loadu_si256(query.as_ptr().add(CHUNK / 2).cast());
                let sum = _mm256_add_epi32(self.0, _mm256_madd_epi16(row.0, low));
                Self(_mm256_add_epi32(sum, _mm256_madd_epi16(row.1, high)))
            }
        }

        #[inline(always)]
        fn total(self) -> i32 {
            let mut lanes = [0i32; 8];
            // SAFETY: as in `zero`; the array takes the 8 numbers that are written.
            unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), self.0) };
            lanes.iter().sum()
        }
    }
}

/// Products of one row's codes with the codes of `Q` queries.
#[inline(always)]
fn products<S: Sums, const Q: usize>(row: &[i8], queries: [&[i16]; Q]) -> [i32; Q] {
    let chunks = row.as_chunks::<CHUNK>().0;
    let query_chunks: [&[[i16; CHUNK]]; Q] = queries.map(|q| &q.as_chunks::<CHUNK>().0[..chunks.len()]);
    let mut sums = [S::zero(); Q];
    for (j, chunk) in chunks.iter().enumerate() {
        let wide = S::widen(chunk);
        for q in 0..Q {
            sums[q] = sums[q].add_products(wide, &query_chunks[q][j]);
        }
    }
    let mut out = [0; Q];
    for q in 0..Q {
        out[q] = sums[q].total();
    }
    out
}

#[inline(always)]
fn scan<S: Sums>(first: u32, codes: &[i8], bounds: &[Bound], queries: &[Query], found: &mut [Found]) {
    let width = codes.len() / bounds.len().max(1);
    let (tiles, rest) = queries.as_chunks::<TILE>();
    let whole = tiles.len() * TILE;
    for (t, tile) in tiles.iter().enumerate() {
        for (i, (row, bound)) in codes.chunks_exact(width).zip(bounds).enumerate() {
            let views = [&tile[0].codes[..], &tile[1].codes[..], &tile[2].codes[..], &tile[3].codes[..]];
            let values = products::<S, TILE>(row, views);
            for q in 0..TILE {
                found[t * TILE + q].offer(first + i as u32, values[q], &tile[q].bound, bound);
            }
        }
    }
    for (query, found) in rest.iter().zip(&mut found[whole..]) {
        for (i, (row, bound)) in codes.chunks_exact(width).zip(bounds).enumerate() {
            let [value] = products::<S, 1>(row, [&query.codes[..]]);
            found.offer(first + i as u32, value, &query.bound, bound);
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx2")]
fn scan_avx512(first: u32, codes: &[i8], bounds: &[Bound], queries: &[Query], found: &mut [Found]) {
    scan::<x86::Avx512>(first, codes, bounds, queries, found);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn scan_avx2(first: u32, codes: &[i8], bounds: &[Bound], queries: &[Query], found: &mut [Found]) {
    scan::<x86::Avx2>(first, codes, bounds, queries, found);
}

fn scan_at(level: Level, first: u32, codes: &[i8], bounds: &[Bound], queries: &[Query], found: &mut [Found]) {
    match level {
        // SAFETY: `Level::detect` found these instructions on this processor.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { scan_avx512(first, codes, bounds, queries, found) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { scan_avx2(first, codes, bounds, queries, found) },
        Level::Portable => scan::<i32>(first, codes, bounds, queries, found),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn exhaustive(rows: &Matrix, query: &[f32]) -> Option<(u32, f32)> {
        let mut best: Option<(u32, f32)> = None;
        for r in 0..rows.rows() {
            let product = dense::dot(rows.row(r), query);
            if best.is_none_or(|(_, b)| product > b) {
                best = Some((r as u32, product));
            }
        }
        best
    }

    proptest! {
        /// Every level gives the same sums.
        #[test]
        fn sums_are_exact_at_every_level(row in prop::collection::vec(-127i8..=127, 64), query in prop::collection::vec(-127i16..=127, 64)) {
            let expected: i32 = row.iter().zip(&query).map(|(&a, &b)| i32::from(a) * i32::from(b)).sum();
            let unit = Bound { scale: 1.0, kept: 1.0, lost: 0.0, length: 1.0 };
            for level in [Level::Portable, Level::Avx2, Level::Avx512].into_iter().filter(|&l| l <= Level::detect()) {
                for n in [1, TILE] {
                    let queries: Vec<Query> = (0..n).map(|_| Query { codes: query.clone(), bound: unit }).collect();
                    let mut found: Vec<Found> = (0..n).map(|_| Found::default()).collect();
                    scan_at(level, 0, &row, &[unit], &queries, &mut found);
                    for f in &found {
                        prop_assert_eq!(f.candidates[0].1, expected as f32 + MARGIN);
                    }
                }
            }
        }

        /// The same row and the same bits as comparing every row, with near-ties and equal rows on purpose.
        #[test]
        fn finds_what_an_exhaustive_search_finds(
            dim in 1usize..90, n in 0usize..60, b in 1usize..7, seed in any::<u32>(), copies in any::<bool>(),
        ) {
            let mut state = seed;
            let mut next = move || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 8) as f32 / (1 << 24) as f32 - 0.5
            };
            let mut data: Vec<f32> = (0..n * dim).map(|_| next()).collect();
            if copies && n > 3 {
                data.copy_within(dim..2 * dim, 0);
                data.copy_within(dim..2 * dim, 2 * dim);
                data[2 * dim] += 1e-6;
            }
            let rows = Matrix::new(dim, data);
            let queries: Vec<Vec<f32>> = (0..b)
                .map(|q| if q == 0 && n > 1 { rows.row(1).to_vec() } else { (0..dim).map(|_| next()).collect() })
                .collect();
            let views: Vec<&[f32]> = queries.iter().map(Vec::as_slice).collect();
            let found = Sieve::new(&rows).nearest(&views);
            for (query, found) in queries.iter().zip(found) {
                prop_assert_eq!(found.map(|(r, s)| (r, s.to_bits())), exhaustive(&rows, query).map(|(r, s)| (r, s.to_bits())));
            }
        }
    }
}
