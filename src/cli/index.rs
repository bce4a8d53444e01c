//! `livingrag index`: a dataset folder becomes an index folder.
//!
//! In: a dataset folder, `index.*` and `backend.*` keys. Out: a versioned index folder; its path on standard output.

use std::path::{Path, PathBuf};

use clap::Args;

use super::{Global, output, session};
use crate::config::RunConfig;
use crate::dataset::Dataset;
use crate::index::{IndexOptions, build, files};
use crate::{Error, Result};

/// Builds the graph index of a dataset folder
///
/// Vectors that the folder lacks are computed by `index.encoder` and kept under `index.vectors`, so that nothing is encoded twice and
/// a broken-off command goes on where it was.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  livingrag index data/demo\n  \
                        livingrag index data/mine --out indexes/mine --set index.adjacent_passages=none\n  \
                        livingrag index data/mine --set index.encoder=models/all-MiniLM-L6-v2")]
pub struct IndexArgs {
    /// The dataset folder
    #[arg(value_name = "DATASET-DIR")]
    pub dataset: PathBuf,
    /// The index folder [default: results/indexes/<name>-<fingerprint>]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Sets an `index.…` or `backend.…` key of the configuration; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub sets: Vec<String>,
}

impl IndexArgs {
    /// The configuration asked for.
    ///
    /// # Errors
    /// A key or value that is wrong, or a key outside `[index]` and `[backend]`, which would change nothing.
    pub fn config(&self, global: &Global) -> Result<RunConfig> {
        let takes = |set: &&String| ["index.", "backend."].iter().any(|section| set.trim_start().starts_with(section));
        let foreign = self.sets.iter().find(|set| !takes(set));
        let config = RunConfig::load_layers::<PathBuf>(&[], &global.with_threads(&self.sets))?;
        match foreign {
            Some(set) => Err(Error::request(format!("--set {set} changes nothing in an index"))
                .with_hint("index takes the keys of [index] and [backend]")),
            None => Ok(config),
        }
    }
}

/// Builds the index.
pub fn index(args: &IndexArgs, global: &Global) -> Result<()> {
    let config = args.config(global)?;
    config.validate()?;
    let options = IndexOptions::from(&config.index);
    let dataset = Dataset::open(&args.dataset)?;
    for note in &dataset.notes {
        output::note(global.quiet, &format!("note: {}", note.text));
    }
    let built =
        session::with_supply(&config, false, global, |supply| build::build_with(&dataset, &options, Some(supply)))?;
    let folder = args.out.clone().unwrap_or_else(|| {
        Path::new("results/indexes").join(files::folder_name(&dataset.name, &built.meta.fingerprint))
    });
    files::write(&built, &folder)?;
    let meta = files::read_meta(&folder)?;
    for note in &meta.notes {
        output::warning(note);
    }
    output::note(global.quiet, &meta.summary());
    output::data(&folder.display().to_string())
}
