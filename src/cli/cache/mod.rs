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

/// What a file keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    Answers,
    Pairs,
}

/// The file named, or the default ones that are there; never none.
fn files(named: Option<&Path>) -> Result<Vec<(Kept, &Path)>> {
    if let Some(file) = named {
        return Ok(vec![(if pairs::is_one(file) { Kept::Pairs } else { Kept::Answers }, file)]);
    }
    let mut there = vec![(Kept::Answers, Path::new(ANSWERS)), (Kept::Pairs, Path::new(PAIRS))];
    there.retain(|(_, file)| file.is_file());
    if there.is_empty() {
        return Err(Error::request(format!("there is no cache at {ANSWERS} or {PAIRS}")).with_hint(
            "a run with a chat endpoint makes the first, one with gates.grounding.kind = \"nli\" the second; \
             name another with --cache",
        ));
    }
    Ok(there)
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
    /// The cache's file [default: results/llm-cache.sqlite, or where it is not there results/nli-cache.sqlite]
    #[arg(long, value_name = "FILE")]
    cache: Option<PathBuf>,
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
    for (place, (kept, file)) in files(args.which.cache.as_deref())?.into_iter().enumerate() {
        if place > 0 {
            output::data("")?;
        }
        match kept {
            Kept::Answers => answer_stats(file)?,
            Kept::Pairs => pairs::stats(file)?,
        }
    }
    Ok(())
}

fn answer_stats(file: &Path) -> Result<()> {
    let stats = Cache::open_to_read(file)?.stats()?;
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
    let files = files(args.cache.as_deref())?;
    let (kept, cache) = files[0];
    match kept {
        Kept::Pairs if args.recorded => {
            return Err(Error::request(format!("{} holds grounding pairs, which no recording takes", cache.display()))
                .with_hint("name the cache of answers with --cache, or leave --recorded out"));
        }
        Kept::Pairs => pairs::export(cache, &args.file, global)?,
        Kept::Answers => {
            let cache = Cache::open_to_read(cache)?;
            let answers = match args.recorded {
                true => llm::record(&cache, &args.file, args.model.as_deref())?,
                false => llm::export(&cache, &args.file)?,
            };
            output::note(global.quiet, &format!("{}: answers written: {answers}", args.file.display()));
        }
    }
    // A recording is of answers; of an export one may think that it is everything.
    for (_, other) in files[1..].iter().filter(|_| !args.recorded) {
        let other = other.display();
        output::note(global.quiet, &format!("{other} is left out; export it with --cache {other}"));
    }
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
    for file in &args.files {
        // Before a cache is made for nothing, or one file is added and the next is not.
        llm::check_import(file)?;
    }
    let cache = Cache::open(args.which.cache.as_deref().unwrap_or(Path::new(ANSWERS)))?;
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
    let created_before = args.older_than.map(|days| now - i64::from(days) * DAY);
    for (kept, file) in files(args.which.cache.as_deref())? {
        match kept {
            Kept::Answers => prune_answers(file, created_before, args, global)?,
            Kept::Pairs => pairs::prune(file, created_before, args.model.as_deref(), args.dry_run, global)?,
        }
    }
    Ok(())
}

fn prune_answers(file: &Path, created_before: Option<i64>, args: &PruneArgs, global: &Global) -> Result<()> {
    let selection = Selection { created_before, model: args.model.clone() };
    let pruned = Cache::open_existing(file)?.prune(&selection, args.dry_run)?;
    let done = if args.dry_run { "that would be removed" } else { "removed" };
    output::note(global.quiet, &format!("answers {done}: {}", pruned.answers));
    if !args.dry_run && !pruned.shrunk {
        output::note(global.quiet, "the file keeps its size: another process is using it");
    }
    Ok(())
}
