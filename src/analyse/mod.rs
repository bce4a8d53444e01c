//! What traces say, one file a question.
//!
//! In: rows and manifests as read by [`crate::trace::reader`]. Out: counts and numbers with their denominators; no layout, no
//! rounding. Nothing here calls a retriever, and sums run in stream order. A value that is not known is never counted as 0.

pub mod accuracy;
pub mod alarms;
pub mod compare;
pub mod coverage;
pub mod gates;
pub mod orders;
pub mod retrieval;
pub mod reuse;
pub mod runtime;
pub mod statistics;
pub mod status;
pub mod tokens;

use crate::gates::Decision;
use crate::trace::row::TraceRow;

/// Hits among a number of things.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Share {
    /// How many hit.
    pub hits: u64,
    /// Among how many.
    pub of: u64,
}

impl Share {
    /// Counts the items that hit.
    pub fn count(hits: impl IntoIterator<Item = bool>) -> Self {
        hits.into_iter().fold(Self::default(), |s, hit| Self { hits: s.hits + u64::from(hit), of: s.of + 1 })
    }

    /// 0 to 100; `None` of nothing.
    pub fn percent(self) -> Option<f64> {
        (self.of > 0).then(|| 100.0 * self.hits as f64 / self.of as f64)
    }
}

impl std::ops::Add for Share {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { hits: self.hits + other.hits, of: self.of + other.of }
    }
}

/// A sum over the rows that know a value; the others are not zeros.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Known {
    /// Sum of the known values.
    pub sum: f64,
    /// Rows that know it.
    pub known: u64,
    /// Rows in all.
    pub of: u64,
}

impl Known {
    /// Sums in the order given.
    pub fn of(values: impl IntoIterator<Item = Option<f64>>) -> Self {
        values.into_iter().fold(Self::default(), |k, value| Self {
            sum: k.sum + value.unwrap_or(0.0),
            known: k.known + u64::from(value.is_some()),
            of: k.of + 1,
        })
    }

    /// Mean over the rows that know it; `None` when none does.
    pub fn mean(self) -> Option<f64> {
        (self.known > 0).then(|| self.sum / self.known as f64)
    }

    /// Which share of the rows knows it.
    pub fn coverage(self) -> Share {
        Share { hits: self.known, of: self.of }
    }
}

impl std::ops::Add for Known {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { sum: self.sum + other.sum, known: self.known + other.known, of: self.of + other.of }
    }
}

/// Whether the run has an experience store: only then does a candidate reach a gate or get stored.
pub fn has_store(rows: &[TraceRow]) -> bool {
    rows.iter().any(|r| r.stored || r.decision != Decision::GateOff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_is_not_zero() {
        let known = Known::of([Some(4.0), None, Some(2.0)]);
        assert_eq!((known.mean(), known.coverage()), (Some(3.0), Share { hits: 2, of: 3 }));
        assert_eq!(Known::of([None, None]).mean(), None);
        assert_eq!(Share::default().percent(), None);
    }
}
