//! Replays question streams in exact causal order: the only place where retrieval meets the store.
//!
//! In: a [`Session`] (one dataset, prepared once) and [`Run`]s (method, order, settings). Out: a results folder a run. Runs of a dataset
//! advance together, block by block ([`driver`]): with lag W a block of W queries depends only on what was committed before it, so it
//! is one batch, and its rows equal those of one query at a time.

mod answer;
mod cosines;
pub mod driver;
pub mod estimate;
pub mod journal;
mod judging;
mod matching;
pub mod memory;
pub mod opportunity;
pub mod parts;
pub mod quote;
pub mod rescore;
mod run;
pub mod session;
pub mod shared;
mod write_back;

pub use driver::replay;
pub use parts::Parts;
pub use run::{JOURNAL_FILE, ORDER_FILE, Opened, Run, plan, plan_of};
pub use session::Session;
