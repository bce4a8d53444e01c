//! What a client did, in counts.
//!
//! In: events of the client. Out: one record for manifest and report. Counts of waiting depend on timing and on the endpoint;
//! they never reach a row.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{FailureKind, LlmStatus};

/// Counts since the client was made.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Ledger {
    /// Requests that went out, every try counted.
    pub sent: u64,
    /// Calls answered from the cache.
    pub cached: u64,
    /// Calls that were given the answer of an equal call of the same batch.
    pub shared: u64,
    /// Answers by status: `ok`, `truncated`, `empty`, `error`; cached ones not counted.
    pub answers: BTreeMap<String, u64>,
    /// Retries by what went wrong before.
    pub retries: BTreeMap<String, u64>,
    /// Calls that were given up, by their last failure.
    pub failures: BTreeMap<String, u64>,
    /// Time spent in pauses, summed over calls, milliseconds.
    pub paused_ms: u64,
    /// How often the number of calls at a time was halved.
    pub slowed: u64,
    /// Answers whose prompt was probably cut.
    pub prompts_maybe_cut: u64,
    /// Answers without token counts.
    pub without_usage: u64,
    /// US dollars of new answers; counts that were not reported are estimated. 0 without a price.
    pub usd: f64,
}

/// What counts against caps.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Spent {
    /// Requests sent, every try counted.
    pub calls: u64,
    /// US dollars.
    pub usd: f64,
}

impl Spent {
    /// Adds to it.
    pub fn add(&mut self, other: Self) {
        self.calls += other.calls;
        self.usd += other.usd;
    }
}

impl Ledger {
    /// What counts against caps.
    pub fn spent(&self) -> Spent {
        Spent { calls: self.sent, usd: self.usd }
    }

    /// The counts by name, for a manifest; dollars as millionths.
    pub fn counters(&self) -> BTreeMap<String, u64> {
        let mut counters = BTreeMap::from([
            ("llm_requests_sent".to_owned(), self.sent),
            ("llm_calls_cached".to_owned(), self.cached),
            ("llm_calls_shared".to_owned(), self.shared),
            ("llm_paused_ms".to_owned(), self.paused_ms),
            ("llm_slowed".to_owned(), self.slowed),
            ("llm_prompts_maybe_cut".to_owned(), self.prompts_maybe_cut),
            ("llm_answers_without_usage".to_owned(), self.without_usage),
            ("llm_micro_usd".to_owned(), (self.usd * 1e6).round() as u64),
        ]);
        for (what, counts) in [("answers", &self.answers), ("retries", &self.retries), ("failures", &self.failures)] {
            counters.extend(counts.iter().map(|(name, n)| (format!("llm_{what}_{name}"), *n)));
        }
        counters
    }

    /// Retries of every kind.
    pub fn retried(&self) -> u64 {
        self.retries.values().sum()
    }

    pub(super) fn count_answer(&mut self, status: LlmStatus) {
        *self.answers.entry(status.as_str().to_owned()).or_default() += 1;
    }

    pub(super) fn count_failure(&mut self, kind: FailureKind) {
        *self.failures.entry(kind.as_str().to_owned()).or_default() += 1;
        self.count_answer(LlmStatus::Error);
    }

    pub(super) fn count_retry(&mut self, kind: FailureKind) {
        *self.retries.entry(kind.as_str().to_owned()).or_default() += 1;
    }
}
