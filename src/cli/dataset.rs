//! `livingrag dataset`: what a dataset folder holds, and which texts of it need vectors.
//!
//! In: a dataset folder. Out: a description, or JSON lines, on standard output.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Global;
use crate::config::RunConfig;
use crate::{Error, Result};

/// Looks into a dataset folder
#[derive(Debug, Args)]
pub struct DatasetArgs {
    #[command(subcommand)]
    command: DatasetCommand,
}

#[derive(Debug, Subcommand)]
enum DatasetCommand {
    Inspect(InspectArgs),
    Texts(TextsArgs),
}

/// Says what a dataset is and what is odd about it
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  livingrag dataset inspect data/demo")]
pub struct InspectArgs {
    /// The dataset folder
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}

/// Prints every text an index needs a vector for, as JSON lines {kind, text}
///
/// Kinds are passages, sentences, entities, questions, question_entities and templates. Encode the texts with any encoder and
/// write one embeddings/<kind>.parquet each; docs/datasets.md shows how.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  livingrag dataset texts data/mine > texts.jsonl")]
pub struct TextsArgs {
    /// The dataset folder
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Sets an `index.…` key of the configuration; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub sets: Vec<String>,
}

/// Runs the subcommand.
pub fn dataset(args: &DatasetArgs, global: &Global) -> Result<()> {
    match &args.command {
        DatasetCommand::Inspect(args) => inspect(args, global),
        DatasetCommand::Texts(args) => texts(args, global),
    }
}

/// Describes the dataset.
fn inspect(_args: &InspectArgs, _global: &Global) -> Result<()> {
    Err(Error::work("dataset inspect is not wired yet"))
}

/// Lists the texts.
fn texts(args: &TextsArgs, _global: &Global) -> Result<()> {
    let _config = RunConfig::load_layers::<PathBuf>(&[], &args.sets)?;
    Err(Error::work("dataset texts is not wired yet"))
}
