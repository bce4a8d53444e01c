//! `livingrag dataset`: what a dataset folder holds, and which texts of it need vectors.
//!
//! In: a dataset folder. Out: a description, or JSON lines, on standard output.

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use serde::Serialize;

use super::{Global, models, output};
use crate::Result;
use crate::config::RunConfig;
use crate::dataset::Dataset;
use crate::dataset::inspect::{self, Outlook};
use crate::experience::template::mask_question;
use crate::index::encoder::{DEFAULT_ENCODER, ModelEncoders};
use crate::index::vectors::encoder_of_files;
use crate::index::{IndexOptions, build};

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
fn inspect(args: &InspectArgs, _global: &Global) -> Result<()> {
    let dataset = Dataset::open(&args.dir)?;
    let encoder = encoder_of_files(&dataset.folder).unwrap_or_else(|| DEFAULT_ENCODER.to_owned());
    let measure = ModelEncoders::measure(&encoder);
    let missing = models::command(&encoder);
    let outlook = Outlook { name: &encoder, missing: missing.as_deref(), measure: measure.as_deref() };
    // A build without encoders makes no vectors.
    let outlook = Some(&outlook).filter(|_| cfg!(feature = "encoders"));
    output::data(&inspect::inspect_with(&dataset, outlook)?.to_string())
}

#[derive(Serialize)]
struct TextLine<'a> {
    kind: &'a str,
    text: &'a str,
}

/// Lists the texts: those of the index, then the masked questions.
fn texts(args: &TextsArgs, _global: &Global) -> Result<()> {
    let config = RunConfig::load_layers::<PathBuf>(&[], &args.sets)?;
    let dataset = Dataset::open(&args.dir)?;
    let texts = build::texts(&dataset, &IndexOptions::from(&config.index))?;
    let mut out = output::Data::stdout();
    let mut line = |kind: &str, text: &str| -> Result<()> {
        let json = serde_json::to_string(&TextLine { kind, text })
            .map_err(|e| crate::Error::work("cannot write a text as JSON").with_source(e))?;
        out.line(&json)
    };
    for (kind, text) in &texts.index {
        line(kind.as_str(), text)?;
    }
    let mut seen = BTreeSet::new();
    for (question, mentions) in dataset.questions.iter().zip(&texts.mentions) {
        let template = mask_question(&question.text, &mentions.entities);
        if seen.insert(template.clone()) {
            line("templates", &template)?;
        }
    }
    out.finish()
}
