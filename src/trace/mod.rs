//! Traces: one row a query, the only thing that reports are made from.
//!
//! In: rows from the replay. Out: `traces.parquet`, `experiences.parquet`, `manifest.json`, and readers of them.
//! The columns and what they mean are one table, in [`schema`].

pub mod atomic;
mod cell;
pub mod manifest;
pub mod reader;
pub mod row;
pub mod schema;
pub mod writer;

#[cfg(test)]
pub(crate) mod fixture;

/// Version of the columns' meaning; a change of meaning needs a new one.
pub const SCHEMA_VERSION: u32 = 1;
