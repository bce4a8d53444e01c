//! The write-back rule, equation 19.
//!
//! In: NS, GS, the thresholds. Out: whether the candidate is stored, and if not, why not.

use super::Decision;

/// τ_novel and τ_gs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Thresholds {
    /// NS from which on a candidate is new.
    pub tau_novel: f64,
    /// GS from which on a candidate is grounded.
    pub tau_gs: f64,
}

/// GS of a candidate that reached the grounding gate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Checked {
    /// GS, equation 16.
    pub gs: f64,
    /// M: how many claims the candidate makes.
    pub claims: usize,
}

/// Whether the novelty gate lets a candidate through to grounding: NS >= τ_novel. NaN does not pass.
pub fn is_novel(ns: f64, thresholds: &Thresholds) -> bool {
    ns >= thresholds.tau_novel
}

/// Store = 1 iff GS >= τ_gs and NS >= τ_novel, equation 19, with NS looked at first.
///
/// For a candidate that [`is_novel`] rejects, `checked` is not looked at: nobody need compute it. A candidate that was not
/// checked although it is novel is not stored, as [`Decision::NotGrounded`]. Without claims GS is 0 and the reason
/// [`Decision::NoClaims`], unless the scorer looks at no claims and passed it.
pub fn should_store(ns: f64, checked: Option<Checked>, thresholds: &Thresholds) -> Decision {
    if !is_novel(ns, thresholds) {
        return Decision::NotNovel;
    }
    match checked {
        Some(Checked { gs, .. }) if gs >= thresholds.tau_gs => Decision::Stored,
        Some(Checked { claims: 0, .. }) => Decision::NoClaims,
        _ => Decision::NotGrounded,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAPER: Thresholds = Thresholds { tau_novel: 0.7, tau_gs: 0.6 };

    fn decide(ns: f64, gs: f64, claims: usize) -> Decision {
        should_store(ns, Some(Checked { gs, claims }), &PAPER)
    }

    /// The four cases of table 7.
    #[test]
    fn table_7_is_decided_as_published() {
        assert_eq!(decide(0.793, 1.0, 3), Decision::Stored);
        assert_eq!(decide(0.829, 1.0, 1), Decision::Stored);
        assert_eq!(should_store(0.213, None, &PAPER), Decision::NotNovel);
        assert_eq!(decide(0.701, 0.368, 19), Decision::NotGrounded);
    }

    #[test]
    fn thresholds_are_met_at_equality_and_novelty_comes_first() {
        assert_eq!(decide(0.7, 0.6, 5), Decision::Stored);
        assert_eq!(decide(0.699, 1.0, 5), Decision::NotNovel);
        assert_eq!(decide(0.0, 0.0, 0), Decision::NotNovel);
        assert_eq!(decide(1.0, 0.0, 0), Decision::NoClaims);
        assert_eq!(decide(1.0, 1.0, 0), Decision::Stored);
        assert_eq!(should_store(1.0, None, &PAPER), Decision::NotGrounded);
        assert_eq!(decide(f64::NAN, 1.0, 1), Decision::NotNovel);
        assert_eq!(decide(1.0, f64::NAN, 1), Decision::NotGrounded);
    }
}
