//! Are the answers right? Table 2.
//!
//! In: the scores of the rows. Out: accuracies whose denominator is every question of the stream. A question without a score stays
//! in the denominator and is counted apart, so that a failed judge call can neither raise nor hide anything.

use super::Share;
use crate::generate::Judgement;
use crate::trace::row::TraceRow;

/// One accuracy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accuracy {
    /// Questions scored as correct.
    pub correct: u64,
    /// Questions without a score.
    pub unscored: u64,
    /// All questions.
    pub of: u64,
}

impl Accuracy {
    /// `None` when no question has a score at all.
    fn of(scores: impl Iterator<Item = Option<bool>>) -> Option<Self> {
        let mut a = Self { correct: 0, unscored: 0, of: 0 };
        for score in scores {
            a.of += 1;
            a.correct += u64::from(score == Some(true));
            a.unscored += u64::from(score.is_none());
        }
        (a.unscored < a.of).then_some(a)
    }

    /// Correct over all questions.
    pub fn share(self) -> Share {
        Share { hits: self.correct, of: self.of }
    }

    /// Scored over all questions.
    pub fn coverage(self) -> Share {
        Share { hits: self.of - self.unscored, of: self.of }
    }
}

/// Contain-match accuracy; questions whose gold cannot be scored are unscored.
pub fn contain(rows: &[TraceRow]) -> Option<Accuracy> {
    Accuracy::of(rows.iter().map(|r| r.contain))
}

/// Contain-match at token boundaries.
pub fn contain_word(rows: &[TraceRow]) -> Option<Accuracy> {
    Accuracy::of(rows.iter().map(|r| r.contain_word))
}

/// Accuracy by the judge; `None` when no judge ran.
pub fn judge(rows: &[TraceRow]) -> Option<Accuracy> {
    Accuracy::of(rows.iter().map(judged))
}

/// The judge's word as a score.
pub(super) fn judged(row: &TraceRow) -> Option<bool> {
    match row.judge {
        Judgement::Correct => Some(true),
        Judgement::Incorrect => Some(false),
        Judgement::Unscored | Judgement::NotRun => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::trace::fixture;

    fn judged_rows(judgements: &[Judgement]) -> Vec<TraceRow> {
        (1..).zip(judgements).map(|(t, j)| TraceRow { judge: *j, ..fixture::plain(t) }).collect()
    }

    /// pitfall 25: 7 of 10 correct, one call timed out: 70 %, not 7 of 9, and the coverage says 9 of 10.
    #[test]
    fn an_unscored_question_stays_in_the_denominator() {
        let mut judgements = vec![Judgement::Correct; 7];
        judgements.extend([Judgement::Incorrect, Judgement::Incorrect, Judgement::Unscored]);
        let a = judge(&judged_rows(&judgements)).unwrap();
        assert_eq!(a.share(), Share { hits: 7, of: 10 });
        assert_eq!(a.coverage(), Share { hits: 9, of: 10 });
    }

    #[test]
    fn no_judge_is_no_accuracy_rather_than_zero() {
        assert_eq!(judge(&judged_rows(&[Judgement::NotRun; 3])), None);
        assert_eq!(judge(&judged_rows(&[Judgement::Incorrect])).unwrap().share().percent(), Some(0.0));
    }

    #[test]
    fn contain_counts_over_all_questions() {
        let mut rows: Vec<TraceRow> = (1..=4).map(fixture::plain).collect();
        rows[0].contain = Some(false);
        rows[1].contain = None;
        assert_eq!(contain(&rows), Some(Accuracy { correct: 2, unscored: 1, of: 4 }));
        assert_eq!(contain_word(&rows), Some(Accuracy { correct: 4, unscored: 0, of: 4 }));
    }
}
