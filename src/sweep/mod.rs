//! Many runs: planned from one file, advanced in step, resumable, on one machine or many.
//!
//! In: `sweep.toml` ([`file`]). Out: a results folder with a folder a run, equal to those of the runs done alone, and `sweep.json`
//! ([`manifest`]). [`plan`] lists the runs, [`ledger`] knows which of them are done, [`work`] does those of one dataset, [`shard`] and
//! [`slurm`] divide them between machines, [`status`] looks on from outside.

pub mod estimate;
pub mod file;
pub mod ledger;
pub mod manifest;
pub mod plan;
pub mod shard;
pub mod slurm;
pub mod status;
pub mod work;

pub use file::SweepFile;
pub use plan::{Plan, plan};
pub use work::{Group, Options, Outcome, Rerun, Watcher};
