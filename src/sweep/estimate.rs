//! What a sweep will take, before it starts.
//!
//! In: opened groups. Out: per dataset runs, queries, reader calls, tokens, dollars, memory and disk. Calls are given twice: what the runs
//! ask for, and what is left when equal requests are asked once, as far as that is known beforehand: a method without a store asks the
//! same in every order.

use std::collections::{BTreeMap, BTreeSet};

use super::work::{Group, Planned};
use crate::replay::estimate::{Estimate, estimate};

/// Bytes of a finished row in traces and experiences: 360 to 2,500 with the simulated reader, which says less than a model.
const FINISHED_ROW: u64 = 3_000;
/// Bytes of a row in a journal: 2,800 to 5,100 with the simulated reader.
const JOURNAL_ROW: u64 = 9_000;
/// Bytes that a query adds to a run's memory when it is stored: activation map, postings, summary, answer (measured: 700 to 1,600).
const STORED_EXPERIENCE: u64 = 2_500;

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
    /// Bytes of memory at most.
    pub memory_bytes: u64,
    /// Bytes on disk at most, journals of all runs included.
    pub disk_bytes: u64,
}

/// Estimates the `selected` runs of a group; `None` when none is selected. At most `in_step` runs advance together.
pub fn group(group: &Group, selected: &[usize], in_step: usize) -> Option<GroupEstimate> {
    let runs: Vec<&Planned> = selected.iter().map(|&i| &group.runs[i]).collect();
    let passages = &group.dataset.passages;
    let mean = passages.iter().map(|p| p.text.len()).sum::<usize>() as f64 / passages.len().max(1) as f64;
    let of = |run: &Planned| -> Estimate {
        let config = &run.plan.config;
        let threads = match config.backend.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            n => n as usize,
        };
        estimate(config, &group.index.meta, mean, run.parts.asks(), threads)
    };
    let mut out = GroupEstimate {
        dataset: group.dataset.name.clone(),
        runs: runs.len(),
        queries: 0,
        calls: 0,
        distinct_calls: 0,
        prompt_tokens: 0.0,
        completion_tokens: 0.0,
        usd: 0.0,
        memory_bytes: of(runs.first()?).memory_bytes,
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
    let most = runs.iter().map(|r| r.queries).max().unwrap_or(0) as u64;
    let beside = runs.len().min(in_step.max(1)).saturating_sub(1) as u64;
    out.memory_bytes += beside * most * STORED_EXPERIENCE;
    // Runs with the same grounding model share it.
    let models: BTreeMap<&str, u64> =
        runs.iter().map(|r| (r.parts.entailment_key.as_str(), r.parts.grounding_bytes)).collect();
    out.memory_bytes += models.values().sum::<u64>();
    Some(out)
}
