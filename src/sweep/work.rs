//! Does the runs of one dataset, all that this process can claim, in step.
//!
//! In: a dataset with its index, and runs. Out: their folders. What is finished is skipped, what was broken off goes on where it was, what
//! fails is written down and stops nobody else, what another process is doing is left to it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use rayon::prelude::*;

use super::file::Settings;
use super::ledger::{self, Claim, Failed, State};
use super::manifest::{GroupWork, RunEntry};
use super::plan::Wanted;
use crate::Result;
use crate::backend::Backend;
use crate::config::RunPlan;
use crate::dataset::Dataset;
use crate::index::Index;
use crate::replay::driver::advance_each;
use crate::replay::parts::PartsPool;
use crate::replay::{Opened, Parts, Run, Session, plan_of};

/// One run with everything it needs.
pub struct Planned {
    /// Its plan.
    pub plan: RunPlan,
    /// Its configuration as asked for.
    pub wanted: Wanted,
    /// Reader, scorer, prompt.
    pub parts: Parts,
    /// Queries of its stream.
    pub queries: usize,
}

/// Runs that share a dataset and an index, opened.
pub struct Group {
    /// Questions and passages.
    pub dataset: Dataset,
    /// The index.
    pub index: Arc<Index>,
    /// Its runs, in the order of the plan.
    pub runs: Vec<Planned>,
}

impl Group {
    /// Names the runs of a group.
    ///
    /// # Errors
    /// A prompt or recording that cannot be read, a configuration that cannot run.
    pub fn new(dataset: Dataset, index: Arc<Index>, wanted: Vec<Wanted>, pool: &mut PartsPool) -> Result<Self> {
        let runs = wanted.into_iter().map(|wanted| {
            let parts = pool.parts(&wanted.config)?;
            let plan = plan_of(&dataset.name, &index.meta.fingerprint, &wanted.config, &parts)?;
            let limit = wanted.config.replay.limit as usize;
            let all = dataset.questions.len();
            Ok(Planned { plan, wanted, parts, queries: if limit == 0 { all } else { limit.min(all) } })
        });
        let runs = runs.collect::<Result<Vec<_>>>()?;
        Ok(Self { dataset, index, runs })
    }

    /// The runs for the sweep's manifest.
    pub fn entries(&self) -> impl Iterator<Item = RunEntry> {
        self.runs.iter().map(|run| RunEntry {
            run_id: run.plan.run_id.clone(),
            dataset: self.dataset.name.clone(),
            method: run.plan.config.method.as_str().into(),
            order: run.plan.config.order.clone(),
            seed: run.plan.config.seed,
            queries: run.queries,
            changed: named(&run.wanted.changed),
        })
    }
}

fn named(settings: &Settings) -> std::collections::BTreeMap<String, String> {
    settings.iter().map(|(key, value)| (key.clone(), value.to_string())).collect()
}

/// What is done again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rerun {
    /// Runs that failed, from their last commit on.
    Failed,
    /// Every run that is selected, from the start.
    All,
}

/// How runs are done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// What is done again.
    pub rerun: Option<Rerun>,
    /// Runs that advance together at most.
    pub in_step: usize,
}

/// How far a group is.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Progress {
    /// Queries committed.
    pub done: usize,
    /// Queries of the runs that this process does.
    pub total: usize,
    /// Runs that failed.
    pub failed: usize,
    /// Dollars spent by this process.
    pub usd: f64,
}

/// Hears what happens.
pub trait Watcher {
    /// Something a user should know.
    fn note(&mut self, text: &str);
    /// Opened runs are about to be advanced: the last moment to quote, to probe an endpoint, or to refuse.
    ///
    /// # Errors
    /// What makes the sweep stop before these runs begin.
    fn before(&mut self, _session: &Session, _runs: &mut [Run]) -> Result<()> {
        Ok(())
    }
    /// Runs of a dataset begin, or more of them were claimed.
    fn begin(&mut self, dataset: &str, progress: Progress);
    /// A block is committed.
    fn at(&mut self, progress: Progress);
    /// Nothing of the dataset is left.
    fn end(&mut self);
}

/// What became of the runs.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Runs finished now.
    pub finished: Vec<PathBuf>,
    /// Runs that were finished before.
    pub before: usize,
    /// Runs that failed, now or before.
    pub failed: Vec<Failed>,
    /// Runs that another process is doing.
    pub elsewhere: Vec<String>,
}

/// Runs that advance together, each with its claim at the same place.
#[derive(Default)]
struct Active {
    runs: Vec<Run>,
    claims: Vec<Claim>,
}

impl Active {
    fn take(&mut self, place: usize) -> (Run, Claim) {
        (self.runs.remove(place), self.claims.remove(place))
    }
}

/// Does the `selected` runs of a group under `folder`. The work done is returned where any was.
///
/// # Errors
/// What concerns the whole folder or dataset: a disk that refuses, a backend that cannot take the index or fails.
pub fn run_group(
    folder: &Path,
    group: Group,
    selected: &[usize],
    backend: impl FnOnce() -> Result<Arc<dyn Backend>>,
    options: Options,
    watcher: &mut dyn Watcher,
    outcome: &mut Outcome,
) -> Result<Option<GroupWork>> {
    let name = group.dataset.name.clone();
    let index = group.index.meta.fingerprint.clone();
    let mut todo: Vec<&Planned> = Vec::new();
    for &i in selected {
        let planned = &group.runs[i];
        let run_folder = folder.join(&planned.plan.run_id);
        match ledger::state(&run_folder)? {
            State::Finished if options.rerun != Some(Rerun::All) => {
                ledger::tidy_finished(&run_folder)?;
                outcome.before += 1;
            }
            State::Failed(failed) if options.rerun.is_none() => outcome.failed.push(failed),
            _ => todo.push(planned),
        }
    }
    let mut todo = todo.into_iter();
    let mut waiting = claim_some(folder, &mut todo, options, outcome)?;
    if waiting.is_empty() {
        return Ok(None);
    }
    let started = Instant::now();
    let session = Session::new(group.dataset, group.index, backend()?)?;
    let mut part = GroupWork {
        dataset: name.clone(),
        index,
        runs: Vec::new(),
        resumed_queries: 0,
        store_bytes: 0,
        seconds: 0.0,
        work: crate::replay::shared::Work::default(),
    };
    let mut progress = Progress::default();
    while !waiting.is_empty() {
        let mut active = Active::default();
        for (planned, claim) in waiting {
            let run_folder = folder.join(&planned.plan.run_id);
            if options.rerun == Some(Rerun::All) {
                ledger::remove_run(&run_folder)?;
            }
            ledger::forget_failed(&run_folder)?;
            match Run::open(&session, &planned.wanted.config, planned.parts.clone(), folder, true) {
                Ok(Opened::Finished(path)) => outcome.finished.push(path),
                Ok(Opened::Ready(run)) => {
                    for note in &run.notes {
                        watcher.note(note);
                    }
                    if run.done() > 0 {
                        watcher.note(&format!("{}: going on after {} queries", run.plan.run_id, run.done()));
                    }
                    part.runs.push(run.plan.run_id.clone());
                    part.resumed_queries += run.done();
                    progress.done += run.done();
                    progress.total += run.total();
                    active.runs.push(*run);
                    active.claims.push(claim);
                }
                Err(error) => {
                    progress.failed += 1;
                    failed(&run_folder, &planned.plan.run_id, 0, &error, watcher, outcome)?;
                }
            }
        }
        if let Err(error) = watcher.before(&session, &mut active.runs) {
            active.runs.into_iter().for_each(Run::discard);
            return Err(error);
        }
        watcher.begin(&name, progress);
        advance_all(&session, active, &mut part, &mut progress, watcher, outcome)?;
        waiting = claim_some(folder, &mut todo, options, outcome)?;
    }
    watcher.end();
    part.seconds = started.elapsed().as_secs_f64();
    part.work = session.work();
    Ok(Some(part))
}

/// Claims the next runs that nobody else is doing, at most as many as advance together.
fn claim_some<'g>(
    folder: &Path,
    todo: &mut impl Iterator<Item = &'g Planned>,
    options: Options,
    outcome: &mut Outcome,
) -> Result<Vec<(&'g Planned, Claim)>> {
    let mut claimed = Vec::new();
    while claimed.len() < options.in_step.max(1) {
        let Some(planned) = todo.next() else { break };
        let id = &planned.plan.run_id;
        let Some(claim) = ledger::claim(folder, id)? else {
            outcome.elsewhere.push(id.clone());
            continue;
        };
        // Another process may have ended it since the list was made.
        match ledger::state(&folder.join(id))? {
            State::Finished if options.rerun != Some(Rerun::All) => outcome.before += 1,
            State::Failed(failed) if options.rerun.is_none() => outcome.failed.push(failed),
            _ if ledger::journal_in_use(&folder.join(id))? => outcome.elsewhere.push(id.clone()),
            _ => claimed.push((planned, claim)),
        }
    }
    Ok(claimed)
}

/// Advances runs until each is finished or has failed.
fn advance_all(
    session: &Session,
    mut active: Active,
    part: &mut GroupWork,
    progress: &mut Progress,
    watcher: &mut dyn Watcher,
    outcome: &mut Outcome,
) -> Result<()> {
    let before = progress.done - active.runs.iter().map(Run::done).sum::<usize>();
    let mut ended = 0;
    loop {
        // A run that was broken off between its last commit and its files has nothing to advance.
        ended += finish(session, &mut active, part, progress, watcher, outcome)?;
        let Some((_, mut failures)) = advance_each(session, &mut active.runs)? else { break };
        failures.sort_by_key(|failure| std::cmp::Reverse(failure.run));
        failures.dedup_by_key(|failure| failure.run);
        for failure in failures {
            let (run, _claim) = active.take(failure.run);
            progress.failed += 1;
            progress.total -= run.total() - run.done();
            ended += run.done();
            failed(&run.folder, &run.plan.run_id, run.done(), &failure.error, watcher, outcome)?;
        }
        progress.done = before + ended + active.runs.iter().map(Run::done).sum::<usize>();
        progress.usd = session.work().usd;
        watcher.at(*progress);
    }
    Ok(())
}

/// Writes the files of the runs that are done, and lets go of them. Returns their queries.
fn finish(
    session: &Session,
    active: &mut Active,
    part: &mut GroupWork,
    progress: &mut Progress,
    watcher: &mut dyn Watcher,
    outcome: &mut Outcome,
) -> Result<usize> {
    let mut done: Vec<(Run, Claim)> = Vec::new();
    for place in (0..active.runs.len()).rev().filter(|&i| active.runs[i].is_done()).collect::<Vec<_>>() {
        done.push(active.take(place));
    }
    done.reverse();
    let written: Vec<_> = done
        .into_par_iter()
        .map(|(run, claim)| {
            let (id, folder) = (run.plan.run_id.clone(), run.folder.clone());
            let (total, store_bytes) = (run.total(), run.store_bytes());
            (id, folder, total, store_bytes, run.finish(session), claim)
        })
        .collect();
    let mut queries = 0;
    for (id, folder, total, store_bytes, result, _claim) in written {
        queries += total;
        part.store_bytes += store_bytes;
        match result {
            Ok(path) => outcome.finished.push(path),
            Err(error) => {
                progress.failed += 1;
                failed(&folder, &id, total, &error, watcher, outcome)?;
            }
        }
    }
    Ok(queries)
}

/// Writes down a failure and tells of it.
fn failed(
    folder: &Path,
    run_id: &str,
    after: usize,
    error: &crate::Error,
    watcher: &mut dyn Watcher,
    outcome: &mut Outcome,
) -> Result<()> {
    let failed = Failed { run_id: run_id.into(), after, error: error.report() };
    watcher.note(&format!("{run_id} failed after {after} queries: {}", failed.error));
    ledger::write_failed(folder, &failed)?;
    outcome.failed.push(failed);
    Ok(())
}
