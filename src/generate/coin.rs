//! Seeded coins: a number in [0, 1) that depends on purpose, seed and question alone.
//!
//! In: what is drawn, the run's seed, a question id. Out: the draw. It never depends on batch, order or other questions, so
//! every method of a comparison draws the same.

/// Uniform draw in [0, 1): the top 53 bits of blake3 over `purpose`, a zero byte, `seed` (little endian) and `query_id`.
pub fn uniform(purpose: &str, seed: u64, query_id: &str) -> f64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(purpose.as_bytes());
    hasher.update(&[0]);
    hasher.update(&seed.to_le_bytes());
    hasher.update(query_id.as_bytes());
    let mut first = [0_u8; 8];
    hasher.finalize_xof().fill(&mut first);
    (u64::from_le_bytes(first) >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_uniform_and_depend_on_everything() {
        let draws: Vec<f64> = (0..10_000).map(|i| uniform("test", 7, &format!("q{i}"))).collect();
        assert!(draws.iter().all(|u| (0.0..1.0).contains(u)));
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        // Ten thousand uniform draws: standard error of the mean 0.0029.
        assert!((mean - 0.5).abs() < 0.012, "{mean}");
        let low = draws.iter().filter(|&&u| u < 0.1).count();
        assert!((880..=1120).contains(&low), "{low}");
        assert_ne!(uniform("test", 7, "q0"), uniform("test", 8, "q0"));
        assert_ne!(uniform("test", 7, "q0"), uniform("other", 7, "q0"));
        assert_eq!(uniform("test", 7, "q0"), draws[0]);
    }
}
