//! Traces: one row a query, the only thing that reports are made from.
//!
//! In: rows from the replay. Out: `traces.parquet`, `experiences.parquet`, `manifest.json`, and readers of them.

pub mod row;

/// Version of the columns' meaning; a change of meaning needs a new one.
pub const SCHEMA_VERSION: u32 = 1;
