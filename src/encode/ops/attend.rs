//! Attention of one head over one text, in blocks that stay in the caches.
//!
//! In: q, k, v rows of the text and the head's position terms. Out: softmax(score)·V.
//! score[i,j] = (Q_i·K_j)·c + (Q_i·Kr[δ])·c + (K_j·Qr[δ])·c + table[δ] with c the scale; the terms that a model lacks fall away.
//! Tables are in the order of e = j - i, so along a row of scores their entries lie side by side; where buckets hold several distances, an index
//! is read. Only the range of a table that the text's length needs is multiplied.
//! Cost: 2·head_dim·n² operations for each of Q·K, the two position terms (a tile's width more) and P·V.

use super::elementary::exp;
use super::lanes::{Body, LANES, Lanes, Unit, run};
use super::panels::{COLUMNS, Panels, pack, words};
use super::product::{Ahead, pack_tiles, tile, tile_rows};

/// Rows whose scores are held at a time; a multiple of every tile.
const ROWS: usize = 252;
/// The largest tile.
const TILE: usize = 14;

/// Position terms of one head.
pub(super) enum Terms<'a> {
    None,
    /// `[2·span + 1]` by e.
    Relative(&'a [f32]),
    /// Keys as panels `[2·span, head_dim]`, queries as tiles of as many rows, both by e.
    Disentangled {
        keys: Option<&'a Panels>,
        queries: Option<&'a [f32]>,
    },
}

/// Where the entry of a table for e = j - i is: `of[e + far]`, and `near + e` without reading while |e| <= `near`.
pub(super) struct Index<'a> {
    pub(super) of: &'a [u32],
    pub(super) far: usize,
    /// Up to this |e| entries of neighbours are neighbours.
    pub(super) near: isize,
    /// Entries of the table.
    pub(super) entries: usize,
}

impl Index<'_> {
    #[inline(always)]
    fn at(&self, e: isize) -> usize {
        let far = self.far as isize;
        self.of[(e.clamp(-far, far) + far) as usize] as usize
    }
}

/// One head of one text.
pub(super) struct Head<'a> {
    pub(super) unit: Unit,
    pub(super) pairs: bool,
    pub(super) q: *const f32,
    pub(super) k: *const f32,
    pub(super) v: *const f32,
    /// Numbers from a token's q, k or v to the next token's.
    pub(super) stride: usize,
    /// Tokens.
    pub(super) len: usize,
    pub(super) dim: usize,
    pub(super) scale: f32,
    pub(super) terms: Terms<'a>,
    pub(super) index: Index<'a>,
    pub(super) out: *mut f32,
    pub(super) out_stride: usize,
    pub(super) room: *mut f32,
}

/// Where what is made on the way lies in the room, in numbers from its start.
#[derive(Debug, Clone, Copy)]
pub(super) struct Places {
    k: usize,
    v: usize,
    q: usize,
    scores: usize,
    /// Numbers a row of scores.
    stride: usize,
    sums: usize,
    keys: usize,
    /// Numbers a row of products with the keys of positions.
    keys_stride: usize,
    queries: usize,
    weights: usize,
    /// All of it.
    pub(super) total: usize,
}

impl Places {
    pub(super) fn new(len: usize, dim: usize, entries: usize, pairs: bool) -> Self {
        let mut total = 0;
        let mut take = |numbers: usize| {
            let at = total;
            total += numbers.next_multiple_of(LANES) + LANES;
            at
        };
        let rows = len.min(ROWS);
        // An odd number of lines, so that the rows of a tile fall on different sets of the cache.
        let stride = len.next_multiple_of(COLUMNS) + LANES;
        let keys_stride = (len + TILE).min(entries).next_multiple_of(COLUMNS) + 3 * COLUMNS + LANES;
        let queries = (rows + COLUMNS).min(entries) + 2 * TILE;
        Self {
            k: take(len.next_multiple_of(COLUMNS) * words(dim, pairs)),
            v: take(dim.next_multiple_of(COLUMNS) * words(len, pairs)),
            q: take(len * words(dim, pairs)),
            scores: take(rows * stride),
            stride,
            sums: take(TILE * stride.max(dim.next_multiple_of(COLUMNS))),
            keys: take(TILE * keys_stride),
            keys_stride,
            queries: take(queries * COLUMNS),
            weights: take(TILE * words(len, pairs)),
            total,
        }
    }
}

/// Sums of a tile of rows with some lines of panels, as they are.
struct Multiply {
    pairs: bool,
    /// Rows, a tile size.
    m: usize,
    n: usize,
    a: *const f32,
    /// Panels `[n][COLUMNS]`, one after the other.
    b: *const f32,
    /// Lines of sixteen columns, counted from the first panel on.
    lines: std::ops::Range<usize>,
    /// The first of them goes here.
    to: *mut f32,
    stride: usize,
}

impl Body for Multiply {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Lanes>(self) {
        // SAFETY: the caller's.
        unsafe { if self.pairs { self.at::<V, true>() } else { self.at::<V, false>() } }
    }
}

impl Multiply {
    /// # Safety
    /// As of [`Lanes`]; panels and tile hold `n` words, `to` takes m rows of the lines.
    #[inline(always)]
    unsafe fn at<V: Lanes, const PAIRS: bool>(self) {
        // SAFETY: the caller's.
        unsafe {
            match self.m {
                14 if V::ROWS == 14 => self.rows::<V, PAIRS, 14>(),
                8 if V::ROWS > 8 => self.rows::<V, PAIRS, 8>(),
                6 if V::ROWS == 6 => self.rows::<V, PAIRS, 6>(),
                4 => self.rows::<V, PAIRS, 4>(),
                2 => self.rows::<V, PAIRS, 2>(),
                _ => self.rows::<V, PAIRS, 1>(),
            }
        }
    }

    /// # Safety
    /// As of [`Multiply::at`].
    #[inline(always)]
    unsafe fn rows<V: Lanes, const PAIRS: bool, const M: usize>(self) {
        let ahead = Ahead { from: self.a, step: 0 };
        let mut line = self.lines.start;
        let mut to = self.to;
        while line < self.lines.end {
            // SAFETY: the caller's.
            unsafe {
                let b = self.b.add(line / 2 * self.n * COLUMNS + line % 2 * LANES);
                if V::VECTORS == 2 && line.is_multiple_of(2) && line + 1 < self.lines.end {
                    let acc = tile::<V, PAIRS, M, 2>(self.n, self.a, b, ahead);
                    for r in 0..M {
                        acc[r][0].store(to.add(r * self.stride));
                        acc[r][1].store(to.add(r * self.stride + LANES));
                    }
                    line += 2;
                    to = to.add(COLUMNS);
                } else {
                    let acc = tile::<V, PAIRS, M, 1>(self.n, self.a, b, ahead);
                    for r in 0..M {
                        acc[r][0].store(to.add(r * self.stride));
                    }
                    line += 1;
                    to = to.add(LANES);
                }
            }
        }
    }
}

impl Body for Head<'_> {
    type Output = ();

    /// # Safety
    /// As of [`Body::run`]; rows of q, k, v and out are there, and the room holds [`Places::total`] numbers.
    #[inline(always)]
    unsafe fn run<V: Lanes>(self) {
        // SAFETY: the caller's.
        unsafe { if self.pairs { self.at::<V, true>() } else { self.at::<V, false>() } }
    }
}

impl Head<'_> {
    /// # Safety
    /// As of [`Body::run`].
    #[inline(always)]
    unsafe fn at<V: Lanes, const PAIRS: bool>(&self) {
        let places = Places::new(self.len, self.dim, self.index.entries, PAIRS);
        let n = words(self.dim, PAIRS);
        // SAFETY: the caller's; every place is as large as what is put there.
        unsafe {
            let (k, q) = (self.room.add(places.k), self.room.add(places.q));
            let mut j = 0;
            while j < self.len {
                let m = (self.len - j).min(COLUMNS);
                pack::<V, PAIRS>(self.k.add(j * self.stride), self.stride, m, self.dim, COLUMNS, k.add(j * n));
                j += COLUMNS;
            }
            self.pack_values::<V, PAIRS>(self.room.add(places.v));
            pack_tiles::<V, PAIRS>(self.q, self.stride, self.len, self.dim, q);
            let mut first = 0;
            while first < self.len {
                let rows = (self.len - first).min(ROWS);
                if let Terms::Disentangled { queries: Some(queries), .. } = self.terms {
                    self.position_to_content::<V>(&places, n, first, rows, queries);
                }
                let mut i = first;
                while i < first + rows {
                    let m = tile_rows::<V>(first + rows - i);
                    self.tile::<V, PAIRS>(&places, n, first, i, m);
                    i += m;
                }
                first += ROWS;
            }
        }
    }

    /// V as panels `[len][head_dim]`, the sum going over tokens.
    ///
    /// # Safety
    /// As of [`Body::run`].
    #[inline(always)]
    unsafe fn pack_values<V: Lanes, const PAIRS: bool>(&self, to: *mut f32) {
        let n = words(self.len, PAIRS);
        let mut c = 0;
        while c < self.dim.next_multiple_of(COLUMNS) {
            let columns = self.dim.saturating_sub(c).min(LANES);
            // SAFETY: the caller's; columns past the head and rows past the text are zero.
            unsafe {
                let to = to.add(c / COLUMNS * n * COLUMNS + c % COLUMNS);
                for word in 0..n {
                    let j = if PAIRS { 2 * word } else { word };
                    let row = self.v.add(j * self.stride).wrapping_add(c);
                    let mut line = V::load_part(row, columns);
                    if PAIRS {
                        let next = if j + 1 < self.len {
                            V::load_part(row.wrapping_add(self.stride), columns)
                        } else {
                            V::splat(0.0)
                        };
                        line = V::join_pairs(line, next);
                    }
                    line.store(to.add(word * COLUMNS));
                }
            }
            c += LANES;
        }
    }

    /// K_j·Qr[e] of a block of rows, into its scores. Per panel of keys: the products of all entries in reach, `[entry][COLUMNS]`, of which
    /// row i takes the diagonal j - i.
    ///
    /// # Safety
    /// As of [`Body::run`].
    #[inline(always)]
    unsafe fn position_to_content<V: Lanes>(
        &self,
        places: &Places,
        n: usize,
        first: usize,
        rows: usize,
        queries: &[f32],
    ) {
        // SAFETY: the caller's; tiles up to the last entry are there.
        let (k, products, scores) =
            unsafe { (self.room.add(places.k), self.room.add(places.queries), self.room.add(places.scores)) };
        let mut j = 0;
        while j < self.len {
            let keys = (self.len - j).min(COLUMNS);
            let lowest = self.index.at(j as isize - (first + rows - 1) as isize) / V::ROWS * V::ROWS;
            let highest = self.index.at((j + keys - 1) as isize - first as isize);
            let mut entry = lowest;
            while entry <= highest {
                let m = tile_rows::<V>(self.index.entries - entry);
                // SAFETY: as above; the range is no wider than rows, keys and two tiles.
                unsafe {
                    let multiply = Multiply {
                        pairs: self.pairs,
                        m,
                        n,
                        a: queries.as_ptr().add(entry * n),
                        b: k.add(j * n),
                        lines: 0..keys.div_ceil(LANES),
                        to: products.add((entry - lowest) * COLUMNS),
                        stride: COLUMNS,
                    };
                    run(self.unit, multiply);
                }
                entry += m;
            }
            let mut i = 0;
            while i < rows {
                let mut c = 0;
                while c < keys {
                    let e = (j + c) as isize - (first + i) as isize;
                    let mut lines = [products.cast_const(); 2 * LANES - 1];
                    let reach = LANES as isize - 1;
                    let contiguous = e - reach >= -self.index.near && e + reach <= self.index.near;
                    let last = self.index.at(e + reach) as isize;
                    for r in 0..2 * LANES - 1 {
                        let (back, e) = (r as isize, e + reach - r as isize);
                        let entry = if contiguous { last - back } else { self.index.at(e) as isize };
                        let entry = entry.clamp(lowest as isize, highest as isize) as usize - lowest;
                        lines[r] = products.wrapping_add(entry * COLUMNS + c).cast_const();
                    }
                    // SAFETY: the entries are within the range; rows of the block and whole lines of them are written.
                    unsafe {
                        let block = V::slide(&lines);
                        for r in 0..LANES.min(rows - i) {
                            block[r].store(scores.add((i + r) * places.stride + j + c));
                        }
                    }
                    c += LANES;
                }
                i += LANES;
            }
            j += COLUMNS;
        }
    }

    /// Rows i .. i + m: their scores, softmax and outputs.
    ///
    /// # Safety
    /// As of [`Body::run`].
    #[inline(always)]
    unsafe fn tile<V: Lanes, const PAIRS: bool>(&self, places: &Places, n: usize, first: usize, i: usize, m: usize) {
        // SAFETY: the caller's; every place is as large as what is put there.
        unsafe {
            self.fetch_next::<V>(i, m);
            let (sums, keys) = (self.room.add(places.sums), self.room.add(places.keys));
            let scores = self.room.add(places.scores + (i - first) * places.stride);
            let a = self.room.add(places.q + i * n).cast_const();
            let multiply = Multiply {
                pairs: PAIRS,
                m,
                n,
                a,
                b: self.room.add(places.k),
                lines: 0..self.len.div_ceil(LANES),
                to: sums,
                stride: places.stride,
            };
            run(self.unit, multiply);
            // The first entry that the products with the keys of positions begin with.
            let mut lowest = 0;
            if let Terms::Disentangled { keys: Some(panels), .. } = self.terms {
                let from = self.index.at(-((i + m - 1) as isize)) / LANES;
                let to = self.index.at((self.len - 1) as isize - i as isize) / LANES + 1;
                lowest = from * LANES;
                let multiply = Multiply {
                    pairs: PAIRS,
                    m,
                    n,
                    a,
                    b: panels.panel(0).as_ptr(),
                    lines: from..to,
                    to: keys,
                    stride: places.keys_stride,
                };
                run(self.unit, multiply);
            }
            let mut totals = [0f32; TILE];
            for r in 0..m {
                let row = scores.add(r * places.stride);
                let sums = sums.add(r * places.stride).cast_const();
                let largest = match self.terms {
                    Terms::None => self.combine::<V, false, false>(i + r, sums, std::ptr::null(), 0, 0.0, row),
                    Terms::Relative(table) => self.combine::<V, true, false>(i + r, sums, table.as_ptr(), 0, 1.0, row),
                    Terms::Disentangled { keys: of, queries } => {
                        let keys = keys.add(r * places.keys_stride).cast_const();
                        match (of.is_some(), queries.is_some()) {
                            (true, true) => self.combine::<V, true, true>(i + r, sums, keys, lowest, self.scale, row),
                            (true, false) => self.combine::<V, true, false>(i + r, sums, keys, lowest, self.scale, row),
                            _ => self.combine::<V, false, true>(i + r, sums, keys, lowest, self.scale, row),
                        }
                    }
                };
                totals[r] = self.exponentials::<V>(row, largest);
            }
            let weights = self.room.add(places.weights);
            pack::<V, PAIRS>(scores, places.stride, m, self.len, m, weights);
            let multiply = Multiply {
                pairs: PAIRS,
                m,
                n: words(self.len, PAIRS),
                a: weights,
                b: self.room.add(places.v),
                lines: 0..self.dim.div_ceil(LANES),
                to: sums,
                stride: places.stride.max(self.dim.next_multiple_of(COLUMNS)),
            };
            let stride = multiply.stride;
            run(self.unit, multiply);
            for r in 0..m {
                let part = V::splat(totals[r].recip());
                let mut c = 0;
                while c < self.dim {
                    let columns = (self.dim - c).min(LANES);
                    let out = V::load(sums.add(r * stride + c)).mul(part);
                    out.store_part(self.out.add((i + r) * self.out_stride + c), columns);
                    c += LANES;
                }
            }
        }
    }

    /// Fetches what comes soon: the rows of the output, and the next head's part of q, k and v, which lies beside this one's.
    ///
    /// # Safety
    /// As of [`Lanes`].
    #[inline(always)]
    unsafe fn fetch_next<V: Lanes>(&self, i: usize, m: usize) {
        for t in i..i + m {
            let mut c = 0;
            while c < self.dim {
                // SAFETY: hints read nothing.
                unsafe {
                    V::fetch::<true>(self.out.wrapping_add(t * self.out_stride + c));
                    for part in [self.q, self.k, self.v] {
                        V::fetch::<false>(part.wrapping_add(t * self.stride + self.dim + c));
                    }
                }
                c += LANES;
            }
        }
    }

    /// Scores of row i from its sums, the entries of a table times `weight` and what `row` holds of the other term; the largest of them.
    ///
    /// # Safety
    /// As of [`Body::run`].
    #[inline(always)]
    unsafe fn combine<V: Lanes, const TABLE: bool, const ADD: bool>(
        &self,
        i: usize,
        sums: *const f32,
        table: *const f32,
        lowest: usize,
        weight: f32,
        row: *mut f32,
    ) -> f32 {
        // SAFETY: the caller's; the row holds whole lines.
        unsafe {
            let scale = V::splat(self.scale);
            let mut largest = V::splat(f32::NEG_INFINITY);
            let mut j = 0;
            while j < self.len {
                let mut s = V::load(sums.add(j)).mul(scale);
                if TABLE {
                    let e = j as isize - i as isize;
                    let near = self.index.near;
                    let entries = if e >= -near && e + (LANES as isize) <= near {
                        V::load(table.wrapping_offset(self.index.at(e) as isize - lowest as isize))
                    } else {
                        let mut entries = [0f32; LANES];
                        for l in 0..LANES.min(self.len - j) {
                            entries[l] = *table.add(self.index.at(e + l as isize) - lowest);
                        }
                        V::load(entries.as_ptr())
                    };
                    s = s.add_product(entries, V::splat(weight));
                }
                if ADD {
                    s = s.add_product(V::load(row.add(j)), scale);
                }
                s.store(row.add(j));
                if j + LANES <= self.len {
                    largest = largest.max(s);
                } else {
                    for l in self.len - j..LANES {
                        *row.add(j + l) = f32::NEG_INFINITY;
                    }
                    largest = largest.max(V::load(row.add(j)));
                }
                j += LANES;
            }
            largest.largest()
        }
    }

    /// The row's exponentials in place of its scores; their sum.
    ///
    /// # Safety
    /// As of [`Body::run`].
    #[inline(always)]
    unsafe fn exponentials<V: Lanes>(&self, row: *mut f32, largest: f32) -> f32 {
        // SAFETY: the caller's; the row holds whole lines, -∞ past its end.
        unsafe {
            let largest = V::splat(largest);
            let mut total = V::splat(0.0);
            let mut j = 0;
            while j < self.len {
                let w = exp(V::load(row.add(j)).sub(largest));
                w.store(row.add(j));
                total = total.add(w);
                j += LANES;
            }
            total.sum()
        }
    }
}
