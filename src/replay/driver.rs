//! Advances all runs of a dataset together, one block at a time (spec 5).
//!
//! With lag W, query t sees the experiences of queries <= t - W. A block of at most W queries therefore depends only on what was committed
//! before it: match, fuse and retrieve are one batch over runs × block, the readers are asked, then each run's candidates are gated and
//! committed in stream order. Rows do not depend on the block size, nor on which runs advance together.

use crate::Result;
use crate::replay::answer::answer;
use crate::replay::judging::judge;
use crate::replay::matching::{Step, match_block, retrieve};
use crate::replay::run::Run;
use crate::replay::session::Session;
use crate::replay::write_back::write_back;

/// How far the runs are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Advanced {
    /// Queries committed, over all runs.
    pub done: usize,
    /// Queries of all runs.
    pub total: usize,
}

/// Computes the next block of every unfinished run. `None` when all are finished.
///
/// # Errors
/// A reader or scorer that cannot go on, or a disk that refuses; what was committed before stays in the journals.
pub fn advance(session: &Session, runs: &mut [Run]) -> Result<Option<Advanced>> {
    let mut steps: Vec<Step> = Vec::new();
    for (place, run) in runs.iter().enumerate() {
        steps.extend(match_block(session, run, place, run.next_block()));
    }
    if steps.is_empty() {
        return Ok(None);
    }
    let retrievals = retrieve(session, runs, &mut steps);
    if let Some(first) = steps.first() {
        // Work shared by all runs is counted where the block's first query belongs.
        runs[first.run].count("fused_retrievals", retrievals);
    }
    let asked =
        answer(session, runs, steps).and_then(|mut answered| judge(session, runs, &mut answered).map(|()| answered));
    let answered = match asked {
        Ok(answered) => answered,
        Err(error) => {
            // What the unfinished block cost is written down; if even that fails, the first error is the one to tell.
            runs.iter_mut().for_each(|run| drop(run.journal_spent()));
            return Err(error);
        }
    };
    for a in &answered {
        runs[a.step.run].count("requests", 1);
        runs[a.step.run].charge();
    }
    write_back(session, runs, answered)?;
    Ok(Some(Advanced { done: runs.iter().map(Run::done).sum(), total: runs.iter().map(Run::total).sum() }))
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
