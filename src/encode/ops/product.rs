//! Products of packed matrices with one fixed order of sums.
//!
//! y[t, o] = act(Σ_k x[t, k]·w[o, k] + b[o]). The sum is taken in blocks of [`BLOCK`] words: each block is one chain of fused
//! multiply-adds in ascending order from zero, and the blocks are added in ascending order. So an element depends on its own row and
//! column only, whatever tile, thread or instruction set computed it.
//! Cost: 2·T·in·out operations. A register tile is 14 rows by 32 columns on AVX-512: 28 fused operations for 2 loads and 14 broadcasts.

use rayon::prelude::*;

use super::Activation;
use super::Precision;
use super::elementary::gelu;
use super::lanes::{Body, LANES, Lanes, Unit, run};
use super::panels::{COLUMNS, Panels, pack, with_room, words};

/// Words of one chain of sums. A block of 14 rows is 28 KiB, one of 32 columns 64 KiB.
const BLOCK: usize = 512;
/// Rows one task packs at most: 448 KiB a block of the sum, which stay in the second-level cache while the panels pass.
const ROWS_PER_TASK: usize = 224;

/// Sums of a register tile.
type Tile<V, const M: usize, const N: usize> = [[V; N]; M];

/// What will be read later, fetched into the second-level cache along the way: `step` numbers on with each word.
#[derive(Clone, Copy)]
pub(super) struct Ahead {
    pub(super) from: *const f32,
    pub(super) step: usize,
}

/// Σ over `n` words of `M` rows (panel `[n][M]`) and `16·N` columns (lines of [`COLUMNS`]).
///
/// # Safety
/// As of [`Lanes`]; the panels hold `n` words.
#[inline(always)]
pub(super) unsafe fn tile<V: Lanes, const PAIRS: bool, const M: usize, const N: usize>(
    n: usize,
    mut a: *const f32,
    mut b: *const f32,
    mut ahead: Ahead,
) -> Tile<V, M, N> {
    // SAFETY: the caller's.
    unsafe {
        let mut acc = [[V::splat(0.0); N]; M];
        for _ in 0..n {
            let mut column = [V::splat(0.0); N];
            for v in 0..N {
                column[v] = V::load(b.add(v * LANES));
            }
            for r in 0..M {
                let row = V::splat(*a.add(r));
                for v in 0..N {
                    acc[r][v] = if PAIRS {
                        acc[r][v].add_pair_products(row, column[v])
                    } else {
                        acc[r][v].add_product(row, column[v])
                    };
                }
            }
            V::fetch::<false>(ahead.from);
            ahead.from = ahead.from.wrapping_add(ahead.step);
            a = a.add(M);
            b = b.add(COLUMNS);
        }
        acc
    }
}

/// Rows of the next register tile when `left` are left: the largest of few sizes, so that a last tile wastes nothing.
#[inline(always)]
pub(super) fn tile_rows<V: Lanes>(left: usize) -> usize {
    match left {
        0..=1 => left,
        2..=3 => 2,
        4.. if left >= V::ROWS => V::ROWS,
        8.. => 8,
        _ => 4,
    }
}

/// Packs `rows` rows as tiles, one after the other: the tile from row r on starts at r·words.
///
/// # Safety
/// As of [`pack`].
#[inline(always)]
pub(super) unsafe fn pack_tiles<V: Lanes, const PAIRS: bool>(
    from: *const f32,
    stride: usize,
    rows: usize,
    k: usize,
    to: *mut f32,
) {
    let n_words = words(k, PAIRS);
    let mut r = 0;
    while r < rows {
        let m = tile_rows::<V>(rows - r);
        // SAFETY: the caller's; a tile's overhang lies in the next, which is packed later, or in the slack.
        unsafe { pack::<V, PAIRS>(from.add(r * stride), stride, m, k, m, to.add(r * n_words)) };
        r += m;
    }
}

/// Rows `[n, k]` as tiles for `unit`: the left-hand side of products.
pub(super) fn tiles(unit: Unit, rows: &[f32], k: usize, precision: Precision) -> Vec<f32> {
    let pairs = precision == Precision::Bf16;
    let n = rows.len() / k;
    let mut out = vec![0f32; n * words(k, pairs) + LANES];
    let body = PackTiles { from: rows.as_ptr(), n, k, pairs, to: out.as_mut_ptr() };
    // SAFETY: the unit was detected; rows and tiles, with the overhang, are there.
    unsafe { run(unit, body) };
    out
}

struct PackTiles {
    from: *const f32,
    n: usize,
    k: usize,
    pairs: bool,
    to: *mut f32,
}

impl Body for PackTiles {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Lanes>(self) {
        // SAFETY: the caller's.
        unsafe {
            if self.pairs {
                pack_tiles::<V, true>(self.from, self.k, self.n, self.k, self.to);
            } else {
                pack_tiles::<V, false>(self.from, self.k, self.n, self.k, self.to);
            }
        }
    }
}

/// What becomes of a tile's sums.
#[derive(Clone, Copy)]
struct Finish {
    /// Sums of earlier blocks are in `y`.
    add: bool,
    /// Bias and activation, with the last block.
    last: bool,
    act: Activation,
    bias: *const f32,
    y: *mut f32,
    stride: usize,
    /// Columns that exist, from this tile's first on.
    columns: usize,
}

impl Finish {
    /// Loops over the tile have constant bounds and no branches within, so that it stays in registers.
    ///
    /// # Safety
    /// As of [`Lanes`]; `y` holds the tile's rows, `bias` whole lines.
    #[inline(always)]
    unsafe fn put<V: Lanes, const M: usize, const N: usize>(self, mut acc: Tile<V, M, N>) {
        if self.columns < N * LANES {
            // SAFETY: the caller's.
            unsafe { return self.put_part::<V, M, N>(acc) };
        }
        // SAFETY: the caller's; all columns are there.
        unsafe {
            if self.add {
                for r in 0..M {
                    for v in 0..N {
                        acc[r][v] = V::load(self.y.add(r * self.stride + v * LANES)).add(acc[r][v]);
                    }
                }
            }
            if self.last {
                for v in 0..N {
                    let bias = V::load(self.bias.add(v * LANES));
                    for r in 0..M {
                        acc[r][v] = acc[r][v].add(bias);
                    }
                }
            }
            for r in 0..M {
                for v in 0..N {
                    acc[r][v].store(self.y.add(r * self.stride + v * LANES));
                }
            }
            if self.last && self.act == Activation::Gelu {
                for r in 0..M {
                    for v in 0..N {
                        let y = self.y.add(r * self.stride + v * LANES);
                        gelu(V::load(y)).store(y);
                    }
                }
            }
        }
    }

    /// The same where columns are missing.
    ///
    /// # Safety
    /// As of [`Finish::put`].
    #[inline(always)]
    unsafe fn put_part<V: Lanes, const M: usize, const N: usize>(self, acc: Tile<V, M, N>) {
        let mut sums = [[0f32; COLUMNS]; M];
        for r in 0..M {
            for v in 0..N {
                // SAFETY: the caller's; a row has room for N lines.
                unsafe { acc[r][v].store(sums[r].as_mut_ptr().add(v * LANES)) };
            }
        }
        for r in 0..M {
            for v in 0..N {
                let left = self.columns.saturating_sub(v * LANES).min(LANES);
                // SAFETY: the caller's; `left` numbers are read and written.
                unsafe {
                    let y = self.y.wrapping_add(r * self.stride + v * LANES);
                    let mut sum = V::load(sums[r].as_ptr().add(v * LANES));
                    if self.add {
                        sum = V::load_part(y, left).add(sum);
                    }
                    if self.last {
                        sum = sum.add(V::load(self.bias.add(v * LANES)));
                        if self.act == Activation::Gelu {
                            sum = gelu(sum);
                        }
                    }
                    sum.store_part(y, left);
                }
            }
        }
    }
}

/// Some rows and some panels of a linear layer.
struct Block<'a> {
    weights: &'a Panels,
    /// Whole lines.
    bias: *const f32,
    act: Activation,
    x: *const f32,
    inputs: usize,
    rows: usize,
    panels: std::ops::Range<usize>,
    y: *mut f32,
    room: *mut f32,
}

impl Block<'_> {
    /// # Safety
    /// As of [`Body::run`].
    #[inline(always)]
    unsafe fn at<V: Lanes, const PAIRS: bool>(self) {
        let per_block = if PAIRS { 2 * BLOCK } else { BLOCK };
        let outputs = self.weights.n();
        let mut done = 0;
        while done < self.inputs {
            let numbers = (self.inputs - done).min(per_block);
            let n = words(numbers, PAIRS);
            // SAFETY: rows, panels and room are as the body says.
            unsafe {
                pack_tiles::<V, PAIRS>(self.x.add(done), self.inputs, self.rows, numbers, self.room);
                for panel in self.panels.clone() {
                    let first = panel * COLUMNS;
                    let b = self.weights.panel(panel).as_ptr().add(words(done, PAIRS) * COLUMNS);
                    let finish = Finish {
                        add: done > 0,
                        last: done + numbers == self.inputs,
                        act: self.act,
                        bias: self.bias.add(first),
                        y: self.y.add(first),
                        stride: outputs,
                        columns: outputs - first,
                    };
                    self.panel::<V, PAIRS>(n, b, finish);
                }
            }
            done += numbers;
        }
    }

    /// All rows of one panel.
    ///
    /// # Safety
    /// As of [`Body::run`].
    #[inline(always)]
    unsafe fn panel<V: Lanes, const PAIRS: bool>(&self, n: usize, b: *const f32, finish: Finish) {
        let step = COLUMNS * V::ROWS / self.rows.max(V::ROWS);
        let mut r = 0;
        while r < self.rows {
            let m = tile_rows::<V>(self.rows - r);
            // SAFETY: the caller's; the tile of row r starts at r·n.
            unsafe {
                let a = self.room.add(r * n);
                let finish = Finish { y: finish.y.add(r * finish.stride), ..finish };
                // The next panel, a share with each tile.
                let next = b.wrapping_add(self.weights.words() * COLUMNS);
                let ahead = Ahead { from: next.wrapping_add(r * step * n / V::ROWS), step };
                match m {
                    14 if V::ROWS == 14 => one::<V, PAIRS, 14>(n, a, b, ahead, finish),
                    8 if V::ROWS > 8 => one::<V, PAIRS, 8>(n, a, b, ahead, finish),
                    6 if V::ROWS == 6 => one::<V, PAIRS, 6>(n, a, b, ahead, finish),
                    4 => one::<V, PAIRS, 4>(n, a, b, ahead, finish),
                    2 => one::<V, PAIRS, 2>(n, a, b, ahead, finish),
                    _ => one::<V, PAIRS, 1>(n, a, b, ahead, finish),
                }
            }
            r += m;
        }
    }
}

/// One tile of `M` rows by [`COLUMNS`].
///
/// # Safety
/// As of [`tile`] and [`Finish::put`].
#[inline(always)]
unsafe fn one<V: Lanes, const PAIRS: bool, const M: usize>(
    n: usize,
    a: *const f32,
    b: *const f32,
    ahead: Ahead,
    finish: Finish,
) {
    // SAFETY: the caller's.
    unsafe {
        for r in 0..M {
            V::fetch::<true>(finish.y.add(r * finish.stride));
            V::fetch::<true>(finish.y.wrapping_add(r * finish.stride + LANES));
        }
        if V::VECTORS == 2 {
            finish.put(tile::<V, PAIRS, M, 2>(n, a, b, ahead));
        } else {
            finish.put(tile::<V, PAIRS, M, 1>(n, a, b, ahead));
            if finish.columns > LANES {
                let right = Finish {
                    bias: finish.bias.add(LANES),
                    y: finish.y.add(LANES),
                    columns: finish.columns - LANES,
                    ..finish
                };
                right.put(tile::<V, PAIRS, M, 1>(n, a, b.add(LANES), ahead));
            }
        }
    }
}

impl Body for Block<'_> {
    type Output = ();

    /// # Safety
    /// As of [`Body::run`]: `x` holds `rows` rows of `inputs` numbers, `y` takes as many of the weights' n, `bias` whole lines, `room` the
    /// packed rows of one block and fifteen numbers more.
    #[inline(always)]
    unsafe fn run<V: Lanes>(self) {
        // SAFETY: the caller's.
        unsafe {
            if self.weights.pairs() {
                self.at::<V, true>();
            } else {
                self.at::<V, false>();
            }
        }
    }
}

/// A pointer that tasks share; each writes rows and columns of its own.
#[derive(Clone, Copy)]
pub(super) struct Shared(pub(super) *mut f32);
// SAFETY: tasks write disjoint parts, and nobody reads before all are done.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// The pointer `n` numbers on.
    ///
    /// # Safety
    /// As of pointers: the place is within the allocation.
    pub(super) unsafe fn at(self, n: usize) -> *mut f32 {
        // SAFETY: the caller's.
        unsafe { self.0.add(n) }
    }
}

/// A vector of `n` numbers that `fill` writes, every one of them.
///
/// # Safety
/// `fill` writes all `n` numbers.
pub(super) unsafe fn filled(n: usize, fill: impl FnOnce(Shared)) -> Vec<f32> {
    let mut out = Vec::with_capacity(n);
    fill(Shared(out.as_mut_ptr()));
    // SAFETY: the capacity is n, and the caller promises that all are written.
    unsafe { out.set_len(n) };
    out
}

/// act(x·Wᵀ + b) for rows x `[rows, inputs]`; `bias` is padded with zeros to whole panels.
pub(super) fn linear(
    unit: Unit,
    x: &[f32],
    inputs: usize,
    weights: &Panels,
    bias: &[f32],
    act: Activation,
) -> Vec<f32> {
    let rows = x.len() / inputs;
    let outputs = weights.n();
    let panels = outputs.div_ceil(COLUMNS);
    debug_assert!(bias.len() >= panels * COLUMNS);
    let threads = rayon::current_num_threads();
    // Rows are split as evenly as tiles allow; with few rows the columns are split as well.
    let mut row_tasks = rows.div_ceil(ROWS_PER_TASK);
    let mut column_tasks = 1;
    if rows >= 64 * threads {
        row_tasks = row_tasks.next_multiple_of(threads);
    } else {
        column_tasks = (4 * threads).div_ceil(row_tasks.max(1)).min(panels);
    }
    let tiles = rows.div_ceil(14);
    let start = |i: usize| (i * tiles / row_tasks * 14).min(rows);
    let room = ROWS_PER_TASK.max(rows.div_ceil(row_tasks.max(1)) + 28) * BLOCK.min(inputs) + LANES;
    let fill = |y: Shared| {
        (0..row_tasks * column_tasks).into_par_iter().with_max_len(1).for_each(|task| {
            let (i, j) = (task / column_tasks, task % column_tasks);
            let (first, end) = (start(i), start(i + 1));
            with_room(room, |room| {
                // SAFETY: tasks are disjoint in rows or columns and stay within x and y; the room holds 14 rows more than an even
                // share, times the words of a block, and a vector.
                unsafe {
                    let block = Block {
                        weights,
                        bias: bias.as_ptr(),
                        act,
                        x: x.as_ptr().add(first * inputs),
                        inputs,
                        rows: end - first,
                        panels: j * panels / column_tasks..(j + 1) * panels / column_tasks,
                        y: y.at(first * outputs),
                        room,
                    };
                    run(unit, block);
                }
            });
        });
    };
    // SAFETY: the tasks cover all rows and columns, and every block writes each of its elements.
    unsafe { filled(rows * outputs, fill) }
}
