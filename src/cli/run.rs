//! `livingrag run`: one method over one question stream, from start or from where it was broken off.
//!
//! In: configuration files and `--set`. Out: a results folder `<out>/<run-id>/`; its path on standard output.

use std::path::PathBuf;

use clap::Args;

use super::Global;
use crate::config::RunConfig;
use crate::{Error, Result};

/// Replays a question stream and writes its traces
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  livingrag run configs/presets/hotpotqa.toml --set dataset.path=data/mine\n  \
                        livingrag run configs/gate-only.toml configs/presets/2wiki.toml --set dataset.path=data/x\n  \
                        livingrag run results/mine/plan.toml --resume")]
pub struct RunArgs {
    /// Configuration files; the later one wins key by key
    #[arg(required = true, value_name = "CONFIG")]
    pub configs: Vec<PathBuf>,
    /// Sets a key of the configuration; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub sets: Vec<String>,
    /// The folder that gets a folder per run
    #[arg(long, value_name = "DIR", default_value = "results")]
    pub out: PathBuf,
    /// Continues a run that was broken off; a finished run is left as it is
    #[arg(long)]
    pub resume: bool,
    /// Prints the plan and an estimate of the work, and ends
    #[arg(long)]
    pub dry_run: bool,
}

impl RunArgs {
    /// The configuration asked for.
    ///
    /// # Errors
    /// A file, key or value that is wrong.
    pub fn config(&self, global: &Global) -> Result<RunConfig> {
        RunConfig::load_layers(&self.configs, &global.with_threads(&self.sets))
    }
}

/// Replays the stream.
pub fn run(args: &RunArgs, global: &Global) -> Result<()> {
    let config = args.config(global)?;
    config.validate()?;
    config.dataset_path()?;
    Err(Error::work("run is not wired yet"))
}
