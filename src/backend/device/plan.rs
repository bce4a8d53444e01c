//! The memory plan: how many queries of each step fit the device beside the index.
//!
//! In: sizes of an index, free memory. Out: batch sizes, decided once when the index is loaded, and a sentence that says so. The same
//! share is given to every step, since steps run one after the other and share buffers.

use std::fmt;

use crate::backend::RetrievalData;
use crate::{Error, Result};

/// Share of the free memory that batches may use; the rest is left for the driver and for fragments.
const SHARE: f64 = 0.8;
/// Queries of a batch at most: past this a launch is long enough, and `grid.y` ends at 65,535.
const MOST: u64 = 1024;
/// Columns of a PageRank block at most: wider blocks read the graph less often but leave no room in the cache.
const MOST_LANES: u64 = 256;

/// How batches are split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Bytes of the index on the device.
    pub resident: u64,
    /// Bytes that a batch may use.
    pub budget: u64,
    /// Queries of a propagation batch.
    pub propagate: usize,
    /// Columns of a PageRank block, a power of two.
    pub pagerank: usize,
    /// Queries of a passage-weight batch.
    pub weights: usize,
    /// Queries of a linking batch.
    pub link: usize,
    /// Queries of a batch of passage cosines.
    pub similarities: usize,
}

/// Bytes an index takes on the device.
pub fn resident_bytes(data: &RetrievalData) -> u64 {
    let graph = &data.graph;
    let csr = |c: &crate::math::graph::Csr| 4 * (c.offsets.len() + c.indices.len()) as u64;
    let matrix = |m: &crate::backend::Matrix| 4 * m.as_slice().len() as u64;
    csr(&graph.entity_sentences)
        + csr(&graph.sentence_entities)
        + csr(&data.occurrences.shape)
        + 8 * data.occurrences.values.len() as u64
        + csr(&graph.adjacency.shape)
        + 4 * graph.adjacency.values.len() as u64
        // Rows by colour and segments of long rows.
        + 12 * graph.n_nodes() as u64
        + matrix(&data.passages)
        + matrix(&data.sentences)
        + matrix(&data.entities)
}

impl MemoryPlan {
    /// For an index whose `resident` bytes are already on the device, with `free` bytes left.
    ///
    /// # Errors
    /// When not even one query fits.
    pub fn new(data: &RetrievalData, free: u64) -> Result<Self> {
        let budget = (free as f64 * SHARE) as u64;
        let (e, s, p) =
            (data.graph.n_entities() as u64, data.graph.n_sentences() as u64, data.graph.n_passages() as u64);
        let nodes = data.graph.n_nodes() as u64;
        let dim = 4 * data.passages.dim().max(data.sentences.dim()).max(data.entities.dim()) as u64;
        let fit = |step: &str, bytes: u64, most: u64| -> Result<u64> {
            match (budget / bytes.max(1)).min(most) {
                0 => Err(Error::work(format!(
                    "{step} needs {} for its smallest batch, and {} of device memory are free beside the index",
                    Bytes(bytes),
                    Bytes(budget)
                ))
                .with_hint("use backend.kind = \"cpu\", or a device with more memory")),
                queries => Ok(queries),
            }
        };
        // Per query: state of entities (weight, next, active, score: 8 each; tier, mark, two orders: 4 each), of sentences (cosine,
        // used, picked: 4 each; received: 8), the collected lists (24 an entity at most).
        let propagate = fit("propagation", 72 * e + 20 * s + dim + 4096, MOST)?;
        // Per column: reset and iterate of all nodes, passages twice, parts of residual and mass, segments of long rows.
        let entries = data.graph.adjacency.values.len() as u64;
        let lanes = fit("PageRank", 4 * (8 * nodes + nodes / 2 + 12 * p + entries / 64) + 4096, MOST_LANES / 4)? * 4;
        Ok(Self {
            resident: resident_bytes(data),
            budget,
            propagate: propagate as usize,
            pagerank: (1 << lanes.ilog2()) as usize,
            weights: fit("passage weighting", 8 * p + 20 * e + 4096, MOST)? as usize,
            link: fit("linking", 4 * e + dim + 4096, MOST)? as usize,
            similarities: fit("passage similarity", 4 * p + dim + 4096, MOST)? as usize,
        })
    }
}

impl fmt::Display for MemoryPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the index takes {} of device memory; batches may use {}: {} queries in propagation, {} columns in PageRank, {} queries in \
             passage weighting, {} in linking",
            Bytes(self.resident),
            Bytes(self.budget),
            self.propagate,
            self.pagerank,
            self.weights,
            self.link
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
        assert_eq!((plenty.propagate, plenty.pagerank, plenty.weights), (1024, 256, 1024));
        let little = MemoryPlan::new(&data, 700_000).unwrap();
        assert!(little.pagerank >= 4 && little.pagerank < 64, "{little}");
        assert!(little.pagerank.is_power_of_two());
        let error = MemoryPlan::new(&data, 10_000).unwrap_err();
        assert!(error.to_string().contains("for its smallest batch"), "{error}");
    }
}
