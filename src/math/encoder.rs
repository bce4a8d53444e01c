//! The formulas of the encoders: GELU, layer normalisation, relative buckets, attention of one head.

/// 2/√π · ∫₀ˣ exp(-t²) dt by its series of positive terms, exp(-x²)·Σ 2ⁿ·x²ⁿ⁺¹/(1·3·…·(2n + 1)).
pub fn erf(x: f64) -> f64 {
    if x.abs() > 6.0 {
        return x.signum();
    }
    let (mut term, mut sum, mut n) = (x, x, 0.0);
    while term.abs() > 1e-18 * sum.abs() {
        n += 1.0;
        term *= 2.0 * x * x / (2.0 * n + 1.0);
        sum += term;
    }
    std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

/// x·Φ(x) = x/2·(1 + erf(x/√2)).
pub fn gelu(x: f64) -> f64 {
    x / 2.0 * (1.0 + erf(x / std::f64::consts::SQRT_2))
}

/// γ·(x - mean)/sqrt(variance + ε) + β, the variance over all n.
pub fn layer_norm(x: &[f64], gamma: &[f64], beta: &[f64], eps: f64) -> Vec<f64> {
    let n = x.len() as f64;
    let mean = x.iter().sum::<f64>() / n;
    let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
    let deviation = (variance + eps).sqrt();
    x.iter().zip(gamma.iter().zip(beta)).map(|(x, (gamma, beta))| (x - mean) / deviation * gamma + beta).collect()
}

/// Bucket of the distance d = i - j of DeBERTa-v2/v3: d itself up to mid = buckets/2, then logarithmic up to `max_positions`.
///
/// bucket(d) = d if |d| <= mid, else sign(d)·(⌈ln(|d|/mid) / ln((max_positions - 1)/mid) · (mid - 1)⌉ + mid). Steps are taken in `f32`
/// as the models were trained, since a rounding at a boundary would choose another bucket. `max_positions` 0: no buckets.
pub fn relative_bucket(d: i64, buckets: usize, max_positions: usize) -> i64 {
    let mid = (buckets / 2) as i64;
    if max_positions == 0 || d.abs() <= mid || mid == 0 {
        return d;
    }
    let log = |x: f32| (x / mid as f32).ln();
    let steps = (log(d.abs() as f32) / log((max_positions - 1) as f32) * (mid - 1) as f32).ceil();
    d.signum() * (steps as i64 + mid)
}

/// Score of one pair of tokens with the terms of DeBERTa: (q·k + q·kr + k·qr)/sqrt(head_dim·f), f = 1 + the number of terms that are there.
pub fn disentangled_score(q: &[f64], k: &[f64], kr: Option<&[f64]>, qr: Option<&[f64]>) -> f64 {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
    let terms = 1 + usize::from(kr.is_some()) + usize::from(qr.is_some());
    let sum = dot(q, k) + kr.map_or(0.0, |kr| dot(q, kr)) + qr.map_or(0.0, |qr| dot(k, qr));
    sum / ((q.len() * terms) as f64).sqrt()
}

/// softmax(scores)·V for one query: `values` are rows of the scores' number.
pub fn attend(scores: &[f64], values: &[Vec<f64>]) -> Vec<f64> {
    let weights = super::similarity::softmax(scores, 1.0);
    let width = values.first().map_or(0, Vec::len);
    (0..width).map(|c| weights.iter().zip(values).map(|(w, row)| w * row[c]).sum()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gelu_from_tables() {
        // erf(0.5), erf(1), erf(2) and erf(3): Abramowitz and Stegun, table 7.1 and its asymptotic expansion.
        for (x, expected) in
            [(0.5, 0.520_499_877_8), (1.0, 0.842_700_792_9), (2.0, 0.995_322_265_0), (3.0, 0.999_977_909_5)]
        {
            assert!((erf(x) - expected).abs() < 1e-10 && (erf(-x) + expected).abs() < 1e-10);
        }
        assert_eq!((erf(0.0), erf(7.0), erf(-7.0)), (0.0, 1.0, -1.0));
        // Φ(1) = 0.8413447461.
        assert!((gelu(1.0) - 0.841_344_746_1).abs() < 1e-10 && (gelu(-1.0) + 0.158_655_253_9).abs() < 1e-10);
    }

    #[test]
    fn layer_norm_by_hand() {
        // Mean 2, variance 2/3.
        let y = layer_norm(&[1.0, 2.0, 3.0], &[1.0, 2.0, 1.0], &[0.0, 0.5, 0.0], 0.0);
        let end = 1.5f64.sqrt();
        assert!(y.iter().zip([-end, 0.5, end]).all(|(a, b)| (a - b).abs() < 1e-12));
    }

    #[test]
    fn buckets_by_hand() {
        // 16 buckets, 64 positions: mid 8; ln(9/8)/ln(63/8)·7 = 0.3995 → 1; ln(16/8)/ln(63/8)·7 = 2.351 → 3; 63 → 7.
        let found: Vec<i64> = [0, 8, -8, 9, -9, 16, 63, -63].map(|d| relative_bucket(d, 16, 64)).to_vec();
        assert_eq!(found, [0, 8, -8, 9, -9, 11, 15, -15]);
        assert_eq!(relative_bucket(-300, 16, 0), -300);
    }

    /// Σ d·bucket(d) and Σ bucket(d)² for |d| <= 1100 of `make_log_bucket_position`, transformers 5.24.0 with torch 2.15.0.
    #[test]
    fn buckets_as_in_transformers() {
        let found = |buckets, positions| {
            let all = (-1100..=1100).map(|d| (d, relative_bucket(d, buckets, positions)));
            all.fold((0, 0), |(first, second), (d, b)| (first + d * b, second + b * b))
        };
        for (buckets, positions, first, second) in [
            (256, 512, 339169286, 138088038),
            (32, 128, 52708248, 3617488),
            (256, 1024, 277636030, 94539100),
            (8, 32, 14555948, 284584),
            (16, 64, 28480082, 1072806),
        ] {
            assert_eq!(found(buckets, positions), (first, second), "{buckets} buckets, {positions} positions");
        }
    }

    #[test]
    fn attention_by_hand() {
        // (1·2 + 1·4 + 2·3)/sqrt(1·3).
        let score = disentangled_score(&[1.0], &[2.0], Some(&[4.0]), Some(&[3.0]));
        assert!((score - 12.0 / 3f64.sqrt()).abs() < 1e-12);
        assert_eq!(disentangled_score(&[2.0, 0.0, 0.0, 0.0], &[3.0, 1.0, 1.0, 1.0], None, None), 3.0);
        let out = attend(&[0.0, 3f64.ln()], &[vec![1.0, 0.0], vec![5.0, 4.0]]);
        assert!((out[0] - 4.0).abs() < 1e-12 && (out[1] - 3.0).abs() < 1e-12);
    }
}
