//! Novelty score, equation 18.
//!
//! In: the largest redundancy η_k (equation 17) over the experiences committed before the query, measured on its base
//! activation. Out: NS.

/// NS = 1 - max_k η_k, equation 18; `None` is an empty store, against which everything is new: 1.
pub fn novelty_score(max_eta: Option<f64>) -> f64 {
    max_eta.map_or(1.0, |eta| 1.0 - eta)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn novelty_is_what_redundancy_leaves() {
        assert_eq!(novelty_score(None), 1.0);
        assert_eq!(novelty_score(Some(0.25)), 0.75);
        assert_eq!(novelty_score(Some(1.0)), 0.0);
        assert_eq!(novelty_score(Some(-0.5)), 1.5);
    }
}
