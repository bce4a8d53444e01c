//! Text encoders: sentence embedders and cross-encoders, written for throughput.
//!
//! In: texts and a model's folder. Out: vectors and logits. Texts of a batch are packed without padding, so a text beside a longer
//! one has the bits that it has alone.

pub mod ops;
