//! The next token out of scores.
//!
//! In: a score for each token of the vocabulary. Out: the token with the highest, or at a temperature above 0 one that is drawn. Draws
//! depend on the seed and the prompt alone, never on what was asked before.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Draws the tokens of one answer.
pub(super) struct Sampler {
    /// 0 takes the highest score.
    temperature: f64,
    random: ChaCha8Rng,
}

impl Sampler {
    /// For one prompt.
    pub fn new(temperature: f64, seed: u64, prompt: &[u32]) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&seed.to_le_bytes());
        for token in prompt {
            hasher.update(&token.to_le_bytes());
        }
        Self { temperature, random: ChaCha8Rng::from_seed(*hasher.finalize().as_bytes()) }
    }

    /// The next token; of equal scores the first. `Err` when no score is a number.
    pub fn next(&mut self, scores: &[f32]) -> Result<u32, String> {
        let numbers = || scores.iter().enumerate().filter(|(_, s)| !s.is_nan());
        let best = numbers().fold(None, |best: Option<(usize, f32)>, (i, &s)| match best {
            Some((_, high)) if high >= s => best,
            _ => Some((i, s)),
        });
        let Some((best, high)) = best else { return Err("the model gave no number for any token".into()) };
        let chosen = if self.temperature > 0.0 { self.draw(scores, f64::from(high)) } else { best };
        u32::try_from(chosen).map_err(|e| e.to_string())
    }

    /// By softmax(scores / temperature).
    fn draw(&mut self, scores: &[f32], high: f64) -> usize {
        let weight = |s: &f32| if s.is_nan() { 0.0 } else { ((f64::from(*s) - high) / self.temperature).exp() };
        let total: f64 = scores.iter().map(weight).sum();
        let uniform = (self.random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        let mut left = uniform * total;
        let mut last = 0;
        for (i, score) in scores.iter().enumerate() {
            let weight = weight(score);
            if weight > 0.0 {
                last = i;
                if left < weight {
                    return i;
                }
                left -= weight;
            }
        }
        last
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn greedy_takes_the_first_of_the_highest() {
        let mut sampler = Sampler::new(0.0, 0, &[]);
        assert_eq!(sampler.next(&[1.0, 3.0, f32::NAN, 3.0]), Ok(1));
        assert_eq!(sampler.next(&[f32::NEG_INFINITY, -5.0]), Ok(1));
        assert!(sampler.next(&[f32::NAN]).is_err() && sampler.next(&[]).is_err());
    }

    #[test]
    fn draws_follow_the_softmax_and_the_seed() {
        let scores = [0.0, f32::NEG_INFINITY, 2.0_f32.ln(), f32::NAN];
        let draw = |seed, prompt: &[u32]| {
            let mut sampler = Sampler::new(1.0, seed, prompt);
            (0..3000).map(|_| sampler.next(&scores).unwrap()).collect::<Vec<_>>()
        };
        let drawn = draw(1, &[5]);
        let ones = drawn.iter().filter(|t| **t == 0).count();
        // Shares 1 : 2; binomial, n = 3000, p = 1/3: mean 1000, deviation 25.8.
        assert!(drawn.iter().all(|t| *t == 0 || *t == 2) && (890..=1110).contains(&ones), "{ones}");
        assert_eq!(drawn, draw(1, &[5]));
        assert!(drawn != draw(2, &[5]) && drawn != draw(1, &[6]));
        let mut cold = Sampler::new(0.05, 1, &[]);
        assert!((0..100).all(|_| cold.next(&scores).unwrap() == 2), "odds of 2^20");
    }
}
