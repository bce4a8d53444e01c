//! The experience store: records, matching, fusion.

pub mod fuse;
pub mod record;
pub mod store;
