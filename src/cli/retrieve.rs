//! `livingrag retrieve`: base retrieval of every question, with its inner state.
//!
//! In: an index folder and `retrieve.*` keys. Out: a Parquet file with a row a question.

use std::path::PathBuf;

use clap::Args;

use super::Global;
use crate::config::RunConfig;
use crate::{Error, Result};

/// Ranks the passages of every question and writes the ranking with its inner state
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  livingrag retrieve --index indexes/mine --out rankings.parquet\n  \
                        livingrag retrieve --index indexes/mine --out rankings.parquet \\\n      \
                        --config configs/presets/hotpotqa.toml --set retrieve.propagation=matrix")]
pub struct RetrieveArgs {
    /// The index folder
    #[arg(long, value_name = "DIR")]
    pub index: PathBuf,
    /// The Parquet file to write
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// A configuration file; may be repeated, the later one wins key by key
    #[arg(long = "config", value_name = "FILE")]
    pub configs: Vec<PathBuf>,
    /// Sets a key of the configuration; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub sets: Vec<String>,
}

impl RetrieveArgs {
    /// The configuration asked for.
    ///
    /// # Errors
    /// A file, key or value that is wrong.
    pub fn config(&self, global: &Global) -> Result<RunConfig> {
        RunConfig::load_layers(&self.configs, &global.with_threads(&self.sets))
    }
}

/// Ranks and writes.
pub fn retrieve(args: &RetrieveArgs, global: &Global) -> Result<()> {
    args.config(global)?.validate()?;
    Err(Error::work("retrieve is not wired yet"))
}
