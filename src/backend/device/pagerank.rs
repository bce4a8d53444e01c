//! Personalised PageRank of a block of queries: `kernels/pagerank.cu`, and the order in which its launches go.
//!
//! In: symmetric weights once, then reset vectors. Out: scores of the passages. Nodes are coloured greedily in node order, so that no two
//! neighbours share a colour: entities, even and odd passages of a chain come out as three colours, a graph without a chain as two. One
//! sweep is one launch a colour (three where it has long rows). The number of sweeps is fixed by the damping; then the residual of every
//! column decides whether it is done, and a column that is done no longer moves, whatever its neighbours do.

use crate::Result;
use crate::backend::Reset;
use crate::backend::device::kernel::{
    PAGERANK_HUB_RESIDUAL, PAGERANK_HUBS, PAGERANK_MASS, PAGERANK_RESET_ENTITIES, PAGERANK_RESET_PASSAGES,
    PAGERANK_RESIDUAL, PAGERANK_SCORES, PAGERANK_SEGMENTS, PAGERANK_SWEEP, PAGERANK_TOTALS, RESIDUAL_ROWS,
};
use crate::backend::device::{Arg, Array, Device, Engine, index, offsets};
use crate::math::graph::WeightedCsr;
use crate::math::pagerank::{relaxation, relaxation_sweeps};

/// Entries of a segment; rows of more are cut.
pub(crate) const SEGMENT: usize = 256;
/// A column is done when the L1 norm of r + d·Pᵀx - x is below this share of its mass; the error is at most 1/(1 - d) times that.
/// `f32` cannot go much lower: rounding alone leaves about 1e-7.
const TOLERANCE: f64 = 5e-7;
/// Error that the first sweeps aim at.
const ERROR: f64 = 1e-7;
/// Sweeps between two looks at the residual, after the first ones.
const MORE_SWEEPS: usize = 4;
/// Sweeps at which even a damping of 0.99 has converged.
const MAX_SWEEPS: usize = 1000;

/// Columns of a block on the device: a power of two from 4.
pub(crate) fn lanes(columns: usize) -> usize {
    columns.next_power_of_two().max(4)
}

/// A colour for every node such that neighbours differ: the lowest that no earlier neighbour has.
fn colour(adjacency: &WeightedCsr<f64>) -> Vec<u32> {
    let mut colours: Vec<u32> = Vec::with_capacity(adjacency.rows());
    let mut taken: Vec<u32> = Vec::new();
    for i in 0..adjacency.rows() {
        taken.clear();
        taken.extend(adjacency.row(i).0.iter().filter_map(|&j| colours.get(j as usize)));
        taken.sort_unstable();
        taken.dedup();
        // The first place where the sorted colours leave a gap.
        let free = taken.iter().zip(0u32..).find(|&(&t, at)| t != at).map_or(taken.len() as u32, |(_, at)| at);
        colours.push(free);
    }
    colours
}

/// Long rows of one colour.
struct Hubs<D: Device> {
    rows: Array<D, u32>,
    first_segment: Array<D, u32>,
    from: Array<D, u32>,
    to: Array<D, u32>,
}

/// Rows of one colour.
struct Colour<D: Device> {
    rows: Array<D, u32>,
    hubs: Option<Hubs<D>>,
}

/// Transition weights by destination.
pub(crate) struct PageRank<D: Device> {
    offsets: Array<D, u32>,
    columns: Array<D, u32>,
    values: Array<D, f32>,
    colours: Vec<Colour<D>>,
    /// Of the colour that has most.
    most_segments: usize,
    n_hubs: usize,
    n_entities: usize,
    n_nodes: usize,
}

/// The state of one block of columns.
struct Block<D: Device> {
    quad_shift: u32,
    damping: f32,
    reset: Array<D, f32>,
    step: Array<D, f32>,
    partial: Array<D, f32>,
    x: Array<D, f32>,
}

/// Entity parts of reset vectors: a list a column, on the device.
pub(crate) struct ResetLists<'a, D: Device> {
    /// `[columns + 1]`
    pub(crate) offsets: &'a Array<D, u32>,
    /// `[entries]`, distinct within a column
    pub(crate) entities: &'a Array<D, u32>,
    /// `[entries]`
    pub(crate) weights: &'a Array<D, f64>,
}

/// What was solved.
pub(crate) struct Solved<D: Device> {
    /// Passage scores, `[columns, n_passages]`; empty where no column has a reset.
    pub(crate) scores: Array<D, f32>,
    /// Whether a column has a reset; the scores of one that has none say nothing.
    pub(crate) alive: Vec<bool>,
}

impl<D: Device> Block<D> {
    fn quads(&self) -> usize {
        1 << self.quad_shift
    }
}

impl<D: Device> PageRank<D> {
    pub(crate) fn upload(engine: &Engine<D>, adjacency: &WeightedCsr<f64>, n_entities: usize) -> Result<Self> {
        let n = adjacency.rows();
        let degree: Vec<f64> = (0..n).map(|i| adjacency.row(i).1.iter().sum()).collect();
        let values: Vec<f32> = adjacency
            .shape
            .indices
            .iter()
            .zip(&adjacency.values)
            .map(|(&j, w)| (w / degree[j as usize]) as f32)
            .collect();
        let starts = offsets((0..n).map(|i| adjacency.row(i).0.len()))?;
        let colours = colour(adjacency);
        let (mut most_segments, mut n_hubs) = (0, 0);
        let n_colours = colours.iter().max().map_or(0, |&c| c + 1);
        let colours = (0..n_colours)
            .map(|c| {
                let (mut short, mut long) = (Vec::new(), Vec::new());
                let (mut from, mut to, mut first) = (Vec::new(), Vec::new(), vec![0u32]);
                for i in (0..n).filter(|&i| colours[i] == c) {
                    let (start, end) = (starts[i] as usize, starts[i + 1] as usize);
                    if end - start <= SEGMENT {
                        short.push(i as u32);
                        continue;
                    }
                    long.push(i as u32);
                    for at in (start..end).step_by(SEGMENT) {
                        from.push(at as u32);
                        to.push((at + SEGMENT).min(end) as u32);
                    }
                    first.push(from.len() as u32);
                }
                most_segments = most_segments.max(from.len());
                n_hubs += long.len();
                let hubs = if long.is_empty() {
                    None
                } else {
                    Some(Hubs {
                        rows: engine.upload(&long)?,
                        first_segment: engine.upload(&first)?,
                        from: engine.upload(&from)?,
                        to: engine.upload(&to)?,
                    })
                };
                Ok(Colour { rows: engine.upload(&short)?, hubs })
            })
            .collect::<Result<_>>()?;
        Ok(Self {
            offsets: engine.upload(&starts)?,
            columns: engine.upload(&adjacency.shape.indices)?,
            values: engine.upload(&values)?,
            colours,
            most_segments,
            n_hubs,
            n_entities,
            n_nodes: n,
        })
    }

    /// Solves a batch and fetches the passage scores of each column, `None` where the reset is zero.
    pub(crate) fn solve(&self, engine: &Engine<D>, damping: f64, batch: &[Reset<'_>]) -> Result<Vec<Option<Vec<f32>>>> {
        let pairs: Vec<(u32, f64)> = batch.iter().flat_map(|r| r.entities).copied().collect();
        let entities = ResetLists {
            offsets: &engine.upload(&offsets(batch.iter().map(|r| r.entities.len()))?)?,
            entities: &engine.upload(&pairs.iter().map(|&(e, _)| e).collect::<Vec<u32>>())?,
            weights: &engine.upload(&pairs.iter().map(|&(_, w)| w).collect::<Vec<f64>>())?,
        };
        let passages = engine.upload(&batch.iter().map(|r| r.passages).collect::<Vec<_>>().concat())?;
        let solved = self.scores(engine, damping, batch.len(), &entities, passages)?;
        let scores = engine.download(&solved.scores, solved.scores.len())?;
        let n = self.n_nodes - self.n_entities;
        let of = |(lane, alive): (usize, &bool)| alive.then(|| scores[lane * n..(lane + 1) * n].to_vec());
        Ok(solved.alive.iter().enumerate().map(of).collect())
    }

    /// Passage scores of a block of columns, on the device; `passages` is the passage part of the resets, `[columns, n_passages]`.
    pub(crate) fn scores(
        &self,
        engine: &Engine<D>,
        damping: f64,
        columns: usize,
        entities: &ResetLists<'_, D>,
        passages: Array<D, f32>,
    ) -> Result<Solved<D>> {
        let lanes = lanes(columns);
        let n_passages = self.n_nodes - self.n_entities;
        let mut block = Block {
            quad_shift: (lanes / 4).ilog2(),
            damping: damping as f32,
            reset: engine.zeros(self.n_nodes * lanes)?,
            step: engine.array(lanes)?,
            partial: engine.array(self.most_segments * lanes)?,
            x: engine.zeros(self.n_nodes * lanes)?,
        };
        let mass = self.reset(engine, &mut block, columns, entities, &passages)?;
        drop(passages);
        let alive: Vec<bool> = mass.iter().map(|&m| m > 0.0 && m.is_finite()).collect();
        let omega = relaxation(damping) as f32;
        let mut step: Vec<f32> = vec![0.0; lanes];
        for (s, &alive) in step.iter_mut().zip(&alive) {
            *s = if alive { omega } else { 0.0 };
        }
        let mut totals = engine.array::<f64>(2 * lanes)?;
        let mut sweeps = relaxation_sweeps(damping, ERROR).min(MAX_SWEEPS);
        let mut done = 0;
        while step.iter().any(|&s| s != 0.0) {
            engine.write(&block.step, 0, &step)?;
            for _ in 0..sweeps {
                self.sweep(engine, &mut block)?;
            }
            done += sweeps;
            sweeps = MORE_SWEEPS;
            self.totals(engine, &mut block, &mut totals)?;
            let found = engine.download(&totals, 2 * lanes)?;
            for (lane, s) in step.iter_mut().enumerate() {
                if found[lane] <= TOLERANCE * found[lanes + lane] || done >= MAX_SWEEPS {
                    *s = 0.0;
                }
            }
        }
        if done == 0 {
            return Ok(Solved { scores: engine.array(0)?, alive });
        }
        let Block { x, reset, partial, .. } = block;
        drop((reset, partial));
        let mut scores = engine.array::<f32>(columns * n_passages)?;
        let args = [
            x.read(),
            totals.read(),
            Arg::U32(index(self.n_entities)?),
            Arg::U32(index(n_passages)?),
            Arg::U32(index(lanes)?),
            Arg::U32(index(columns)?),
            scores.write(),
        ];
        engine.launch(PAGERANK_SCORES, (n_passages.div_ceil(32), lanes.div_ceil(32)), 256, &args)?;
        Ok(Solved { scores, alive })
    }

    /// Fills reset and first iterate; the sum of each column's reset.
    fn reset(
        &self,
        engine: &Engine<D>,
        block: &mut Block<D>,
        columns: usize,
        entities: &ResetLists<'_, D>,
        passages: &Array<D, f32>,
    ) -> Result<Vec<f64>> {
        let n_passages = self.n_nodes - self.n_entities;
        let lanes = index(4 * block.quads())?;
        let (starts, weights) = (entities.offsets, entities.weights);
        let mut mass = engine.array::<f64>(columns)?;
        let args = [starts.read(), weights.read(), passages.read(), Arg::U32(index(n_passages)?), mass.write()];
        engine.launch(PAGERANK_MASS, (columns, 1), 256, &args)?;
        let args = [
            starts.read(),
            entities.entities.read(),
            weights.read(),
            mass.read(),
            Arg::U32(lanes),
            block.reset.write(),
            block.x.write(),
        ];
        engine.launch(PAGERANK_RESET_ENTITIES, (columns, 1), 128, &args)?;
        let args = [
            passages.read(),
            Arg::U32(index(columns)?),
            Arg::U32(index(n_passages)?),
            mass.read(),
            Arg::U32(index(self.n_entities)?),
            Arg::U32(lanes),
            block.reset.write(),
            block.x.write(),
        ];
        let grid = (n_passages.div_ceil(32), (lanes as usize).div_ceil(32));
        engine.launch(PAGERANK_RESET_PASSAGES, grid, 256, &args)?;
        engine.download(&mass, columns)
    }

    fn segments(&self, engine: &Engine<D>, block: &mut Block<D>, hubs: &Hubs<D>) -> Result<()> {
        let args = [
            hubs.from.read(),
            hubs.to.read(),
            Arg::U32(index(hubs.from.len())?),
            self.columns.read(),
            self.values.read(),
            block.x.read(),
            Arg::U32(block.quad_shift),
            block.partial.write(),
        ];
        engine.launch_items(PAGERANK_SEGMENTS, hubs.from.len() << block.quad_shift, &args)
    }

    fn sweep(&self, engine: &Engine<D>, block: &mut Block<D>) -> Result<()> {
        for colour in &self.colours {
            let items = colour.rows.len() << block.quad_shift;
            let args = [
                colour.rows.read(),
                Arg::U32(index(colour.rows.len())?),
                self.offsets.read(),
                self.columns.read(),
                self.values.read(),
                block.reset.read(),
                block.step.read(),
                Arg::U32(block.quad_shift),
                Arg::F32(block.damping),
                block.x.write(),
            ];
            engine.launch_items(PAGERANK_SWEEP, items, &args)?;
            if let Some(hubs) = &colour.hubs {
                self.segments(engine, block, hubs)?;
                let args = [
                    hubs.rows.read(),
                    hubs.first_segment.read(),
                    Arg::U32(index(hubs.rows.len())?),
                    block.partial.read(),
                    block.reset.read(),
                    block.step.read(),
                    Arg::U32(block.quad_shift),
                    Arg::F32(block.damping),
                    block.x.write(),
                ];
                engine.launch_items(PAGERANK_HUBS, hubs.rows.len() << block.quad_shift, &args)?;
            }
        }
        Ok(())
    }

    /// L1 residual and mass of each lane into `totals`, `[2, lanes]`.
    fn totals(&self, engine: &Engine<D>, block: &mut Block<D>, totals: &mut Array<D, f64>) -> Result<()> {
        let lanes = 4 * block.quads();
        let short_parts = self.n_nodes.div_ceil(RESIDUAL_ROWS);
        let parts = short_parts + self.n_hubs;
        let mut residual = engine.array::<f64>(parts * lanes)?;
        let mut mass = engine.array::<f64>(parts * lanes)?;
        let args = [
            self.offsets.read(),
            self.columns.read(),
            self.values.read(),
            Arg::U32(index(self.n_nodes)?),
            Arg::U32(index(SEGMENT)?),
            block.reset.read(),
            block.x.read(),
            Arg::U32(block.quad_shift),
            Arg::F32(block.damping),
            residual.write(),
            mass.write(),
        ];
        engine.launch_items(PAGERANK_RESIDUAL, short_parts << block.quad_shift, &args)?;
        let mut part = short_parts;
        for hubs in self.colours.iter().filter_map(|c| c.hubs.as_ref()) {
            self.segments(engine, block, hubs)?;
            let args = [
                hubs.rows.read(),
                hubs.first_segment.read(),
                Arg::U32(index(hubs.rows.len())?),
                block.partial.read(),
                block.reset.read(),
                block.x.read(),
                Arg::U32(block.quad_shift),
                Arg::F32(block.damping),
                Arg::U32(index(part)?),
                residual.write(),
                mass.write(),
            ];
            engine.launch_items(PAGERANK_HUB_RESIDUAL, hubs.rows.len() << block.quad_shift, &args)?;
            part += hubs.rows.len();
        }
        let args = [residual.read(), mass.read(), Arg::U32(index(parts)?), totals.write()];
        engine.launch(PAGERANK_TOTALS, (lanes, 1), 256, &args)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::graph::Graph;

    #[test]
    fn neighbours_differ_in_colour_and_a_chain_needs_three() {
        // Two entities, four passages in a chain, the last one without an entity.
        let edges = [(0, 2, 1.0), (0, 3, 1.0), (1, 4, 1.0), (2, 3, 1.0), (3, 4, 1.0), (4, 5, 1.0)];
        let adjacency = Graph::adjacency_from_edges(6, &edges);
        let colours = colour(&adjacency);
        assert!(edges.iter().all(|&(a, b, _)| colours[a as usize] != colours[b as usize]));
        assert_eq!(colours, [0, 0, 1, 2, 1, 0]);
        let bipartite = Graph::adjacency_from_edges(6, &edges[..3]);
        assert_eq!(colour(&bipartite), [0, 0, 1, 1, 1, 0]);
    }
}
