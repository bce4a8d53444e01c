//! What did the answers cost? Table 3.
//!
//! In: token counts and prices of the rows. Out: sums and means over the rows that know them, and how many do.

use super::{Known, Share};
use crate::trace::row::TraceRow;

/// Tokens and cost of one run.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Tokens {
    /// Prompt tokens, cached ones included.
    pub prompt: Known,
    /// Completion tokens, reasoning included.
    pub completion: Known,
    /// Reasoning tokens among the completion tokens.
    pub reasoning: Known,
    /// Cached tokens among the prompt tokens.
    pub cached: Known,
    /// US dollars.
    pub cost_usd: Known,
    /// Rows whose counts were estimated here.
    pub estimated: Share,
}

/// Sums the tokens of a run.
pub fn tokens(rows: &[TraceRow]) -> Tokens {
    let sum = |value: fn(&TraceRow) -> Option<u32>| Known::of(rows.iter().map(|r| value(r).map(f64::from)));
    Tokens {
        prompt: sum(|r| r.prompt_tokens),
        completion: sum(|r| r.completion_tokens),
        reasoning: sum(|r| r.reasoning_tokens),
        cached: sum(|r| r.cached_tokens),
        cost_usd: Known::of(rows.iter().map(|r| r.cost_usd)),
        estimated: Share::count(rows.iter().map(|r| r.tokens_estimated)),
    }
}

impl std::ops::Add for Tokens {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            prompt: self.prompt + other.prompt,
            completion: self.completion + other.completion,
            reasoning: self.reasoning + other.reasoning,
            cached: self.cached + other.cached,
            cost_usd: self.cost_usd + other.cost_usd,
            estimated: self.estimated + other.estimated,
        }
    }
}

/// (living - linear) / linear in percent; `None` when either is unknown or linear is 0.
pub fn relative_change(linear: Option<f64>, living: Option<f64>) -> Option<f64> {
    let (linear, living) = (linear?, living?);
    (linear != 0.0).then(|| 100.0 * (living - linear) / linear)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::trace::fixture;

    #[test]
    fn means_are_over_the_rows_that_know() {
        let mut rows: Vec<TraceRow> = (1..=4).map(fixture::plain).collect();
        rows[0].prompt_tokens = None;
        rows[1].prompt_tokens = Some(400);
        rows[2].tokens_estimated = true;
        let t = tokens(&rows);
        assert_eq!(t.prompt, Known { sum: 600.0, known: 3, of: 4 });
        assert_eq!(t.prompt.mean(), Some(200.0));
        assert_eq!(t.reasoning.mean(), None);
        assert_eq!(t.estimated, Share { hits: 1, of: 4 });
        assert_eq!((t + t).prompt, Known { sum: 1200.0, known: 6, of: 8 });
    }

    /// The paper's table 3: 906.4 against 1,067.6 is -15.1 %, $5.84 against $6.22 is -6.1 %.
    #[test]
    fn relative_change_is_against_linear() {
        let rounded = |a, b| format!("{:+.1}", relative_change(Some(a), Some(b)).unwrap());
        assert_eq!(rounded(1067.6, 906.4), "-15.1");
        assert_eq!(rounded(6.22, 5.84), "-6.1");
        assert_eq!(relative_change(Some(0.0), Some(1.0)), None);
        assert_eq!(relative_change(None, Some(1.0)), None);
    }
}
