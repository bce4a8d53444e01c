//! What a run will take, before it starts: memory, reader calls, tokens, dollars.

use std::fmt;

use crate::config::RunConfig;
use crate::index::IndexMeta;
use crate::retrieve::prepared::SIMILARITY_CACHE_BYTES;
use crate::{Error, Result};

/// Mean answer length assumed before anything was asked (table 3's order of magnitude), tokens.
const ASSUMED_COMPLETION_TOKENS: f64 = 1000.0;
/// Characters a token, for passages.
const CHARACTERS_PER_TOKEN: f64 = 4.0;

/// An estimate; counts are upper bounds where a bound is known.
#[derive(Debug, Clone, PartialEq)]
pub struct Estimate {
    /// Queries of the stream.
    pub queries: usize,
    /// Reader calls, 0 when nothing is asked.
    pub calls: usize,
    /// Prompt tokens of all calls.
    pub prompt_tokens: f64,
    /// Completion tokens of all calls.
    pub completion_tokens: f64,
    /// Dollars of all calls.
    pub usd: f64,
    /// Bytes of memory at most.
    pub memory_bytes: u64,
}

/// Estimates one run.
pub fn estimate(
    config: &RunConfig,
    meta: &IndexMeta,
    mean_passage_characters: f64,
    asks_a_model: bool,
    threads: usize,
) -> Estimate {
    let c = &meta.counts;
    let limit = if config.replay.limit == 0 { c.questions } else { c.questions.min(config.replay.limit as usize) };
    let calls = if asks_a_model { limit } else { 0 };
    let prompt = f64::from(config.retrieve.top_k) * mean_passage_characters / CHARACTERS_PER_TOKEN + 200.0;
    let completion = ASSUMED_COMPLETION_TOKENS.min(f64::from(config.generate.max_tokens));
    let (prompt_tokens, completion_tokens) = (calls as f64 * prompt, calls as f64 * completion);
    let nodes = c.entities + c.passages;
    let vectors =
        (c.passages + c.sentences + c.entities + c.questions + c.question_entities + c.templates) * meta.dim * 4;
    let graph = c.edges * 2 * (12 + 8) + c.occurrences * 12;
    let similarities = (c.questions * c.passages * 4).min(SIMILARITY_CACHE_BYTES);
    let workspaces = threads * (nodes * 16 * 4 * 2 + c.entities * 64 + c.sentences * 16);
    // Per query: its row in the journal's replay at the end, its base ranking, its experience if it is stored.
    let per_query = limit * 40_000;
    Estimate {
        queries: limit,
        calls,
        prompt_tokens,
        completion_tokens,
        usd: (prompt_tokens * config.generate.usd_per_million_prompt
            + completion_tokens * config.generate.usd_per_million_completion)
            / 1e6,
        memory_bytes: (vectors + graph + similarities + workspaces + per_query) as u64 + (64 << 20),
    }
}

impl Estimate {
    /// Refuses work that will not fit.
    ///
    /// # Errors
    /// When more memory is needed than is available.
    pub fn check_memory(&self, available: Option<u64>) -> Result<()> {
        match available {
            Some(available) if self.memory_bytes > available => Err(Error::request(format!(
                "the run needs about {:.1} GiB of memory and {:.1} GiB are available",
                gib(self.memory_bytes),
                gib(available)
            ))
            .with_hint("free memory, use a smaller corpus, or take fewer --threads")),
            _ => Ok(()),
        }
    }
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} queries, at most {:.2} GiB of memory", self.queries, gib(self.memory_bytes))?;
        if self.calls == 0 {
            return Ok(());
        }
        write!(
            f,
            ", {} calls, about {:.2} M prompt and {:.2} M completion tokens, about ${:.2}",
            self.calls,
            self.prompt_tokens / 1e6,
            self.completion_tokens / 1e6,
            self.usd
        )
    }
}

/// Memory the operating system can give now, where it says.
pub fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|l| l.starts_with("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::index::{Counts, INDEX_VERSION, IndexOptions};

    /// An index of `passages` passages with vectors of 768 numbers and nothing else.
    fn meta(passages: usize) -> IndexMeta {
        IndexMeta {
            version: INDEX_VERSION,
            dataset: "d".into(),
            dataset_fingerprint: String::new(),
            fingerprint: String::new(),
            encoder: "e".into(),
            encoder_fingerprint: None,
            computed: std::collections::BTreeMap::new(),
            truncated_at_tokens: None,
            dim: 768,
            options: IndexOptions::default(),
            counts: Counts { passages, questions: 100, ..Counts::default() },
            inputs: std::collections::BTreeMap::new(),
            files: std::collections::BTreeMap::new(),
            constant_vectors: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// pitfall 33: a corpus above the budget is refused before anything is computed, with what it needs and what there is.
    #[test]
    fn pitfall_33_a_run_that_will_not_fit_is_refused_before_it_starts() {
        // The vectors alone are 10 M × 768 × 4 bytes = 28.6 GiB.
        let plan = estimate(&RunConfig::default(), &meta(10_000_000), 500.0, false, 1);
        assert!(plan.memory_bytes > 10_000_000 * 768 * 4);
        let error = plan.check_memory(Some(16 << 30)).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        let text = error.to_string();
        assert!(text.starts_with("the run needs about 3") && text.ends_with("and 16.0 GiB are available"), "{text}");
        assert!(plan.check_memory(Some(64 << 30)).is_ok());
        // Where the system does not say what is available, nothing is refused.
        assert!(plan.check_memory(None).is_ok());
    }

    /// More of anything never needs less.
    #[test]
    fn the_plan_grows_with_corpus_threads_and_stream() {
        let config = RunConfig::default();
        let bytes = |passages, threads| estimate(&config, &meta(passages), 500.0, false, threads).memory_bytes;
        assert!(bytes(2_000, 1) > bytes(1_000, 1) && bytes(1_000, 8) > bytes(1_000, 1));
        let mut short = RunConfig::default();
        short.replay.limit = 10;
        assert!(estimate(&short, &meta(1_000), 500.0, false, 1).memory_bytes < bytes(1_000, 1));
    }

    #[test]
    fn calls_and_dollars_are_those_of_the_stream() {
        // 100 calls; a prompt of 5 passages of 800 characters and 200 tokens more is 1,200 tokens; $0.50 and $3 a million.
        let plan = estimate(&RunConfig::default(), &meta(1_000), 800.0, true, 1);
        assert_eq!(
            (plan.queries, plan.calls, plan.prompt_tokens, plan.completion_tokens),
            (100, 100, 120_000.0, 100_000.0)
        );
        assert!((plan.usd - (0.06 + 0.3)).abs() < 1e-9);
        assert_eq!(estimate(&RunConfig::default(), &meta(1_000), 800.0, false, 1).calls, 0);
    }
}
