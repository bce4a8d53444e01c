//! What a run will take, before it starts: memory, reader calls, tokens, dollars.

use std::fmt;

use crate::config::RunConfig;
use crate::replay::memory::{Sizes, Together, process_bytes, words};
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
    /// Bytes of memory that the whole process takes at its fullest.
    pub memory_bytes: u64,
}

/// Estimates one run by itself.
pub fn estimate(
    config: &RunConfig,
    sizes: &Sizes,
    mean_passage_characters: f64,
    asks_a_model: bool,
    threads: usize,
) -> Estimate {
    let questions = sizes.questions as usize;
    let limit = if config.replay.limit == 0 { questions } else { questions.min(config.replay.limit as usize) };
    let calls = if asks_a_model { limit } else { 0 };
    let prompt = f64::from(config.retrieve.top_k) * mean_passage_characters / CHARACTERS_PER_TOKEN + 200.0;
    let completion = ASSUMED_COMPLETION_TOKENS.min(f64::from(config.generate.max_tokens));
    let (prompt_tokens, completion_tokens) = (calls as f64 * prompt, calls as f64 * completion);
    let alone = Together { runs: 1, orders: 1, queries: limit as u64 };
    Estimate {
        queries: limit,
        calls,
        prompt_tokens,
        completion_tokens,
        usd: (prompt_tokens * config.generate.usd_per_million_prompt
            + completion_tokens * config.generate.usd_per_million_completion)
            / 1e6,
        memory_bytes: process_bytes(config, sizes, threads as u64, alone),
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
        write!(f, "{} queries, about {} of memory", self.queries, words(self.memory_bytes))?;
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

/// Memory that this process can have: what it holds and what the operating system can give it now, where it says.
pub fn available_memory() -> Option<u64> {
    let field = |file: &str, name: &str| -> Option<u64> {
        let text = std::fs::read_to_string(file).ok()?;
        let line = text.lines().find(|l| l.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib * 1024)
    };
    Some(field("/proc/meminfo", "MemAvailable:")? + field("/proc/self/status", "RssAnon:").unwrap_or(0))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::backend::cpu::plan::Sizes as Matrices;

    /// `passages` passages with vectors of 768 numbers, 100 questions, and nothing else.
    fn sizes(passages: u64) -> Sizes {
        Sizes {
            matrices: Matrices { passages, dim: 768, ..Matrices::default() },
            questions: 100,
            vectors: (passages + 100) * 768 * 4,
            text: 500 * passages,
            ..Sizes::default()
        }
    }

    /// pitfall 33: a corpus above the budget is refused before anything is computed, with what it needs and what there is.
    #[test]
    fn pitfall_33_a_run_that_will_not_fit_is_refused_before_it_starts() {
        // The vectors alone are 10 M × 768 × 4 bytes = 28.6 GiB.
        let plan = estimate(&RunConfig::default(), &sizes(10_000_000), 500.0, false, 1);
        assert!(plan.memory_bytes > 10_000_000 * 768 * 4);
        let error = plan.check_memory(Some(16 << 30)).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        let text = error.to_string();
        assert!(text.starts_with("the run needs about ") && text.ends_with("and 16.0 GiB are available"), "{text}");
        assert!(plan.check_memory(Some(64 << 30)).is_ok());
        // Where the system does not say what is available, nothing is refused.
        assert!(plan.check_memory(None).is_ok());
    }

    /// More of anything never needs less.
    #[test]
    fn the_plan_grows_with_corpus_threads_and_stream() {
        let config = RunConfig::default();
        let bytes = |passages, threads| estimate(&config, &sizes(passages), 500.0, false, threads).memory_bytes;
        assert!(bytes(2_000, 1) > bytes(1_000, 1) && bytes(1_000, 8) > bytes(1_000, 1));
        let mut short = RunConfig::default();
        short.replay.limit = 10;
        assert!(estimate(&short, &sizes(1_000), 500.0, false, 1).memory_bytes < bytes(1_000, 1));
    }

    #[test]
    fn calls_and_dollars_are_those_of_the_stream() {
        // 100 calls; a prompt of 5 passages of 800 characters and 200 tokens more is 1,200 tokens; $0.50 and $3 a million.
        let plan = estimate(&RunConfig::default(), &sizes(1_000), 800.0, true, 1);
        assert_eq!(
            (plan.queries, plan.calls, plan.prompt_tokens, plan.completion_tokens),
            (100, 100, 120_000.0, 100_000.0)
        );
        assert!((plan.usd - (0.06 + 0.3)).abs() < 1e-9);
        assert_eq!(estimate(&RunConfig::default(), &sizes(1_000), 800.0, false, 1).calls, 0);
    }
}
