//! What a client did, in counts.
//!
//! In: events of the client. Out: one record for manifest and report. Counts of waiting depend on timing and on the endpoint;
//! they never reach a row.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{FailureKind, LlmStatus};

/// Counts since the client was made, and those of the parts before of a resumed run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
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

impl Ledger {
    /// Adds the counts of another part.
    pub fn add(&mut self, other: &Self) {
        for (sum, n) in self.counts_mut().into_iter().zip(other.counts()) {
            *sum += n;
        }
        for (sums, counts) in self.maps_mut().into_iter().zip(other.maps()) {
            counts.iter().for_each(|(name, n)| *sums.entry(name.clone()).or_default() += n);
        }
        self.usd += other.usd;
    }

    /// What was counted since it stood at `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut since = self.clone();
        for (count, before) in since.counts_mut().into_iter().zip(earlier.counts()) {
            *count = count.saturating_sub(before);
        }
        for (counts, before) in since.maps_mut().into_iter().zip(earlier.maps()) {
            counts.iter_mut().for_each(|(name, n)| *n = n.saturating_sub(before.get(name).copied().unwrap_or(0)));
            counts.retain(|_, n| *n > 0);
        }
        since.usd = (since.usd - earlier.usd).max(0.0);
        since
    }

    fn counts(&self) -> [u64; 7] {
        [self.sent, self.cached, self.shared, self.paused_ms, self.slowed, self.prompts_maybe_cut, self.without_usage]
    }

    fn counts_mut(&mut self) -> [&mut u64; 7] {
        [
            &mut self.sent,
            &mut self.cached,
            &mut self.shared,
            &mut self.paused_ms,
            &mut self.slowed,
            &mut self.prompts_maybe_cut,
            &mut self.without_usage,
        ]
    }

    fn maps(&self) -> [&BTreeMap<String, u64>; 3] {
        [&self.answers, &self.retries, &self.failures]
    }

    fn maps_mut(&mut self) -> [&mut BTreeMap<String, u64>; 3] {
        [&mut self.answers, &mut self.retries, &mut self.failures]
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

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    fn ledger(n: u64) -> Ledger {
        let map = |name: &str| BTreeMap::from([(name.to_owned(), n)]);
        Ledger {
            sent: n,
            cached: n + 1,
            shared: n + 2,
            answers: map("ok"),
            retries: map(if n > 5 { "server" } else { "timeout" }),
            failures: map("refused"),
            paused_ms: n + 3,
            slowed: n + 4,
            prompts_maybe_cut: n + 5,
            without_usage: n + 6,
            usd: n as f64 / 4.0,
        }
    }

    #[test]
    fn parts_add_up_to_the_whole() {
        let (first, second) = (ledger(3), ledger(10));
        let mut whole = first.clone();
        whole.add(&second);
        assert_eq!((whole.sent, whole.without_usage, whole.usd), (13, 25, 3.25));
        assert_eq!(whole.answers, BTreeMap::from([("ok".to_owned(), 13)]));
        assert_eq!(whole.retries, BTreeMap::from([("server".to_owned(), 10), ("timeout".to_owned(), 3)]));
        assert_eq!(whole.since(&first), second);
        assert_eq!(whole.since(&whole), Ledger::default());
        let text = serde_json::to_string(&whole).unwrap();
        assert_eq!(serde_json::from_str::<Ledger>(&text).unwrap(), whole);
        // Every count reaches the manifest: 8 numbers and 4 of the maps.
        assert_eq!(whole.counters().len(), 12);
    }
}
