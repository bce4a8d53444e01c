//! Under construction.

pub mod graph;
pub mod occurrences;
