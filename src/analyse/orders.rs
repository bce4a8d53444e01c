//! How much does the arrival order matter? Table 18.
//!
//! In: one value a replicate (one order and seed of the same run otherwise). Out: the values with their mean and sample deviation.
//! The deviation of the method without a store is the noise floor: what it varies by cannot come from experience.

use super::statistics::{mean, sample_deviation};

/// One measure over the replicates of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Spread {
    /// A value a replicate, in the order given; `None` where it is missing.
    pub values: Vec<Option<f64>>,
    /// Mean of the values that are there.
    pub mean: Option<f64>,
    /// Sample deviation (n - 1); `None` of fewer than two.
    pub deviation: Option<f64>,
}

/// Mean and sample deviation over replicates.
pub fn spread(values: Vec<Option<f64>>) -> Spread {
    let known: Vec<f64> = values.iter().flatten().copied().collect();
    Spread { mean: mean(&known), deviation: sample_deviation(&known), values }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// statistics.stdev([81.0, 84.5, 84.5]) of Python 3.11 is 2.0207259421636903.
    #[test]
    fn the_deviation_is_the_samples() {
        let s = spread(vec![Some(81.0), None, Some(84.5), Some(84.5)]);
        assert!((s.mean.unwrap() - 250.0 / 3.0).abs() < 1e-12);
        assert!((s.deviation.unwrap() - 2.0207259421636903).abs() < 1e-12);
        assert_eq!(spread(vec![Some(5.0)]).deviation, None);
        assert_eq!(spread(vec![None]).mean, None);
    }
}
