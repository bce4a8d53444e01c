//! The formulas of the encoders: GELU, layer normalisation, relative buckets, attention of one head.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_by_hand() {
        // 16 buckets, 64 positions: mid 8; ln(9/8)/ln(63/8)·7 = 0.3995 → 1; ln(16/8)/ln(63/8)·7 = 2.351 → 3; 63 → 7.
        let found: Vec<i64> = [0, 8, -8, 9, -9, 16, 63, -63].map(|d| relative_bucket(d, 16, 64)).to_vec();
        assert_eq!(found, [0, 8, -8, 9, -9, 11, 15, -15]);
        assert_eq!(relative_bucket(-300, 16, 0), -300);
    }
}
