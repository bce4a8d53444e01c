//! `livingrag cache`: what the caches hold, and moving it between machines.
//!
//! In: a cache's file, of chat answers or of grounding pairs; the file says which. Out: a listing on standard output, a file to take
//! along or to replay, or a changed cache.

#[cfg(any(feature = "encoders", feature = "llm"))]
mod pairs;
#[cfg(not(any(feature = "encoders", feature = "llm")))]
#[path = "pairs_disabled.rs"]
mod pairs;

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{ArgGroup, Args, Subcommand};

use super::{Global, output};
use crate::llm::{self, Cache, Selection};
use crate::{Error, Result};

/// Where runs keep answers unless told otherwise.
const ANSWERS: &str = "results/llm-cache.sqlite";
/// Where they keep the pairs of grounding models.
const PAIRS: &str = "results/nli-cache.sqlite";
const DAY: i64 = 86_400;

/// Looks after the kept answers of chat models and the scored pairs of grounding models
#[derive(Debug, Args)]
pub struct CacheArgs {
    #[command(subcommand)]
    command: CacheCommand,
}

#[derive(Debug, Subcommand)]
enum CacheCommand {
    Stats(StatsArgs),
    Export(ExportArgs),
    Import(ImportArgs),
    Prune(PruneArgs),
}

/// Which cache.
#[derive(Debug, Args)]
struct Which {
    /// The cache's file [default: results/llm-cache.sqlite, results/nli-cache.sqlite]
    #[arg(long, value_name = "FILE")]
    cache: Option<PathBuf>,
}

impl Which {
    /// The file named, or the one of answers.
    fn or_answers(&self) -> &Path {
        self.cache.as_deref().unwrap_or(Path::new(ANSWERS))
    }
}

/// Lists what is kept, by model and address or precision
///
/// Without --cache both default files are listed, as far as they are there.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  livingrag cache stats")]
struct StatsArgs {
    #[command(flatten)]
    which: Which,
}

/// Writes every kept answer to a Parquet file or to a recording that runs replay, or every scored pair to a copy of its cache
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  livingrag cache export answers.parquet\n  livingrag cache export --recorded answers.jsonl\n  \
                        livingrag cache export pairs.sqlite --cache results/nli-cache.sqlite\n\n\
                        A run replays a recording with generate.kind=recorded and generate.model=answers.jsonl, \
                        judgements with judge.kind=recorded."
)]
struct ExportArgs {
    /// The file to write; it must not be there
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Writes a recording (JSON lines) in place of Parquet
    #[arg(long)]
    recorded: bool,
    /// Only answers of this model
    #[arg(long, value_name = "NAME", requires = "recorded")]
    model: Option<String>,
    #[command(flatten)]
    which: Which,
}

/// Adds what exported files hold; what is already kept stays
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  livingrag cache import answers.parquet")]
struct ImportArgs {
    /// Files that export wrote
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    which: Which,
}

/// Removes the kept answers or pairs that meet every condition given
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  livingrag cache prune --older-than 90 --dry-run")]
#[command(group(ArgGroup::new("condition").args(["older_than", "model"]).required(true).multiple(true)))]
struct PruneArgs {
    /// Only what came more than this many days ago
    #[arg(long, value_name = "DAYS")]
    older_than: Option<u32>,
    /// Only what is of this model
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Counts them and removes none
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    which: Which,
}

/// Runs the subcommand.
pub fn cache(args: &CacheArgs, global: &Global) -> Result<()> {
    match &args.command {
        CacheCommand::Stats(args) => stats(args),
        CacheCommand::Export(args) => export(args, global),
        CacheCommand::Import(args) => import(args, global),
        CacheCommand::Prune(args) => prune(args, global),
    }
}

/// Tab-separated, one line a model and address.
fn stats(args: &StatsArgs) -> Result<()> {
    match &args.which.cache {
        Some(file) if pairs::is_one(file) => pairs::stats(file),
        Some(file) => answer_stats(file),
        None if !pairs::is_one(Path::new(PAIRS)) => answer_stats(Path::new(ANSWERS)),
        None => {
            if Path::new(ANSWERS).is_file() {
                answer_stats(Path::new(ANSWERS))?;
                output::data("")?;
            }
            pairs::stats(Path::new(PAIRS))
        }
    }
}

fn answer_stats(file: &Path) -> Result<()> {
    let stats = Cache::open_existing(file)?.stats()?;
    let mut out = output::Data::stdout();
    out.line("model\tbase_url\tanswers\twith_usage\tprompt_tokens\tcompletion_tokens\tmean_ms\toldest\tnewest")?;
    for m in &stats.models {
        out.line(&format!(
            "{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}",
            m.model,
            m.base_url,
            m.answers,
            m.with_usage,
            m.prompt_tokens,
            m.completion_tokens,
            m.elapsed_us / m.answers.max(1) / 1000,
            llm::iso_date(m.oldest),
            llm::iso_date(m.newest),
        ))?;
    }
    out.finish()
}

fn export(args: &ExportArgs, global: &Global) -> Result<()> {
    let cache = args.which.or_answers();
    if pairs::is_one(cache) {
        if args.recorded {
            return Err(Error::request(format!("{} holds grounding pairs, which no recording takes", cache.display()))
                .with_hint("name the cache of answers with --cache, or leave --recorded out"));
        }
        return pairs::export(cache, &args.file, global);
    }
    let cache = Cache::open_existing(cache)?;
    let answers = match args.recorded {
        true => llm::record(&cache, &args.file, args.model.as_deref())?,
        false => llm::export(&cache, &args.file)?,
    };
    output::note(global.quiet, &format!("{}: answers written: {answers}", args.file.display()));
    Ok(())
}

fn import(args: &ImportArgs, global: &Global) -> Result<()> {
    if let Some(file) = args.files.iter().find(|file| !file.is_file()) {
        // Before a cache is made for nothing.
        return Err(Error::request(format!("there is no file {}", file.display())));
    }
    if args.files.iter().any(|file| pairs::is_one(file)) {
        return pairs::import(args.which.cache.as_deref().unwrap_or(Path::new(PAIRS)), &args.files, global);
    }
    let cache = Cache::open(args.which.or_answers())?;
    for file in &args.files {
        let imported = llm::import(&cache, file)?;
        let kept = imported.rows - imported.added;
        output::note(
            global.quiet,
            &format!("{}: answers added: {}, already there: {kept}", file.display(), imported.added),
        );
    }
    Ok(())
}

fn prune(args: &PruneArgs, global: &Global) -> Result<()> {
    let now =
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| i64::try_from(d.as_secs()).unwrap_or(i64::MAX));
    let cache = args.which.or_answers();
    let created_before = args.older_than.map(|days| now - i64::from(days) * DAY);
    if pairs::is_one(cache) {
        return pairs::prune(cache, created_before, args.model.as_deref(), args.dry_run, global);
    }
    let selection = Selection { created_before, model: args.model.clone() };
    let pruned = Cache::open_existing(cache)?.prune(&selection, args.dry_run)?;
    let done = if args.dry_run { "that would be removed" } else { "removed" };
    output::note(global.quiet, &format!("answers {done}: {}", pruned.answers));
    if !args.dry_run && !pruned.shrunk {
        output::note(global.quiet, "the file keeps its size: another process is using it");
    }
    Ok(())
}
