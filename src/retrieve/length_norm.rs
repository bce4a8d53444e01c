//! Length normalisation of passage scores, equation 27 (appendix F.2).

/// `score / ((1 - b) + b · |p| / avg|p|)`; lengths in characters. b = 0 leaves the score as it is.
pub fn normalize_by_length(score: f64, length: f64, average_length: f64, b: f64) -> f64 {
    if b == 0.0 || average_length <= 0.0 { score } else { score / ((1.0 - b) + b * length / average_length) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// b = 0.1 and a passage twice as long as the average: 1 / (0.9 + 0.2).
    #[test]
    fn by_hand() {
        assert!((normalize_by_length(1.0, 200.0, 100.0, 0.1) - 1.0 / 1.1).abs() < 1e-15);
        assert_eq!(normalize_by_length(0.3, 200.0, 100.0, 0.0), 0.3);
    }
}
