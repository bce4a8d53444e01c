//! `livingrag retrieve`: base retrieval of every question, with its inner state.
//!
//! In: an index folder and `retrieve.*` keys. Out: a Parquet file with a row a question.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use clap::Args;

use super::progress::Progress;
use super::{Global, output};
use crate::backend::{self, Backend};
use crate::config::RunConfig;
use crate::index::files;
use crate::retrieve::recall::RecallSummary;
use crate::retrieve::{Prepared, export};
use crate::trace::row::RetrieveRow;
use crate::trace::writer;
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
        let takes =
            |set: &&String| ["retrieve.", "backend."].iter().any(|section| set.trim_start().starts_with(section));
        if let Some(set) = self.sets.iter().find(|set| !takes(set)) {
            // The key is checked first, so that a misspelt one is told as such.
            RunConfig::load_layers::<PathBuf>(&[], std::slice::from_ref(set))?;
            return Err(Error::request(format!("--set {set} changes nothing in base retrieval"))
                .with_hint("retrieve takes the keys of [retrieve] and [backend]; how the graph is built was settled by `livingrag index`"));
        }
        RunConfig::load_layers(&self.configs, &global.with_threads(&self.sets))
    }
}

/// Ranks and writes.
pub fn retrieve(args: &RetrieveArgs, global: &Global) -> Result<()> {
    let config = args.config(global)?;
    config.validate()?;
    if args.out.exists() {
        return Err(Error::request(format!("{} exists already", args.out.display()))
            .with_hint("remove it or choose another --out file"));
    }
    if let Some(folder) = args.out.parent().filter(|f| !f.as_os_str().is_empty() && !f.is_dir()) {
        return Err(Error::request(format!("--out {}: there is no folder {}", args.out.display(), folder.display()))
            .with_hint("make the folder first, or choose another --out file"));
    }
    if config.retrieve.length_b != 0.0 {
        return Err(Error::request("retrieve.length_b needs the passages' lengths, which an index does not hold")
            .with_hint("use `livingrag run` for length normalisation, or leave retrieve.length_b at 0"));
    }
    let index = Arc::new(files::open(&args.index)?);
    for note in &index.meta.notes {
        output::warning(note);
    }
    output::note(global.quiet, &index.meta.summary());
    let backend: Arc<dyn Backend> = Arc::from(backend::open(&config.backend)?);
    let started = Instant::now();
    let prepared = Prepared::new(index, backend, Vec::new())?;
    if let Some(plan) = prepared.plan() {
        output::note(global.quiet, &plan);
    }
    let n = prepared.index.questions.len();
    let bar = Progress::new("retrieve", n as u64, global.quiet);
    let rows = export::rows(&prepared, &config.retrieve, |done| bar.set(done as u64))?;
    bar.finish();
    let took = started.elapsed();
    if ranked_alike(&rows, prepared.index.meta.counts.passages) {
        output::warning("every question has the same ranking; the vectors are constant or of another encoder");
    }
    writer::write_rows(&args.out, &rows)?;
    let recall = RecallSummary::of(rows.iter().zip(&prepared.index.questions).filter_map(|(row, indexed)| {
        let gold = indexed.question.gold_passages.as_ref()?;
        Some((row.passages.iter().map(|p| p.passage).collect(), gold.iter().map(|p| p.0).collect()))
    }));
    output::note(
        global.quiet,
        &format!(
            "{n} questions in {:.3} s ({:.3} ms each, {} propagation){}",
            took.as_secs_f64(),
            took.as_secs_f64() * 1e3 / n.max(1) as f64,
            config.retrieve.propagation.as_str(),
            recall.map(|r| format!("\n{r}")).unwrap_or_default()
        ),
    );
    output::data(&args.out.display().to_string())
}

/// Whether different questions all have one ranking although there are passages to choose from.
fn ranked_alike(rows: &[RetrieveRow], passages: usize) -> bool {
    let ranking = |row: &RetrieveRow| row.passages.iter().map(|p| p.passage).collect::<Vec<_>>();
    passages > 1
        && rows.iter().any(|row| row.question != rows[0].question)
        && rows.iter().all(|row| ranking(row) == ranking(&rows[0]))
}
