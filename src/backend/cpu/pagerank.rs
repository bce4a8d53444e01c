//! Batched personalised PageRank on the CPU: (I - d·Pᵀ) x = r by in-place over-relaxation, a block of columns at a time.
//!
//! Nodes are swept in order (entities, then passages along the chain); x_i ← x_i + ω (r_i + d Σ_j w_ij/deg_j · x_j - x_i). The mass of
//! nodes without edges is not sent back while iterating: scaling the solution to sum 1 at the end is algebraically the same.
//! Columns of a block lie side by side (row-major `[nodes, lanes]`, rows on cache lines), so one neighbour is one contiguous load for all
//! of them. After [`sweeps`] a column stops when a sweep changes it by less than the tolerance and is
//! frozen from then on: its bits depend on neither the others nor the width of its block. The reset is kept for passages and the few
//! entities that have one.
//! Cost per sweep and block: stored entries × lanes × 2 operations; 8 + 4·lanes bytes are read an entry. Memory of a block: 4·lanes bytes a
//! node and a passage.

use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;

use crate::backend::Reset;
use crate::backend::cpu::simd::Level;
use crate::math::graph::WeightedCsr;
use crate::math::pagerank::{relaxation, relaxation_sweeps};

/// Columns of a wide block: a neighbour is one cache line.
pub const WIDE: usize = 16;
/// A column has converged when a sweep changes it by less than this share of its mass (L1).
const TOLERANCE: f32 = 3e-7;
/// Sweeps at which even a damping of 0.99 has converged to the tolerance.
const MAX_SWEEPS: usize = 1000;

/// Sweeps before a column's change is looked at, the last of them included: enough for an error of 1e-6.
pub fn sweeps(damping: f64) -> usize {
    relaxation_sweeps(damping, 1e-6).min(MAX_SWEEPS)
}

/// One stored weight: w_ij / deg_j at column j.
#[derive(Clone, Copy)]
struct Entry {
    column: u32,
    weight: f32,
}

/// Transition weights of one graph in `f32`.
pub struct PageRank {
    offsets: Vec<u32>,
    entries: Vec<Entry>,
    n_entities: usize,
    /// Idle: as many as there were workers at once.
    spaces: Mutex<Vec<Space>>,
}

/// A cache line; rows of 16 lanes are one each.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; 16]);

// SAFETY: sixteen floats without padding, for which zeros are a value.
unsafe impl bytemuck::Zeroable for Line {}
// SAFETY: as above; any bits are a value and nothing points anywhere.
unsafe impl bytemuck::Pod for Line {}

/// `[rows, L]` numbers that start on a cache line.
#[derive(Default)]
struct Rows(Vec<Line>);

impl Rows {
    /// Makes room for so many rows; what is in them does not matter.
    fn fit<const L: usize>(&mut self, rows: usize) {
        self.0.resize((rows * L).div_ceil(16), Line([0.0; 16]));
    }

    fn get<const L: usize>(&self) -> &[[f32; L]] {
        bytemuck::cast_slice::<Line, f32>(&self.0).as_chunks().0
    }

    fn get_mut<const L: usize>(&mut self) -> &mut [[f32; L]] {
        bytemuck::cast_slice_mut::<Line, f32>(&mut self.0).as_chunks_mut().0
    }
}

/// What a block works in, kept for the next one: memory that is given back and asked for again leaves holes.
#[derive(Default)]
struct Space {
    resets: Resets,
    x: Rows,
}

/// Reset vectors of a block: row 0 is zero, then the entities that have one, then all passages.
#[derive(Default)]
struct Resets {
    rows: Rows,
    /// Row of each entity.
    of_entity: Vec<u32>,
    first_passage: usize,
}

impl PageRank {
    /// From symmetric weights; the first `n_entities` nodes are entities, the rest passages.
    pub fn new(adjacency: &WeightedCsr<f64>, n_entities: usize) -> Self {
        let n = adjacency.rows();
        let degree: Vec<f64> = (0..n).map(|i| adjacency.row(i).1.iter().sum()).collect();
        let entries = adjacency.shape.indices.iter().zip(&adjacency.values);
        Self {
            offsets: adjacency.shape.offsets.iter().map(|&o| o as u32).collect(),
            entries: entries.map(|(&j, &w)| Entry { column: j, weight: (w / degree[j as usize]) as f32 }).collect(),
            n_entities,
            spaces: Mutex::default(),
        }
    }

    /// Number of nodes.
    pub fn n_nodes(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    /// Passage scores of each column, `None` where the reset is zero. Blocks of columns run in parallel.
    pub fn solve(&self, damping: f64, batch: &[Reset<'_>]) -> Vec<Option<Vec<f32>>> {
        if batch.len() == 1 {
            return self.block::<1>(damping, batch);
        }
        // Few columns are spread over the workers in narrow blocks; a lane's arithmetic is the same at every width.
        let width = batch.len().div_ceil(rayon::current_num_threads().max(1));
        let blocks: Vec<Vec<Option<Vec<f32>>>> = match width {
            0..=4 => batch.par_chunks(4).map(|b| self.block::<4>(damping, b)).collect(),
            5..=8 => batch.par_chunks(8).map(|b| self.block::<8>(damping, b)).collect(),
            _ => batch.par_chunks(WIDE).map(|b| self.block::<WIDE>(damping, b)).collect(),
        };
        blocks.into_iter().flatten().collect()
    }

    /// Fills in the scaled resets; which lanes have one.
    fn resets<const L: usize>(&self, batch: &[Reset<'_>], resets: &mut Resets) -> [bool; L] {
        let clean = |v: f64| if v.is_finite() && v > 0.0 { v } else { 0.0 };
        let Resets { rows, of_entity, .. } = resets;
        of_entity.clear();
        of_entity.resize(self.n_entities, 0);
        let mut used = 0;
        for &(e, _) in batch.iter().flat_map(|reset| reset.entities) {
            let row = &mut of_entity[e as usize];
            if *row == 0 {
                used += 1;
                *row = used;
            }
        }
        let first_passage = used as usize + 1;
        rows.fit::<L>(first_passage + self.n_nodes() - self.n_entities);
        rows.0.fill(Line([0.0; 16]));
        let r = rows.get_mut::<L>();
        let mut alive = [false; L];
        for (lane, reset) in batch.iter().enumerate() {
            // Scaled to sum 1 in f64 first, so that f32 neither overflows nor underflows.
            let sum = reset.entities.iter().map(|&(_, v)| clean(v)).sum::<f64>()
                + reset.passages.iter().map(|&v| clean(f64::from(v))).sum::<f64>();
            if sum > 0.0 && sum.is_finite() {
                for &(e, v) in reset.entities {
                    r[of_entity[e as usize] as usize][lane] = (clean(v) / sum) as f32;
                }
                for (row, &v) in r[first_passage..].iter_mut().zip(reset.passages) {
                    row[lane] = (clean(f64::from(v)) / sum) as f32;
                }
                alive[lane] = true;
            }
        }
        resets.first_passage = first_passage;
        alive
    }

    fn block<const L: usize>(&self, damping: f64, batch: &[Reset<'_>]) -> Vec<Option<Vec<f32>>> {
        let mut space = self.spaces.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        let alive = self.resets::<L>(batch, &mut space.resets);
        let Space { resets, x } = &mut space;
        x.fit::<L>(self.n_nodes());
        let r = resets.rows.get::<L>();
        for (row, &at) in x.get_mut::<L>().iter_mut().zip(&resets.of_entity) {
            *row = r[at as usize];
        }
        let n_passages = self.n_nodes() - self.n_entities;
        x.get_mut::<L>()[self.n_entities..self.n_nodes()].copy_from_slice(&r[resets.first_passage..][..n_passages]);
        solve_at(Level::detect(), self, damping, resets, x.get_mut::<L>(), alive);
        let x = &x.get::<L>()[..self.n_nodes()];
        let mut totals = [0f64; L];
        for row in x {
            for (total, &v) in totals.iter_mut().zip(row) {
                *total += f64::from(v);
            }
        }
        let scores = (0..batch.len())
            .map(|lane| {
                alive[lane].then(|| {
                    x[self.n_entities..].iter().map(|row| (f64::from(row[lane]) / totals[lane]) as f32).collect()
                })
            })
            .collect();
        self.spaces.lock().unwrap_or_else(PoisonError::into_inner).push(space);
        scores
    }
}

/// Change and mass of each lane in one sweep.
struct Swept<const L: usize> {
    change: [f32; L],
    total: [f32; L],
}

/// One sweep over all nodes; `step` is ω for a lane that still moves, 0 for one that is frozen. `TRACK` adds up change and mass.
#[inline(always)]
fn sweep<const L: usize, const TRACK: bool>(
    g: &PageRank,
    d: f32,
    resets: &Resets,
    x: &mut [[f32; L]],
    step: &[f32; L],
) -> Swept<L> {
    let r = resets.rows.get::<L>();
    let mut swept = Swept { change: [0.0; L], total: [0.0; L] };
    let mut start = 0;
    for (i, &end) in g.offsets.iter().skip(1).enumerate() {
        let mut walked = [0f32; L];
        let end = end as usize;
        for entry in &g.entries[start..end] {
            let xj = &x[entry.column as usize];
            for l in 0..L {
                walked[l] += entry.weight * xj[l];
            }
        }
        start = end;
        let row = match i.checked_sub(g.n_entities) {
            None => resets.of_entity[i] as usize,
            Some(p) => resets.first_passage + p,
        };
        let (ri, xi) = (&r[row], &mut x[i]);
        for l in 0..L {
            let moved = step[l] * (ri[l] + d * walked[l] - xi[l]);
            xi[l] += moved;
            if TRACK {
                swept.change[l] += moved.abs();
                swept.total[l] += xi[l];
            }
        }
    }
    swept
}

#[inline(always)]
fn solve_body<const L: usize>(g: &PageRank, damping: f64, resets: &Resets, x: &mut [[f32; L]], alive: [bool; L]) {
    let (omega, d) = (relaxation(damping) as f32, damping as f32);
    let mut step = alive.map(|a| if a { omega } else { 0.0 });
    if !alive.contains(&true) {
        return;
    }
    for _ in 1..sweeps(damping) {
        sweep::<L, false>(g, d, resets, x, &step);
    }
    for _ in sweeps(damping)..=MAX_SWEEPS {
        let swept = sweep::<L, true>(g, d, resets, x, &step);
        for (step, (change, total)) in step.iter_mut().zip(swept.change.iter().zip(&swept.total)) {
            if *change <= TOLERANCE * total {
                *step = 0.0;
            }
        }
        if step.iter().all(|&s| s == 0.0) {
            break;
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn solve_avx2<const L: usize>(g: &PageRank, damping: f64, resets: &Resets, x: &mut [[f32; L]], alive: [bool; L]) {
    solve_body(g, damping, resets, x, alive);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx2")]
fn solve_avx512<const L: usize>(g: &PageRank, damping: f64, resets: &Resets, x: &mut [[f32; L]], alive: [bool; L]) {
    solve_body(g, damping, resets, x, alive);
}

fn solve_at<const L: usize>(
    level: Level,
    g: &PageRank,
    damping: f64,
    resets: &Resets,
    x: &mut [[f32; L]],
    alive: [bool; L],
) {
    match level {
        // SAFETY: `Level::detect` found these instructions on this processor.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { solve_avx512(g, damping, resets, x, alive) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { solve_avx2(g, damping, resets, x, alive) },
        _ => solve_body(g, damping, resets, x, alive),
    }
}
