//! Advances all runs of a dataset together, one block at a time (spec 5).
//!
//! With lag W, query t sees the experiences of queries <= t - W. A block of at most W queries therefore depends only on what was committed
//! before it: match, fuse and retrieve are one batch over runs × block, the readers are asked, then each run's candidates are gated and
//! committed in stream order. Rows do not depend on the block size, nor on which runs advance together.

use std::collections::BTreeSet;

use rayon::prelude::*;

use crate::replay::answer::answer;
use crate::replay::judging::judge;
use crate::replay::matching::{Step, match_block, retrieve};
use crate::replay::run::Run;
use crate::replay::session::Session;
use crate::replay::write_back::write_back;
use crate::{Error, Result};

/// How far the runs are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Advanced {
    /// Queries committed, over all runs.
    pub done: usize,
    /// Queries of all runs.
    pub total: usize,
}

/// A run that cannot go on. What it committed before stays in its journal.
#[derive(Debug)]
pub struct Failure {
    /// Its place among the runs.
    pub run: usize,
    /// Why.
    pub error: Error,
}

/// Computes the next block of every run that is neither finished nor failed; a run that fails does not stop the others. `None` when
/// there is nothing left to do.
///
/// # Errors
/// When the backend fails, which concerns every run: none of them commits the block.
pub fn advance_each(session: &Session, runs: &mut [Run]) -> Result<Option<(Advanced, Vec<Failure>)>> {
    let blocks: Vec<Vec<Step>> = runs
        .par_iter()
        .enumerate()
        .map(|(place, run)| match_block(session, run, place, run.next_block()))
        .collect::<Result<_>>()?;
    let mut steps: Vec<Step> = blocks.into_iter().flatten().collect();
    if steps.is_empty() {
        return Ok(None);
    }
    let retrievals = retrieve(session, runs, &mut steps)?;
    if let Some(first) = steps.first() {
        // Work shared by all runs is counted where the block's first query belongs.
        runs[first.run].count("fused_retrievals", retrievals);
    }
    let questions: BTreeSet<usize> = steps.iter().map(|step| step.question).collect();
    let (mut answered, mut failures) = answer(session, runs, steps);
    if let Err(error) = judge(session, runs, &mut answered) {
        // The judge's client is shared, so nothing tells whose answer it was: every judged run stops, the first with the error itself.
        let text = error.to_string();
        let mut error = Some(error);
        let judged: BTreeSet<usize> =
            answered.iter().map(|a| a.step.run).filter(|&run| runs[run].parts.judge.is_some()).collect();
        for &run in &judged {
            let error = error.take().unwrap_or_else(|| Error::work(text.clone()));
            failures.push(Failure { run, error });
        }
        answered.retain(|a| !judged.contains(&a.step.run));
    }
    if !failures.is_empty() {
        // What the unfinished block cost is written down; if even that fails, the first error is the one to tell.
        failures.iter().for_each(|failure| drop(runs[failure.run].journal_spent()));
    }
    for a in &answered {
        runs[a.step.run].count("requests", 1);
        runs[a.step.run].charge();
    }
    match write_back(session, runs, answered) {
        Ok(more) => failures.extend(more),
        Err(error) => {
            // Answers were paid for.
            runs.iter_mut().for_each(|run| drop(run.journal_spent()));
            return Err(error);
        }
    }
    for failure in &failures {
        runs[failure.run].fail();
    }
    for question in questions {
        if runs.iter().all(|run| run.has_passed(question)) {
            session.shared.release(question);
        }
    }
    let advanced = Advanced { done: runs.iter().map(Run::done).sum(), total: runs.iter().map(Run::total).sum() };
    Ok(Some((advanced, failures)))
}

/// Computes the next block of every unfinished run. `None` when all are finished.
///
/// # Errors
/// A reader, scorer or backend that cannot go on, or a disk that refuses; what was committed before stays in the journals.
pub fn advance(session: &Session, runs: &mut [Run]) -> Result<Option<Advanced>> {
    match advance_each(session, runs)? {
        Some((advanced, failures)) => match failures.into_iter().next() {
            Some(failure) => Err(failure.error),
            None => Ok(Some(advanced)),
        },
        None => Ok(None),
    }
}

/// Advances the runs until all are finished; `each_block` hears how far they are.
///
/// # Errors
/// As [`advance`].
pub fn replay(session: &Session, runs: &mut [Run], mut each_block: impl FnMut(Advanced)) -> Result<()> {
    while let Some(advanced) = advance(session, runs)? {
        each_block(advanced);
    }
    Ok(())
}
