//! `livingrag sweep`: many runs from one file, in step.
//!
//! In: `sweep.toml`, `--dataset`, `--set`. Out: `<out>/<name>/` with a folder a run and `sweep.json`; its path on standard output. With
//! `--dry-run` a table of what it would take, with `--slurm` a job script.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};

use super::progress::Progress;
use super::{Global, check_out_folder, endpoint, output, session};
use crate::replay::estimate::available_memory;
use crate::replay::memory::{Sizes, words};
use crate::replay::parts::PartsPool;
use crate::replay::{Run, Session};
use crate::report::table::{Column, Table, Value};
use crate::report::text;
use crate::sweep::estimate::{self, GroupEstimate};
use crate::sweep::ledger::{self, State};
use crate::sweep::manifest::{self, SweepManifest};
use crate::sweep::plan::dataset_argument;
use crate::sweep::shard::{Shard, fits};
use crate::sweep::work::{Planned, run_group};
use crate::sweep::{Group, Options, Outcome, Rerun, SweepFile, Watcher, plan, slurm, work};
use crate::{Error, Result};

/// Time between two plain lines of progress.
const EVERY: Duration = Duration::from_secs(60);

/// What is done again
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Again {
    /// Runs that failed, from their last commit on
    Failed,
    /// Every selected run, from the start
    All,
}

/// Does many runs: datasets x methods x orders x seeds x settings
///
/// All runs of a dataset advance together, and what is equal in several of them is done once; every run's files are those of the run
/// done alone. Processes that work in one results folder share the runs.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  livingrag sweep configs/sweeps/ablation.toml --dataset data/mine=configs/presets/musique.toml\n  \
                        livingrag sweep mine.toml --dry-run\n  livingrag sweep mine.toml --resume --rerun failed\n  \
                        livingrag sweep mine.toml --slurm 8 && sbatch results/mine.sbatch"
)]
pub struct SweepArgs {
    /// The sweep file
    #[arg(value_name = "SWEEP")]
    pub sweep: PathBuf,
    /// One more dataset, with its configuration files; may be repeated
    #[arg(long = "dataset", value_name = "DIR[=CONFIG,...]")]
    pub datasets: Vec<String>,
    /// Sets a key of every run's configuration; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub sets: Vec<String>,
    /// The folder that gets the sweep's folder
    #[arg(long, value_name = "DIR", default_value = "results")]
    pub out: PathBuf,
    /// Prints what the sweep would take, and ends
    #[arg(long)]
    pub dry_run: bool,
    /// Goes on with a sweep: finished runs are skipped, broken-off ones continue, failed ones are listed
    #[arg(long)]
    pub resume: bool,
    /// Does runs again
    #[arg(long, value_name = "WHICH")]
    pub rerun: Option<Again>,
    /// Only runs whose id holds this text, or fits this pattern with * and ?; may be repeated
    #[arg(long, value_name = "PATTERN")]
    pub only: Vec<String>,
    /// Only part I of N of the runs
    #[arg(long, value_name = "I/N")]
    pub shard: Option<String>,
    /// Runs that advance together at most; fewer lets several processes share one dataset
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub in_step: u32,
    /// Writes a Slurm array job of N tasks, and ends
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub slurm: Option<u32>,
}

/// A group with the places of its runs that are wanted.
type Selected = (Group, Vec<usize>);

/// Does the sweep.
pub fn sweep(args: &SweepArgs, global: &Global) -> Result<()> {
    check_out_folder(&args.out)?;
    let shard = args.shard.as_deref().map(str::parse::<Shard>).transpose()?;
    let file = SweepFile::read(&args.sweep)?;
    let datasets: Vec<_> = args.datasets.iter().map(|d| dataset_argument(d)).collect();
    let plan = plan(&file, &datasets, &global.with_threads(&args.sets))?;
    for note in &plan.notes {
        output::note(global.quiet, note);
    }
    if let Some(tasks) = args.slurm {
        return write_job(args, &plan.name, tasks as usize);
    }
    let folder = args.out.join(&plan.name);
    let mut pool = PartsPool::default();
    let mut groups: Vec<Group> = Vec::new();
    // What is missing is told before the first index is built.
    for run in plan.groups.iter().flat_map(|group| &group.runs) {
        pool.parts(&run.config)?;
    }
    for group in plan.groups {
        let Some(first) = group.runs.first() else { continue };
        let templates = group.runs.iter().any(|run| session::needs_templates(&run.config));
        let opened = session::open(&first.config, templates, &args.out, global)?;
        groups.push(Group::new(opened.dataset, opened.index, group.runs, &mut pool)?);
    }
    let entries: Vec<_> = groups.iter().flat_map(Group::entries).collect();
    for (i, entry) in entries.iter().enumerate() {
        if entries[..i].iter().any(|e| e.run_id == entry.run_id) {
            return Err(Error::request(format!("the sweep holds the run {} twice", entry.run_id))
                .with_hint("two of its datasets are the same data, or it varies a key that changes no row (threads, block, paths); name it once"));
        }
    }
    let sweep = SweepManifest::new(&plan.name, shard, entries);
    let selected = select(groups, shard, &args.only)?;
    let opened = |group: &Group| Sizes::of(&group.dataset, &group.index).opened();
    let all: u64 = selected.iter().map(|(group, _)| opened(group)).sum();
    let estimates: Vec<GroupEstimate> = selected
        .iter()
        .filter_map(|(group, places)| estimate::group(group, places, args.in_step as usize, all - opened(group)))
        .collect();
    if args.dry_run {
        output::data(&text::render(&estimate_table(&estimates)))?;
        return selected.into_iter().try_for_each(|(group, places)| quote(group, &places, global));
    }
    if !args.resume && args.rerun.is_none() {
        refuse_to_overwrite(&folder, &sweep)?;
    }
    check_memory(&estimates)?;
    for e in &estimates {
        output::note(
            global.quiet,
            &format!("{}: {} runs, about {} of memory", e.dataset, e.runs, words(e.memory_bytes)),
        );
    }
    if sweep.merge_into(&folder, shard, None)? {
        output::note(
            global.quiet,
            "the sweep has other runs than when it was begun; runs that it had before stay as they are",
        );
    }

    let options = Options {
        rerun: args.rerun.map(|a| match a {
            Again::Failed => Rerun::Failed,
            Again::All => Rerun::All,
        }),
        in_step: args.in_step as usize,
    };
    let mut outcome = Outcome::default();
    let wanted: usize = selected.iter().map(|(_, places)| places.len()).sum();
    for (group, places) in selected {
        let Some(&first) = places.first() else { continue };
        let backend = group.runs[first].plan.config.backend.clone();
        let mut watcher =
            Bar { quiet: global.quiet, global: global.clone(), bar: Arc::default(), began: (Instant::now(), 0) };
        let open = || session::open_backend(&backend);
        let part = run_group(&folder, group, &places, open, options, &mut watcher, &mut outcome)?;
        if part.is_some() {
            sweep.merge_into(&folder, shard, part)?;
        }
    }
    conclude(&folder, wanted, &outcome, global)
}

/// What the runs of a group will ask endpoints: calls new and cached, dollars, time. Nothing is asked.
fn quote(group: Group, places: &[usize], global: &Global) -> Result<()> {
    let asking: Vec<&Planned> =
        places.iter().map(|&i| &group.runs[i]).filter(|planned| planned.parts.endpoint.is_some()).collect();
    let Some(first) = asking.first() else { return Ok(()) };
    let backend = session::open_backend(&first.plan.config.backend)?;
    let session = Session::new(group.dataset, group.index, backend)?;
    let runs = asking.iter().map(|planned| Run::planned(&session, &planned.wanted.config, planned.parts.clone()));
    let mut runs: Vec<Run> = runs.collect::<Result<_>>()?;
    output::note(global.quiet, &format!("{}:", session.dataset.name));
    endpoint::prepare(&session, &mut runs, true, global)
}

/// Says what became of the runs.
fn conclude(folder: &Path, wanted: usize, outcome: &Outcome, global: &Global) -> Result<()> {
    let mut said = format!("{wanted} runs: {} finished", outcome.finished.len());
    for (count, what) in [
        (outcome.before, "finished before"),
        (outcome.elsewhere.len(), "in work by another process"),
        (outcome.failed.len(), "failed"),
    ] {
        if count > 0 {
            said.push_str(&format!(", {count} {what}"));
        }
    }
    output::note(global.quiet, &said);
    output::data(&folder.display().to_string())?;
    let Some(first) = outcome.failed.first() else { return Ok(()) };
    for failed in &outcome.failed {
        output::warning(&format!("{} failed after {} queries: {}", failed.run_id, failed.after, failed.error));
    }
    Err(Error::work(format!("{} of {wanted} runs failed, the first is {}", outcome.failed.len(), first.run_id))
        .with_hint("cure the cause, then: --resume --rerun failed"))
}

/// The runs that `--shard` and `--only` leave.
fn select(groups: Vec<Group>, shard: Option<Shard>, only: &[String]) -> Result<Vec<Selected>> {
    let all: usize = groups.iter().map(|g| g.runs.len()).sum();
    let range = shard.map_or(0..all, |s| s.range(all));
    let mut before = 0;
    let mut out = Vec::new();
    for group in groups {
        let n = group.runs.len();
        let wanted = |i: &usize| {
            let id = &group.runs[*i].plan.run_id;
            range.contains(&(before + i)) && (only.is_empty() || only.iter().any(|p| fits(p, id)))
        };
        let places: Vec<usize> = (0..n).filter(wanted).collect();
        before += n;
        out.push((group, places));
    }
    if !only.is_empty() && out.iter().all(|(_, places)| places.is_empty()) {
        return Err(Error::request(format!("--only {} fits none of the {all} runs", only.join(" --only ")))
            .with_hint("a run's id begins with dataset, method, order and seed, for example 2wiki-living-file-s0"));
    }
    Ok(out)
}

/// A sweep that is there already is only gone on with when that is asked for.
fn refuse_to_overwrite(folder: &Path, sweep: &SweepManifest) -> Result<()> {
    if !folder.is_dir() {
        return Ok(());
    }
    let (mut begun, mut finished) = (0, 0);
    for run in &sweep.runs {
        match ledger::state(&folder.join(&run.run_id))? {
            State::New => {}
            State::Finished => finished += 1,
            State::Begun | State::Failed(_) => begun += 1,
        }
    }
    if begun + finished == 0 && manifest::read_all(folder)?.is_empty() {
        return Ok(());
    }
    let all = sweep.runs.len();
    Err(Error::request(format!(
        "{} holds a sweep: {finished} of {all} runs are finished, {begun} begun",
        folder.display()
    ))
    .with_hint("go on with it: add --resume; do runs again: --rerun; or choose another --out folder"))
}

/// Refuses what will not fit: groups are done one after the other, but all are opened before.
fn check_memory(estimates: &[GroupEstimate]) -> Result<()> {
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    let Some(available) = available_memory() else { return Ok(()) };
    match estimates.iter().find(|e| e.memory_bytes > available) {
        Some(e) => Err(Error::request(format!(
            "the runs of {} need about {:.1} GiB of memory together and {:.1} GiB are available",
            e.dataset,
            gib(e.memory_bytes),
            gib(available)
        ))
        .with_hint("let fewer advance together with --in-step, or take fewer --threads")),
        None => Ok(()),
    }
}

fn estimate_table(estimates: &[GroupEstimate]) -> Table {
    let columns = vec![
        Column::words("dataset", "Dataset"),
        Column::numbers("runs", "Runs"),
        Column::numbers("queries", "Queries"),
        Column::numbers("calls", "Calls"),
        Column::numbers("distinct_calls", "of them distinct"),
        Column::numbers("prompt_tokens", "Prompt tokens (M)"),
        Column::numbers("completion_tokens", "Completion tokens (M)"),
        Column::numbers("usd", "Cost"),
        Column::numbers("memory", "Memory (MiB)"),
        Column::numbers("disk", "Disk (GiB)"),
    ];
    let mut table = Table::new("dry-run", "What the sweep will take at most", columns);
    let gib = |bytes: u64| Value::Number(bytes as f64 / f64::from(1 << 30), 2);
    for e in estimates {
        table.push(vec![
            Value::text(&e.dataset),
            Value::Count(e.runs as u64),
            Value::Count(e.queries as u64),
            Value::Count(e.calls as u64),
            Value::Count(e.distinct_calls as u64),
            Value::Number(e.prompt_tokens / 1e6, 2),
            Value::Number(e.completion_tokens / 1e6, 2),
            Value::Usd(e.usd),
            Value::Number(e.memory_bytes as f64 / f64::from(1 << 20), 0),
            gib(e.disk_bytes),
        ]);
    }
    if estimates.iter().all(|e| e.calls == 0) {
        table.note("No model is asked: the reader is simulated or recorded.");
    } else {
        table.note("Equal requests are asked once; how many store methods have in common is only known afterwards.");
    }
    table.note("Datasets are done one after the other; journals are removed as runs finish.");
    table
}

fn write_job(args: &SweepArgs, name: &str, tasks: usize) -> Result<()> {
    let here = std::env::current_dir().map_err(|e| Error::work("cannot find the working directory").with_source(e))?;
    let program = std::env::current_exe().map_err(|e| Error::work("cannot find this program").with_source(e))?;
    let mut arguments = vec!["sweep".to_owned(), args.sweep.display().to_string()];
    let mut option = |name: &str, value: &str| arguments.extend([name.to_owned(), value.to_owned()]);
    option("--out", &args.out.display().to_string());
    args.datasets.iter().for_each(|d| option("--dataset", d));
    args.sets.iter().for_each(|s| option("--set", s));
    args.only.iter().for_each(|o| option("--only", o));
    option("--in-step", &args.in_step.to_string());
    // Slurm does not make the folder of its logs, and without it a task fails without a word.
    let logs = here.join(&args.out).join(name).join("slurm");
    std::fs::create_dir_all(&logs).map_err(|e| Error::io("create", &logs, e))?;
    let job = slurm::Job { name, tasks, program: &program, directory: &here, arguments: &arguments, logs: &logs };
    let path = args.out.join(format!("{name}.sbatch"));
    crate::trace::atomic::write(&path, slurm::script(&job).as_bytes())?;
    output::data(&path.display().to_string())
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One bar a dataset.
struct Bar {
    quiet: bool,
    global: Global,
    /// Scorers tell it how far they are, so they share it.
    bar: Arc<Mutex<Option<Progress>>>,
    /// When the present runs began, and what was done then.
    began: (Instant, usize),
}

impl Watcher for Bar {
    fn note(&mut self, text: &str) {
        output::note(self.quiet, text);
    }

    fn before(&mut self, session: &Session, runs: &mut [Run]) -> Result<()> {
        for run in runs.iter() {
            let bar = Arc::clone(&self.bar);
            run.parts.grounding.watch(Box::new(move |done, of| {
                if let Some(bar) = locked(&bar).as_ref() {
                    bar.remark(format!(", grounding {done} of {of} pairs"));
                }
            }));
        }
        endpoint::prepare(session, runs, false, &self.global)
    }

    fn begin(&mut self, dataset: &str, progress: work::Progress) {
        self.began = (Instant::now(), progress.done);
        let bar = Progress::new(&format!("sweep {dataset}"), progress.total as u64, self.quiet);
        *locked(&self.bar) = Some(bar.long(progress.done as u64, EVERY));
    }

    fn at(&mut self, progress: work::Progress) {
        let bar = locked(&self.bar);
        let Some(bar) = bar.as_ref() else { return };
        let seconds = self.began.0.elapsed().as_secs_f64();
        let rate = (progress.done.saturating_sub(self.began.1)) as f64 / seconds.max(1e-9);
        let mut said = format!(", {rate:.0} queries a second");
        if progress.failed > 0 {
            said.push_str(&format!(", {} runs failed", progress.failed));
        }
        if progress.usd > 0.0 {
            said.push_str(&format!(", ${:.2}", progress.usd));
        }
        bar.remark(said);
        bar.set(progress.done as u64);
    }

    fn end(&mut self) {
        *locked(&self.bar) = None;
    }
}
