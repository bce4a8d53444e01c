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
        write!(f, "{} queries, at most {:.2} GiB of memory, ", self.queries, gib(self.memory_bytes))?;
        if self.calls == 0 {
            return write!(f, "no model is asked");
        }
        write!(
            f,
            "{} calls, about {:.2} M prompt and {:.2} M completion tokens, about ${:.2}",
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
