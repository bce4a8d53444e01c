//! Replays question streams in exact causal order: the only place where retrieval meets the store.

pub mod opportunity;
