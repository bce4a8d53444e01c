//! Dense and dual-channel similarity (the inner function of equations 7 and 17).

/// Σ a_i b_i in order.
///
/// Vectors are L2-normalised on reading, so this is their cosine.
pub fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(&x, &y)| f64::from(x) * f64::from(y)).sum()
}

/// α cos(v_q, v_k) + (1 - α) cos(a_base, ã_k), equations 7 and 17.
#[inline]
pub fn dual_channel_similarity(alpha: f64, cos_query: f64, cos_activation: f64) -> f64 {
    alpha * cos_query + (1.0 - alpha) * cos_activation
}

/// Equation 9 over the selected scores: exp(s / τ) / Σ exp(s / τ), shifted by the largest score so that it never overflows.
pub fn softmax(scores: &[f64], tau: f64) -> Vec<f64> {
    let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let exps: Vec<f64> = scores.iter().map(|s| ((s - max) / tau).exp()).collect();
    let sum: f64 = exps.iter().sum();
    exps.into_iter().map(|e| e / sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn softmax_by_hand() {
        // exp(0.1/0.1) / exp(0) = e, so weights are e/(1+e) and 1/(1+e).
        let w = softmax(&[0.6, 0.5], 0.1);
        let e = std::f64::consts::E;
        assert!((w[0] - e / (1.0 + e)).abs() < 1e-12 && (w[1] - 1.0 / (1.0 + e)).abs() < 1e-12);
        assert_eq!(softmax(&[1000.0], 0.1), vec![1.0]);
        assert!(softmax(&[], 0.1).is_empty());
    }
}
