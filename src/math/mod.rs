//! The formulas, one plain function each: single query, `f64`, obvious. Every backend is held against these.
//!
//! In and out: numbers, sparse matrices and, for [`tfidf`], words. Nothing here knows questions, files or threads.

pub mod encoder;
pub mod graph;
pub mod pagerank;
pub mod passage_weight;
pub mod propagation;
pub mod rank;
pub mod similarity;
pub mod sparse;
pub mod tfidf;
