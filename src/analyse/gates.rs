//! What do the quality gates let through? Table 6.
//!
//! In: the decisions of the rows. Out: counts. NS pass is over all questions; GS pass over the candidates that reached the GS check,
//! which are those that passed NS. A candidate without claims was checked and failed (GS = 0).

use super::Share;
use crate::gates::Decision;
use crate::trace::row::TraceRow;

/// Decisions of one run, or of several added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GateCounts {
    /// Questions in all.
    pub questions: u64,
    /// Candidates that passed NS, and so reached the GS check.
    pub gs_checked: u64,
    /// Checked candidates that failed GS.
    pub gs_rejected: u64,
    /// Questions without an answer, which are no candidates.
    pub no_answer: u64,
}

impl GateCounts {
    /// NS passes over all questions.
    pub fn ns_pass(self) -> Share {
        Share { hits: self.gs_checked, of: self.questions }
    }

    /// GS passes over the checked.
    pub fn gs_pass(self) -> Share {
        Share { hits: self.stored(), of: self.gs_checked }
    }

    /// Experiences written.
    pub fn stored(self) -> u64 {
        self.gs_checked - self.gs_rejected
    }
}

impl std::ops::Add for GateCounts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            questions: self.questions + other.questions,
            gs_checked: self.gs_checked + other.gs_checked,
            gs_rejected: self.gs_rejected + other.gs_rejected,
            no_answer: self.no_answer + other.no_answer,
        }
    }
}

/// Counts the decisions; `None` when the run has no gates.
pub fn gate_counts(rows: &[TraceRow]) -> Option<GateCounts> {
    let mut counts = GateCounts { questions: rows.len() as u64, ..GateCounts::default() };
    let mut gated = false;
    for row in rows {
        gated |= row.decision != Decision::GateOff;
        match row.decision {
            Decision::Stored => counts.gs_checked += 1,
            Decision::NotGrounded | Decision::NoClaims => {
                counts.gs_checked += 1;
                counts.gs_rejected += 1;
            }
            Decision::NoAnswer => counts.no_answer += 1,
            Decision::NotNovel | Decision::GateOff => {}
        }
    }
    gated.then_some(counts)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::trace::fixture;

    /// A stream with this many of each decision, the rest not novel.
    fn stream(questions: u32, stored: u32, rejected: u32) -> Vec<TraceRow> {
        (1..=questions)
            .map(|t| {
                let decision = match t {
                    t if t <= stored => Decision::Stored,
                    t if t <= stored + rejected => [Decision::NotGrounded, Decision::NoClaims][t as usize % 2],
                    _ => Decision::NotNovel,
                };
                TraceRow { decision, stored: decision == Decision::Stored, ..fixture::plain(t) }
            })
            .collect()
    }

    /// Table 6 as printed, from its own counts: questions, stored, GS reject, then NS pass %, GS checked, GS pass %.
    #[test]
    fn the_papers_counts_give_the_papers_percentages() {
        let printed = [
            (1000, 100, 38, "13.80", 138, "72.46"),
            (1000, 549, 84, "63.30", 633, "86.73"),
            (1000, 313, 50, "36.30", 363, "86.23"),
            (2417, 473, 42, "21.31", 515, "91.84"),
            (400, 157, 0, "39.25", 157, "100.00"),
        ];
        let mut all = GateCounts::default();
        for (q, stored, rejected, ns, checked, gs) in printed {
            let counts = gate_counts(&stream(q, stored, rejected)).unwrap();
            assert_eq!(format!("{:.2}", counts.ns_pass().percent().unwrap()), ns);
            assert_eq!(format!("{:.2}", counts.gs_pass().percent().unwrap()), gs);
            assert_eq!((counts.gs_checked, counts.stored()), (checked, u64::from(stored)));
            all = all + counts;
        }
        assert_eq!((all.questions, all.gs_checked, all.gs_rejected, all.stored()), (5817, 1806, 214, 1592));
        assert_eq!(format!("{:.2}", all.ns_pass().percent().unwrap()), "31.05");
        assert_eq!(format!("{:.2}", all.gs_pass().percent().unwrap()), "88.15");
    }

    #[test]
    fn a_run_without_gates_has_no_counts_and_no_answer_is_no_candidate() {
        let off = |t| TraceRow { decision: Decision::GateOff, stored: true, ..fixture::plain(t) };
        assert_eq!(gate_counts(&[off(1), off(2)]), None);
        let counts = gate_counts(&[TraceRow { decision: Decision::NoAnswer, ..fixture::plain(1) }]).unwrap();
        assert_eq!(
            (counts.no_answer, counts.ns_pass(), counts.gs_pass().percent()),
            (1, Share { hits: 0, of: 1 }, None)
        );
    }
}
