//! Base retrieval: from a question (and, for a store method, a fused activation) to ranked passages.
//!
//! In: an [`Index`], a backend and [`RetrieveConfig`]. Out: [`Retrieved`] with its inner state. Knows no store: an activation vector
//! comes in, an activation vector goes out. `linear` is LinearRAG (spec 2), `vanilla` dense top-k.

pub mod export;
pub mod length_norm;
pub mod prepared;
pub mod recall;

use serde::{Deserialize, Serialize};

use crate::math::propagation::Propagated;
use crate::math::sparse::SparseVector;

pub use prepared::Prepared;

/// Passages kept of every ranking at least, for recall at k.
pub const RANK_DEPTH: usize = 20;

/// Why a query was ranked by dense cosine instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fallback {
    /// No query entity, or none that links.
    DenseNoSeed,
    /// The reset vector was zero or not finite.
    DenseZeroReset,
}

impl Fallback {
    /// The stored name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::DenseNoSeed => "dense_no_seed",
            Self::DenseZeroReset => "dense_zero_reset",
        }
    }
}

/// What one query starts from; does not depend on any store.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct QueryBase {
    /// (entity, cosine) a query entity, in query order; two may link to one entity.
    pub seeds: Vec<(u32, f64)>,
    /// a_base: of two seeds on one entity the later score stands.
    pub activation: SparseVector,
}

/// What one query ended with.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Retrieved {
    /// Set when the ranking is dense although the graph was asked.
    pub fallback: Option<Fallback>,
    /// Entity weights and the active set; empty for dense rankings.
    pub propagated: Propagated,
    /// (passage, score), best first, at least [`RANK_DEPTH`] where there are as many.
    pub ranking: Vec<(u32, f64)>,
}

impl Retrieved {
    /// a_final: the positive entity weights after propagation.
    pub fn activation(&self) -> SparseVector {
        SparseVector::from_assignments(self.propagated.weights.iter().copied().filter(|&(_, w)| w > 0.0))
    }
}
