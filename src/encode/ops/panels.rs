//! Matrices in the order in which the products read them.
//!
//! In: rows of `f32`. Out: panels `[n / width][words][width]`: `width` rows side by side, so that one step of the sum reads one line. A word
//! is a number, or a pair of bfloat16 when the precision is [`Precision::Bf16`]. Rows and words that are not there are zero.

use std::cell::RefCell;

use super::Precision;
use super::lanes::{Body, LANES, Lanes, Unit, run};

/// Columns of an output that one panel gives.
pub(super) const COLUMNS: usize = 32;

/// Sixteen numbers on a cache line.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Line([f32; LANES]);

/// Words of `k` numbers.
#[inline(always)]
pub(super) const fn words(k: usize, pairs: bool) -> usize {
    if pairs { k.div_ceil(2) } else { k }
}

/// A matrix `[n, k]` in panels of [`COLUMNS`] rows: the right-hand side of products x·Wᵀ.
#[derive(Debug)]
pub(super) struct Panels {
    lines: Vec<Line>,
    words: usize,
    n: usize,
    /// A word is a pair of bfloat16.
    pairs: bool,
}

impl Panels {
    /// From `n` contiguous rows of `k` numbers.
    pub(super) fn new(rows: &[f32], k: usize, precision: Precision) -> Self {
        let n = rows.len() / k.max(1);
        let pairs = precision == Precision::Bf16;
        let words = words(k, pairs);
        let mut lines = vec![Line([0.0; LANES]); n.div_ceil(COLUMNS) * words * COLUMNS / LANES];
        let to = lines.as_mut_ptr().cast();
        let body = PackAll { from: rows.as_ptr(), stride: k, n, k, width: COLUMNS, pairs, to };
        // SAFETY: the unit was detected; `rows` holds n rows of k numbers, `lines` all panels.
        unsafe { run(Unit::detect(), body) };
        Self { lines, words, n, pairs }
    }

    /// Rows packed.
    pub(super) fn n(&self) -> usize {
        self.n
    }

    /// Words a row.
    pub(super) fn words(&self) -> usize {
        self.words
    }

    /// Whether a word is a pair of bfloat16.
    pub(super) fn pairs(&self) -> bool {
        self.pairs
    }

    /// `[words][COLUMNS]` of one panel.
    pub(super) fn panel(&self, i: usize) -> &[f32] {
        let numbers = self.words * COLUMNS;
        &lines_as_numbers(&self.lines)[i * numbers..(i + 1) * numbers]
    }
}

fn lines_as_numbers(lines: &[Line]) -> &[f32] {
    // SAFETY: a line is sixteen numbers without padding (repr(C), 64 bytes).
    unsafe { std::slice::from_raw_parts(lines.as_ptr().cast(), lines.len() * LANES) }
}

struct PackAll {
    from: *const f32,
    stride: usize,
    n: usize,
    k: usize,
    width: usize,
    pairs: bool,
    to: *mut f32,
}

impl Body for PackAll {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Lanes>(self) {
        let mut first = 0;
        while first < self.n {
            let m = (self.n - first).min(self.width);
            // SAFETY: the caller's: n rows are read, and whole panels are written.
            unsafe {
                let (from, to) = (self.from.add(first * self.stride), self.to.add(first * words(self.k, self.pairs)));
                if self.pairs {
                    pack::<V, true>(from, self.stride, m, self.k, self.width, to);
                } else {
                    pack::<V, false>(from, self.stride, m, self.k, self.width, to);
                }
            }
            first += self.width;
        }
    }
}

/// One panel `[words][width]` from `m` rows of `k` numbers, `stride` apart. Vectors are written in ascending order, each whole: with a
/// width that is no multiple of sixteen up to fifteen numbers past the panel are overwritten.
///
/// # Safety
/// As of [`Lanes`]; `from` holds the rows, `to` the panel and fifteen more.
#[inline(always)]
pub(super) unsafe fn pack<V: Lanes, const PAIRS: bool>(
    from: *const f32,
    stride: usize,
    m: usize,
    k: usize,
    width: usize,
    to: *mut f32,
) {
    // SAFETY: the caller's: rows below m and numbers below k are read, words below `words` written.
    unsafe {
        let step = if PAIRS { 2 * LANES } else { LANES };
        let mut done = 0;
        while done < k {
            let left = k - done;
            let first_word = words(done, PAIRS);
            let n_words = words(left.min(step), PAIRS);
            let mut group = 0;
            while group < width {
                let mut rows = [V::splat(0.0); LANES];
                for r in 0..LANES {
                    if group + r < m {
                        let row = from.add((group + r) * stride + done);
                        rows[r] = if left >= step { whole::<V, PAIRS>(row) } else { part::<V, PAIRS>(row, left) };
                    }
                }
                let columns = V::transpose(rows);
                for w in 0..n_words {
                    columns[w].store(to.add((first_word + w) * width + group));
                }
                group += LANES;
            }
            done += step;
        }
    }
}

/// # Safety
/// As of [`Lanes`]; 16 or 32 numbers are there.
#[inline(always)]
unsafe fn whole<V: Lanes, const PAIRS: bool>(row: *const f32) -> V {
    // SAFETY: the caller's.
    unsafe {
        let first = V::load(row);
        if PAIRS { V::round_pairs(first, V::load(row.add(LANES))) } else { first }
    }
}

/// # Safety
/// As of [`Lanes`]; `left` numbers are there, fewer than [`whole`] needs.
#[inline(always)]
unsafe fn part<V: Lanes, const PAIRS: bool>(row: *const f32, left: usize) -> V {
    // SAFETY: the caller's.
    unsafe {
        let first = V::load_part(row, left.min(LANES));
        if !PAIRS {
            return first;
        }
        let second = if left > LANES { V::load_part(row.add(LANES), left - LANES) } else { V::splat(0.0) };
        V::round_pairs(first, second)
    }
}

/// Calls `body` with room for `numbers` numbers of this thread, on a cache line; what they hold is left over from before.
pub(super) fn with_room<T>(numbers: usize, body: impl FnOnce(*mut f32) -> T) -> T {
    thread_local! {
        static ROOM: RefCell<Vec<Line>> = const { RefCell::new(Vec::new()) };
    }
    // Taken out, so that a nested call gets room of its own.
    let mut room = ROOM.take();
    let lines = numbers.div_ceil(LANES);
    if room.len() < lines {
        room.resize(lines, Line([0.0; LANES]));
    }
    let out = body(room.as_mut_ptr().cast());
    ROOM.replace(room);
    out
}
