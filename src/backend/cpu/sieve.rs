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
const CHUNK: usize = 64;
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

/// Products of one row's codes with the codes of `Q` queries; exact, so the order of sums does not matter.
#[inline(always)]
fn products<const Q: usize>(row: &[i8], queries: [&[i16]; Q]) -> [i32; Q] {
    let mut acc = [[0i32; CHUNK / 2]; Q];
    let chunks = row.as_chunks::<CHUNK>().0;
    let query_chunks = queries.map(|q| q.as_chunks::<CHUNK>().0);
    for (j, chunk) in chunks.iter().enumerate() {
        let mut wide = [0i16; CHUNK];
        for l in 0..CHUNK {
            wide[l] = i16::from(chunk[l]);
        }
        for q in 0..Q {
            let other = &query_chunks[q][j];
            // Pairs of neighbours: one multiply-and-add instruction of 16-bit numbers.
            for l in 0..CHUNK / 2 {
                acc[q][l] += i32::from(wide[2 * l]) * i32::from(other[2 * l])
                    + i32::from(wide[2 * l + 1]) * i32::from(other[2 * l + 1]);
            }
        }
    }
    acc.map(|lanes| lanes.iter().sum())
}

#[inline(always)]
fn scan(first: u32, codes: &[i8], bounds: &[Bound], queries: &[Query], found: &mut [Found]) {
    let width = codes.len() / bounds.len().max(1);
    let (tiles, rest) = queries.as_chunks::<TILE>();
    let whole = tiles.len() * TILE;
    for (t, tile) in tiles.iter().enumerate() {
        for (i, (row, bound)) in codes.chunks_exact(width).zip(bounds).enumerate() {
            let views = [&tile[0].codes[..], &tile[1].codes[..], &tile[2].codes[..], &tile[3].codes[..]];
            let values = products(row, views);
            for q in 0..TILE {
                found[t * TILE + q].offer(first + i as u32, values[q], &tile[q].bound, bound);
            }
        }
    }
    for (query, found) in rest.iter().zip(&mut found[whole..]) {
        for (i, (row, bound)) in codes.chunks_exact(width).zip(bounds).enumerate() {
            let [value] = products(row, [&query.codes[..]]);
            found.offer(first + i as u32, value, &query.bound, bound);
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx2")]
fn scan_avx512(first: u32, codes: &[i8], bounds: &[Bound], queries: &[Query], found: &mut [Found]) {
    scan(first, codes, bounds, queries, found);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn scan_avx2(first: u32, codes: &[i8], bounds: &[Bound], queries: &[Query], found: &mut [Found]) {
    scan(first, codes, bounds, queries, found);
}

fn scan_at(level: Level, first: u32, codes: &[i8], bounds: &[Bound], queries: &[Query], found: &mut [Found]) {
    match level {
        // SAFETY: `Level::detect` found these instructions on this processor.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { scan_avx512(first, codes, bounds, queries, found) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { scan_avx2(first, codes, bounds, queries, found) },
        Level::Portable => scan(first, codes, bounds, queries, found),
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
