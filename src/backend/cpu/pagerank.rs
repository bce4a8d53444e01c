//! Batched personalised PageRank on the CPU: (I - d·Pᵀ) x = r by in-place over-relaxation, a block of columns at a time.
//!
//! Nodes are swept in order (entities, then passages along the chain); x_i ← x_i + ω (r_i + d Σ_j w_ij/deg_j · x_j - x_i). The mass of
//! nodes without edges is not sent back while iterating: scaling the solution to sum 1 at the end is algebraically the same.
//! Columns of a block lie side by side (row-major `[nodes, lanes]`), so one neighbour is one contiguous load for all of them.
//! A column stops when its own change falls below the tolerance and is frozen from then on: its bits do not depend on the others.
//! Cost per sweep and block: stored entries × lanes × 2 operations; 4·lanes bytes are gathered an entry.

use rayon::prelude::*;

use crate::backend::Reset;
use crate::backend::cpu::simd::Level;
use crate::math::graph::WeightedCsr;

/// Columns of a wide block: one AVX-512 register, two AVX2 ones.
const WIDE: usize = 16;
/// ω = 2 / (1 + √(1 - d²)) at d = 0.5, the optimum of a two-coloured graph with that spectral radius.
fn relaxation(damping: f64) -> f32 {
    (2.0 / (1.0 + (1.0 - damping * damping).sqrt())) as f32
}
/// A column has converged when a sweep changes it by less than this share of its mass (L1).
const TOLERANCE: f32 = 3e-7;

/// Transition weights of one graph in `f32`.
pub struct PageRank {
    offsets: Vec<u32>,
    columns: Vec<u32>,
    /// w_ij / deg_j
    values: Vec<f32>,
    n_entities: usize,
}

impl PageRank {
    /// From symmetric weights; the first `n_entities` nodes are entities, the rest passages.
    pub fn new(adjacency: &WeightedCsr<f64>, n_entities: usize) -> Self {
        let n = adjacency.rows();
        let degree: Vec<f64> = (0..n).map(|i| adjacency.row(i).1.iter().sum()).collect();
        let values = (0..n)
            .flat_map(|i| {
                let (columns, weights) = adjacency.row(i);
                columns.iter().zip(weights).map(|(&j, &w)| (w / degree[j as usize]) as f32).collect::<Vec<_>>()
            })
            .collect();
        Self {
            offsets: adjacency.shape.offsets.iter().map(|&o| o as u32).collect(),
            columns: adjacency.shape.indices.clone(),
            values,
            n_entities,
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

    fn block<const L: usize>(&self, damping: f64, batch: &[Reset<'_>]) -> Vec<Option<Vec<f32>>> {
        let n = self.n_nodes();
        let mut r = vec![[0f32; L]; n];
        let mut mass = [0f32; L];
        for (lane, reset) in batch.iter().enumerate() {
            let clean = |v: f64| if v.is_finite() && v > 0.0 { v } else { 0.0 };
            // Scaled to sum 1 in f64 first, so that f32 neither overflows nor underflows.
            let sum = reset.entities.iter().map(|&(_, v)| clean(v)).sum::<f64>()
                + reset.passages.iter().map(|&v| clean(f64::from(v))).sum::<f64>();
            if sum > 0.0 && sum.is_finite() {
                for &(e, v) in reset.entities {
                    r[e as usize][lane] = (clean(v) / sum) as f32;
                }
                for (row, &v) in r[self.n_entities..].iter_mut().zip(reset.passages) {
                    row[lane] = (clean(f64::from(v)) / sum) as f32;
                }
                mass[lane] = 1.0;
            }
        }
        let mut x = r.clone();
        sweep_until_converged(Level::detect(), self, damping, &r, &mut x, mass);
        let mut totals = [0f64; L];
        for row in &x {
            for (total, &v) in totals.iter_mut().zip(row) {
                *total += f64::from(v);
            }
        }
        (0..batch.len())
            .map(|lane| {
                (mass[lane] > 0.0).then(|| {
                    x[self.n_entities..].iter().map(|row| (f64::from(row[lane]) / totals[lane]) as f32).collect()
                })
            })
            .collect()
    }
}

/// Sweeps at which even a damping of 0.99 has converged to the tolerance.
const MAX_SWEEPS: usize = 1000;

#[inline(always)]
fn sweeps_body<const L: usize>(g: &PageRank, damping: f64, r: &[[f32; L]], x: &mut [[f32; L]], mass: [f32; L]) {
    let omega = relaxation(damping);
    let d = damping as f32;
    // ω for a lane that still moves, 0 for one that is frozen.
    let mut step = mass.map(|m| if m > 0.0 { omega } else { 0.0 });
    for _ in 0..MAX_SWEEPS {
        let mut change = [0f32; L];
        let mut total = [0f32; L];
        for i in 0..r.len() {
            let mut walked = [0f32; L];
            let range = g.offsets[i] as usize..g.offsets[i + 1] as usize;
            for (&j, &w) in g.columns[range.clone()].iter().zip(&g.values[range]) {
                let xj = &x[j as usize];
                for l in 0..L {
                    walked[l] += w * xj[l];
                }
            }
            let xi = &mut x[i];
            for l in 0..L {
                let moved = step[l] * (r[i][l] + d * walked[l] - xi[l]);
                xi[l] += moved;
                change[l] += moved.abs();
                total[l] += xi[l];
            }
        }
        let mut running = false;
        for l in 0..L {
            if change[l] <= TOLERANCE * total[l] {
                step[l] = 0.0;
            }
            running |= step[l] != 0.0;
        }
        if !running {
            break;
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn sweeps_avx2<const L: usize>(g: &PageRank, damping: f64, r: &[[f32; L]], x: &mut [[f32; L]], mass: [f32; L]) {
    sweeps_body(g, damping, r, x, mass);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx2")]
fn sweeps_avx512<const L: usize>(g: &PageRank, damping: f64, r: &[[f32; L]], x: &mut [[f32; L]], mass: [f32; L]) {
    sweeps_body(g, damping, r, x, mass);
}

fn sweep_until_converged<const L: usize>(
    level: Level,
    g: &PageRank,
    damping: f64,
    r: &[[f32; L]],
    x: &mut [[f32; L]],
    mass: [f32; L],
) {
    match level {
        // SAFETY: `Level::detect` found these instructions on this processor.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { sweeps_avx512(g, damping, r, x, mass) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { sweeps_avx2(g, damping, r, x, mass) },
        _ => sweeps_body(g, damping, r, x, mass),
    }
}
