//! `livingrag demo`: the bundled data through index, `linear` and `living`, and a report.
//!
//! In: nothing but the repository's own files. Out: a results folder; the report's path as the last line.

use std::path::PathBuf;

use clap::Args;

use super::Global;
use crate::{Error, Result};

/// Runs the bundled demo offline: index, linear and living, report
///
/// The reader is simulated, so the numbers show that the machinery works, not how good a method is.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  livingrag demo --out results/demo")]
pub struct DemoArgs {
    /// Where results go
    #[arg(long, value_name = "DIR", default_value = "results/demo")]
    pub out: PathBuf,
}

/// Runs the demo.
pub fn demo(_args: &DemoArgs, _global: &Global) -> Result<()> {
    Err(Error::work("demo is not wired yet"))
}
