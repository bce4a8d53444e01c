//! What a call cost, table 3.
//!
//! In: the endpoint's token counts and prices. Out: US dollars.

use super::Usage;

/// US dollars per million tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prices {
    /// Prompt tokens that were not cached.
    pub prompt: f64,
    /// Cached prompt tokens; `None` prices them as any other.
    pub cached: Option<f64>,
    /// Completion tokens, reasoning included.
    pub completion: f64,
}

/// `((prompt - cached) * p + cached * pc + completion * c) / 1e6`; `None` when prompt or completion tokens are unknown.
///
/// Cached tokens are part of the prompt's count and reasoning tokens of the completion's, as the API reports them.
pub fn cost_usd(usage: &Usage, prices: &Prices) -> Option<f64> {
    let (prompt, completion) = (usage.prompt_tokens?, usage.completion_tokens?);
    let cached = usage.cached_tokens.unwrap_or(0).min(prompt);
    let cached_price = prices.cached.unwrap_or(prices.prompt);
    let total = f64::from(prompt - cached) * prices.prompt
        + f64::from(cached) * cached_price
        + f64::from(completion) * prices.completion;
    Some(total / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAPER: Prices = Prices { prompt: 0.5, cached: None, completion: 3.0 };

    fn usage(prompt: Option<u32>, completion: Option<u32>, cached: Option<u32>) -> Usage {
        Usage { prompt_tokens: prompt, completion_tokens: completion, reasoning_tokens: None, cached_tokens: cached }
    }

    #[test]
    fn table_3_is_reproduced() {
        // 2Wiki, LinearRAG: 1,000 questions of 6,038.2 prompt and 1,067.6 completion tokens on average cost $6.22.
        let total = cost_usd(&usage(Some(6_038_200), Some(1_067_600), None), &PAPER);
        assert!(total.is_some_and(|usd| (usd - 6.2219).abs() < 1e-9), "{total:?}");
    }

    #[test]
    fn unknown_counts_have_no_cost_and_cached_tokens_their_own() {
        assert_eq!(cost_usd(&usage(None, Some(1), None), &PAPER), None);
        assert_eq!(cost_usd(&usage(Some(1), None, None), &PAPER), None);
        assert_eq!(cost_usd(&usage(Some(0), Some(0), None), &PAPER), Some(0.0));
        let prices = Prices { prompt: 1.0, cached: Some(0.25), completion: 2.0 };
        // 600 at 1.0, 400 at 0.25, 100 at 2.0.
        assert_eq!(cost_usd(&usage(Some(1_000), Some(100), Some(400)), &prices), Some(900.0 / 1e6));
        assert_eq!(
            cost_usd(&usage(Some(1_000), Some(100), Some(400)), &Prices { cached: None, ..prices }),
            Some(1_200.0 / 1e6)
        );
    }
}
