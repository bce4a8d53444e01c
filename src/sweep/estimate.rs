//! What a sweep will take, before it starts.
//!
//! In: opened groups. Out: per dataset runs, queries, reader calls, tokens, dollars, memory and disk. Calls are given twice: what the runs
//! ask for, and what is left when equal requests are asked once, as far as that is known beforehand: a method without a store asks the
//! same in every order.

use std::collections::{BTreeMap, BTreeSet};

use super::work::{Group, Planned};
use crate::replay::estimate::{Estimate, estimate};
use crate::replay::memory::{Sizes, Together, peak_so_far, process_bytes};

/// Bytes of a finished row in traces and experiences: 360 to 2,500 with the simulated reader, which says less than a model.
const FINISHED_ROW: u64 = 3_000;
/// Bytes of a row in a journal: 2,800 to 5,100 with the simulated reader.
const JOURNAL_ROW: u64 = 9_000;
/// One dataset of a sweep.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupEstimate {
    /// The dataset's name.
    pub dataset: String,
    /// Runs to do.
    pub runs: usize,
    /// Their queries.
    pub queries: usize,
    /// Reader calls that the runs ask for; 0 when no model is asked.
    pub calls: usize,
    /// Calls at most when equal requests are asked once.
    pub distinct_calls: usize,
    /// Prompt tokens of the distinct calls.
    pub prompt_tokens: f64,
    /// Completion tokens of the distinct calls.
    pub completion_tokens: f64,
    /// Dollars of the distinct calls.
    pub usd: f64,
    /// Bytes of memory that the whole process takes at its fullest while it does these runs.
    pub memory_bytes: u64,
    /// Bytes on disk at most, journals of all runs included.
    pub disk_bytes: u64,
}

/// Estimates the `selected` runs of a group; `None` when none is selected. At most `in_step` runs advance together; `beside` is what other
/// groups take that are open meanwhile.
pub fn group(group: &Group, selected: &[usize], in_step: usize, beside: u64) -> Option<GroupEstimate> {
    let sizes = Sizes::of(&group.dataset, &group.index);
    let runs: Vec<&Planned> = selected.iter().map(|&i| &group.runs[i]).collect();
    let passages = &group.dataset.passages;
    let mean = passages.iter().map(|p| p.text.len()).sum::<usize>() as f64 / passages.len().max(1) as f64;
    let threads = |run: &Planned| match run.plan.config.backend.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        n => n as usize,
    };
    let of = |run: &Planned| -> Estimate { estimate(&run.plan.config, &sizes, mean, run.parts.asks(), threads(run)) };
    let orders: BTreeSet<_> = runs.iter().map(|r| (&r.plan.config.order, r.plan.config.replay.limit)).collect();
    let together = Together {
        runs: runs.len().min(in_step.max(1)) as u64,
        orders: orders.len() as u64,
        queries: runs.iter().map(|r| r.queries).max().unwrap_or(0) as u64,
    };
    // The run with the most to do stands for all.
    let bytes = |run: &&Planned| process_bytes(&run.plan.config, &sizes, threads(run) as u64, together);
    // Runs with the same grounding model share it.
    let models: BTreeMap<&str, u64> =
        runs.iter().map(|run| (run.parts.entailment_key.as_str(), run.parts.grounding_bytes)).collect();
    let memory = beside + runs.iter().map(bytes).max()? + models.values().sum::<u64>();
    let mut out = GroupEstimate {
        dataset: group.dataset.name.clone(),
        runs: runs.len(),
        queries: 0,
        calls: 0,
        distinct_calls: 0,
        prompt_tokens: 0.0,
        completion_tokens: 0.0,
        usd: 0.0,
        memory_bytes: memory.max(peak_so_far().unwrap_or(0)),
        disk_bytes: 0,
    };
    let mut known = BTreeSet::new();
    for run in &runs {
        let (e, config) = (of(run), &run.plan.config);
        out.queries += e.queries;
        out.calls += e.calls;
        let asks = (config.method, &config.retrieve, &run.parts.reader_key, run.parts.prompt.hash(), e.queries);
        if config.method.has_store() || known.insert(format!("{asks:?}")) {
            out.distinct_calls += e.calls;
            out.prompt_tokens += e.prompt_tokens;
            out.completion_tokens += e.completion_tokens;
            out.usd += e.usd;
        }
        out.disk_bytes += e.queries as u64 * (FINISHED_ROW + JOURNAL_ROW);
    }
    Some(out)
}
