//! The memory plan: how many queries of each step fit the device beside the index, and what that takes.
//!
//! In: sizes of an index, free memory. Out: bytes of a step at a number of queries, the largest number that fits, and a sentence. Bytes
//! are those of the arrays a step holds at once at its fullest, as `propagate.rs`, `weights.rs`, `pagerank.rs`, `dense.rs` and
//! `corpus.rs` allocate them, but for lists of a few entries a query (seeds, what was touched). Steps run one after the other and share
//! buffers, so the index and the largest step are the peak; a store of experiences comes on top as it grows.

use std::fmt;

use crate::backend::device::kernel::{RESIDUAL_ROWS, TOPK_TILE_SCORES};
use crate::backend::device::pagerank::{SEGMENT, lanes};
use crate::backend::{Form, RetrievalData};
use crate::{Error, Result};

/// Share of the free memory that batches may use; the rest is left for the driver, stores and fragments.
const SHARE: f64 = 0.8;
/// Queries of a batch at most: past this a launch is long enough, and `grid.y` ends at 65,535.
const MOST: u64 = 1024;
/// Columns of a PageRank block at most: wider blocks read the graph less often but leave no room in the cache.
const MOST_LANES: u64 = 256;
/// Bytes of one touched entity: id, weight, score, tier.
const TOUCHED: u64 = 24;

/// A step that is planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Linking question entities.
    Link,
    /// Cosines of questions and passages.
    Similarities,
    /// Propagation alone.
    Propagate(Form),
    /// Passage weights alone.
    Weights,
    /// PageRank alone.
    PageRank,
    /// Propagation, passage weights, PageRank and ranking in one.
    Retrieve(Form),
}

impl Step {
    /// Every step.
    pub const ALL: [Self; 8] = [
        Self::Link,
        Self::Similarities,
        Self::Propagate(Form::Bfs),
        Self::Propagate(Form::Matrix),
        Self::Weights,
        Self::PageRank,
        Self::Retrieve(Form::Bfs),
        Self::Retrieve(Form::Matrix),
    ];

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Link => "linking",
            Self::Similarities => "passage similarity",
            Self::Propagate(_) => "propagation",
            Self::Weights => "passage weighting",
            Self::PageRank => "PageRank",
            Self::Retrieve(_) => "retrieval",
        }
    }

    fn most(self) -> u64 {
        match self {
            Self::PageRank | Self::Retrieve(_) => MOST_LANES,
            _ => MOST,
        }
    }
}

/// How batches are split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Bytes of the index on the device.
    pub resident: u64,
    /// Bytes that a batch may use.
    pub budget: u64,
    entities: u64,
    sentences: u64,
    passages: u64,
    nodes: u64,
    /// Bytes of one vector.
    vector: u64,
    long_rows: u64,
    segments: u64,
}

impl MemoryPlan {
    /// For an index that is still to be put on a device with `free` bytes.
    ///
    /// # Errors
    /// When not even one query fits.
    pub fn new(data: &RetrievalData, free: u64) -> Result<Self> {
        let graph = &data.graph;
        let lengths = (0..graph.n_nodes()).map(|i| graph.adjacency.row(i).0.len());
        let long: Vec<usize> = lengths.filter(|&n| n > SEGMENT).collect();
        let segments: usize = long.iter().map(|n| n.div_ceil(SEGMENT)).sum();
        let mut plan = Self {
            resident: 0,
            budget: 0,
            entities: graph.n_entities() as u64,
            sentences: graph.n_sentences() as u64,
            passages: graph.n_passages() as u64,
            nodes: graph.n_nodes() as u64,
            vector: 4 * data.passages.dim().max(data.sentences.dim()).max(data.entities.dim()) as u64,
            long_rows: long.len() as u64,
            segments: segments as u64,
        };
        plan.resident = plan.index_bytes(data);
        plan.budget = (free.saturating_sub(plan.resident) as f64 * SHARE) as u64;
        for step in Step::ALL {
            let least = match step {
                // One query must fit whatever it touches.
                Step::Retrieve(_) => plan.bytes(step, 1) + TOUCHED * plan.entities,
                _ => plan.bytes(step, 1),
            };
            if least > plan.budget {
                return Err(Error::work(format!(
                    "{} needs {} for its smallest batch, and {} of device memory are free beside the index",
                    step.name(),
                    Bytes(least),
                    Bytes(plan.budget)
                ))
                .with_hint("use backend.kind = \"cpu\", or a device with more memory"));
            }
        }
        Ok(plan)
    }

    fn index_bytes(&self, data: &RetrievalData) -> u64 {
        let graph = &data.graph;
        let csr = |c: &crate::math::graph::Csr| 4 * (c.offsets.len() + c.indices.len()) as u64;
        let matrix = |m: &crate::backend::Matrix| 4 * m.as_slice().len() as u64;
        csr(&graph.entity_sentences)
            + csr(&graph.sentence_entities)
            + csr(&data.occurrences.shape)
            + 8 * data.occurrences.values.len() as u64
            + csr(&graph.adjacency.shape)
            + 4 * graph.adjacency.values.len() as u64
            // Rows by colour; segments of long rows.
            + 4 * self.nodes
            + 4 * self.long_rows
            + 8 * self.segments
            + matrix(&data.passages)
            + matrix(&data.sentences)
            + matrix(&data.entities)
    }

    /// Bytes that a batch of so many queries of a step takes beside the index.
    pub fn bytes(&self, step: Step, queries: u64) -> u64 {
        let (e, s, p) = (self.entities, self.sentences, self.passages);
        match step {
            Step::Link => queries * (self.vector + 4 * e + 12 * e.div_ceil(TOPK_TILE_SCORES as u64)),
            Step::Similarities => queries * (self.vector + 4 * p),
            Step::Propagate(form) => {
                // Of entities: weight, next, active, tier, mark, two orders; of sentences: cosine, used.
                let bfs = 40 * e + 8 * s;
                let fullest = match form {
                    Form::Bfs => bfs,
                    // Score; picked, received.
                    Form::Matrix => bfs + 8 * e + 12 * s,
                };
                queries * (self.vector + fullest)
            }
            Step::Weights => queries * 8 * p,
            Step::PageRank => self.pagerank(queries),
            Step::Retrieve(form) => {
                let weights = queries * (self.vector + 8 * p);
                let ranked = queries * (4 * p + 12 * p.div_ceil(TOPK_TILE_SCORES as u64));
                self.bytes(Step::Propagate(form), queries).max(weights).max(self.pagerank(queries)).max(ranked)
            }
        }
    }

    fn pagerank(&self, columns: u64) -> u64 {
        let lanes = lanes(columns as usize) as u64;
        // Reset and iterate of all nodes; segments of long rows.
        let block = lanes * (8 * self.nodes + 4 * self.segments);
        // First the passages' part of the resets, later the parts of residual and mass.
        let parts = self.nodes.div_ceil(RESIDUAL_ROWS as u64) + self.long_rows;
        block + (4 * self.passages * columns).max(16 * parts * lanes)
    }

    /// The largest batch of a step that fits; a power of two for PageRank.
    pub fn queries(&self, step: Step) -> usize {
        let (mut fits, mut too_many) = (1, step.most() + 1);
        while too_many - fits > 1 {
            let middle = fits + (too_many - fits) / 2;
            match self.bytes(step, middle) <= self.budget {
                true => fits = middle,
                false => too_many = middle,
            }
        }
        (if step == Step::PageRank { 1 << fits.ilog2() } else { fits }) as usize
    }

    /// Bytes of index and largest batch together: the peak when every step has a full batch.
    pub fn peak(&self) -> u64 {
        self.resident + Step::ALL.map(|step| self.bytes(step, self.queries(step) as u64)).into_iter().max().unwrap_or(0)
    }

    /// Whether a retrieval batch that touched so many entities together still fits.
    pub(crate) fn fits_touched(&self, form: Form, queries: usize, touched: usize) -> bool {
        self.bytes(Step::Retrieve(form), queries as u64) + TOUCHED * touched as u64 <= self.budget
    }
}

impl fmt::Display for MemoryPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the index takes {} of device memory, with the largest batches {} at most: {} queries in retrieval, {} columns in PageRank, \
             {} in linking",
            Bytes(self.resident),
            Bytes(self.peak()),
            self.queries(Step::Retrieve(Form::Bfs)),
            self.queries(Step::PageRank),
            self.queries(Step::Link)
        )
    }
}

/// Bytes in words.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n if n >= 1 << 30 => write!(f, "{:.1} GiB", n as f64 / f64::from(1 << 30)),
            n if n >= 1 << 20 => write!(f, "{:.1} MiB", n as f64 / f64::from(1 << 20)),
            n => write!(f, "{:.1} KiB", n as f64 / 1024.0),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::backend::Matrix;
    use crate::math::graph::{Csr, Graph, WeightedCsr};

    fn passages(n: usize) -> RetrievalData {
        RetrievalData {
            graph: Graph {
                passage_entities: Csr::from_rows(&vec![Vec::new(); n]),
                entity_sentences: Csr::from_rows(&[]),
                sentence_entities: Csr::from_rows(&[]),
                adjacency: Graph::adjacency_from_edges(n, &[]),
            },
            occurrences: WeightedCsr::from_rows(&[]),
            passages: Matrix::new(4, vec![0.5; 4 * n]),
            ..RetrievalData::default()
        }
    }

    #[test]
    fn batches_shrink_with_the_memory_and_end_with_an_error() {
        let data = passages(1000);
        let plenty = MemoryPlan::new(&data, 1 << 34).unwrap();
        let queries = |plan: &MemoryPlan| {
            [Step::Propagate(Form::Bfs), Step::PageRank, Step::Weights].map(|step| plan.queries(step))
        };
        assert_eq!(queries(&plenty), [1024, 256, 1024]);
        let little = MemoryPlan::new(&data, 700_000).unwrap();
        let lanes = little.queries(Step::PageRank);
        assert!((4..64).contains(&lanes) && lanes.is_power_of_two(), "{little}");
        assert!(little.peak() <= little.resident + little.budget && little.peak() < 700_000);
        for step in Step::ALL {
            let n = little.queries(step) as u64;
            assert!(little.bytes(step, n) <= little.budget);
        }
        let error = MemoryPlan::new(&data, 10_000).unwrap_err();
        assert!(error.to_string().contains("for its smallest batch"), "{error}");
    }
}
