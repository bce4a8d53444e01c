//! `livingrag compare`: two runs over the same questions, paired by question id.
//!
//! In: two results folders. Out: a comparison on standard output.

use std::path::PathBuf;

use clap::Args;

use super::{Global, output};
use crate::{Result, report};

/// Compares two runs, paired by question
///
/// Rows are joined by question id, whatever their order; a question that only one side has is an error.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  livingrag compare results/mine-linear results/mine-living")]
pub struct CompareArgs {
    /// The results folder of the first run
    #[arg(value_name = "RUN-A")]
    pub a: PathBuf,
    /// The results folder of the second run
    #[arg(value_name = "RUN-B")]
    pub b: PathBuf,
}

/// Compares.
pub fn compare(args: &CompareArgs, _global: &Global) -> Result<()> {
    let (comparison, alarms) = report::compare(&args.a, &args.b)?;
    for alarm in alarms {
        output::warning(&alarm);
    }
    output::data(&comparison)
}
