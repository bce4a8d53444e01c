//! Grounding by a seeded coin, for simulations in which only the gates' pass rate matters.
//!
//! In: candidates, of which only the question's id is looked at. Out: GS 1 with probability p, else 0, and no claims, since
//! none was checked. Independent of batch, order, explanation and of every other query.

use super::grounding::{Candidate, Grounded, GroundingScorer};
use crate::Result;
use crate::generate::coin;

/// The coin.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BernoulliScorer {
    /// The run's seed.
    pub seed: u64,
    /// Pass rate, in [0, 1].
    pub p: f64,
}

impl GroundingScorer for BernoulliScorer {
    fn name(&self) -> &str {
        "bernoulli"
    }

    fn score(&self, batch: &[Candidate]) -> Result<Vec<Grounded>> {
        let toss = |candidate: &Candidate| {
            let passes = coin::uniform("bernoulli-grounding", self.seed, &candidate.query_id) < self.p;
            Grounded { gs: f64::from(u8::from(passes)), claims: Vec::new() }
        };
        Ok(batch.iter().map(toss).collect())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;
    use crate::gates::grounding::tests::candidate;

    #[test]
    fn passes_at_its_rate_whatever_the_batch() {
        let batch: Vec<Candidate> = (0..2000).map(|i| candidate(&format!("q{i}"), &[])).collect();
        let scorer = BernoulliScorer { seed: 0, p: 0.7246 };
        let together = scorer.score(&batch).unwrap();
        let passed = together.iter().filter(|g| g.gs == 1.0).count();
        // Binomial, n = 2000, p = 0.7246: mean 1449, deviation 20.
        assert!((1370..=1530).contains(&passed), "{passed}");
        assert!(together.iter().all(|g| g.gs == 0.0 || g.gs == 1.0));
        for (i, one) in batch.iter().enumerate().rev().step_by(97) {
            assert_eq!(scorer.score(std::slice::from_ref(one)).unwrap()[0], together[i]);
        }
        assert_ne!(BernoulliScorer { seed: 1, ..scorer }.score(&batch).unwrap(), together);
    }

    #[test]
    fn certain_coins_are_certain() {
        let batch = [candidate("q", &[("a", &["x"])])];
        assert_eq!(BernoulliScorer { seed: 0, p: 0.0 }.score(&batch).unwrap()[0].gs, 0.0);
        assert_eq!(BernoulliScorer { seed: 0, p: 1.0 }.score(&batch).unwrap()[0].gs, 1.0);
    }
}
