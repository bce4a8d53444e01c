//! What an index and a batch take on the CPU: the bytes of what `mod.rs`, `pagerank.rs`, `sieve.rs` and `propagate.rs` allocate.
//!
//! In: sizes, workers, queries of a batch. Out: bytes. Vectors and graph themselves are the caller's.

use crate::backend::RetrievalData;
use crate::backend::cpu::pagerank::WIDE;

/// Sizes that memory depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sizes {
    /// Passages.
    pub passages: u64,
    /// Sentences.
    pub sentences: u64,
    /// Entities.
    pub entities: u64,
    /// Stored entries of the adjacency: two an edge.
    pub entries: u64,
    /// Numbers a vector.
    pub dim: u64,
}

impl Sizes {
    /// Of an index.
    pub fn of(data: &RetrievalData) -> Self {
        Self {
            passages: data.graph.n_passages() as u64,
            sentences: data.graph.n_sentences() as u64,
            entities: data.graph.n_entities() as u64,
            entries: data.graph.adjacency.values.len() as u64,
            dim: data.passages.dim() as u64,
        }
    }

    fn nodes(&self) -> u64 {
        self.entities + self.passages
    }

    /// Kept while the index is loaded: transition weights, and the entities in 8 bits.
    pub fn loaded(&self) -> u64 {
        4 * self.nodes() + 8 * self.entries + self.entities * (self.dim.next_multiple_of(32) + 16)
    }

    /// State of propagation, one a worker, kept from batch to batch.
    pub fn workspaces(&self, threads: u64) -> u64 {
        threads * (56 * self.entities + 16 * self.sentences)
    }

    /// A PageRank batch: blocks of columns in work, and the scores of all.
    pub fn pagerank(&self, threads: u64, columns: u64) -> u64 {
        let lanes = match columns.div_ceil(threads.max(1)) {
            1 if columns == 1 => 1,
            0..=4 => 4,
            5..=8 => 8,
            _ => WIDE as u64,
        };
        let blocks = threads.min(columns.div_ceil(lanes));
        // Iterate of all nodes, reset of the passages, row of each entity.
        let block = lanes * 4 * (self.nodes() + self.passages) + 4 * self.entities;
        blocks * block + 4 * columns * self.passages
    }

    /// A retrieval batch at its fullest: passage weights and PageRank, or cosines before they are kept.
    pub fn retrieval(&self, threads: u64, queries: u64) -> u64 {
        let rows = 4 * queries * self.passages;
        // Bonus of a passage, or its place in a ranking.
        let ranking = threads * 16 * self.passages;
        (rows + self.pagerank(threads, queries) + ranking).max(2 * rows)
    }
}
