//! Statistics of accuracies and paired differences.
//!
//! In: counts or values in a fixed order. Out: intervals and p-values. Everything is seeded and summed in order, so that the same
//! traces give the same digits everywhere.

mod bootstrap;
mod holm;
mod mcnemar;
mod wilson;

pub use bootstrap::{DRAWS, paired_bootstrap};
pub use holm::holm;
pub use mcnemar::mcnemar_exact;
pub use wilson::wilson;

/// A 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Arithmetic mean; `None` of nothing.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Sample standard deviation (n - 1); `None` of fewer than two values.
pub fn sample_deviation(values: &[f64]) -> Option<f64> {
    let m = mean(values).filter(|_| values.len() > 1)?;
    let squares: f64 = values.iter().map(|x| (x - m) * (x - m)).sum();
    Some((squares / (values.len() - 1) as f64).sqrt())
}
