//! Is one run better than another? Two runs, joined question by question.
//!
//! In: two runs over the same questions of one dataset, in any order. Out: paired differences b - a with McNemar's exact test for
//! accuracies and the paired bootstrap for tokens and cost. Nothing is ever compared unpaired.

use std::collections::BTreeMap;

use super::accuracy::judged;
use super::statistics::{Interval, mcnemar_exact, mean, paired_bootstrap};
use crate::trace::reader::Run;
use crate::trace::row::TraceRow;
use crate::{Error, Result};

/// Seed of the bootstrap draws.
const BOOTSTRAP_SEED: u64 = 0;

/// Two runs compared; every difference is b - a.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// Run id of a.
    pub a: String,
    /// Run id of b.
    pub b: String,
    /// Name of the dataset.
    pub dataset: String,
    /// Questions, all of them in both runs.
    pub questions: u64,
    /// Questions with equal predictions.
    pub same_predictions: u64,
    /// Questions for which the reader was given the same passages in the same order.
    pub same_passages: u64,
    /// Contain-match accuracy.
    pub contain: Option<PairedAccuracy>,
    /// Contain-match accuracy at token boundaries.
    pub contain_word: Option<PairedAccuracy>,
    /// Accuracy by the judge.
    pub judge: Option<PairedAccuracy>,
    /// Prompt tokens a question.
    pub prompt_tokens: Option<PairedMean>,
    /// Completion tokens a question.
    pub completion_tokens: Option<PairedMean>,
    /// US dollars a question.
    pub cost_usd: Option<PairedMean>,
}

/// One accuracy of two runs over the questions that both have scored.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PairedAccuracy {
    /// Right in both.
    pub both: u64,
    /// Right only in a.
    pub only_a: u64,
    /// Right only in b.
    pub only_b: u64,
    /// Right in neither.
    pub neither: u64,
    /// Questions that one of the two has not scored; in none of the counts above.
    pub unscored: u64,
    /// McNemar's exact two-sided p-value.
    pub p: f64,
}

impl PairedAccuracy {
    fn of(pairs: &[(&TraceRow, &TraceRow)], score: fn(&TraceRow) -> Option<bool>) -> Option<Self> {
        let mut out = Self { both: 0, only_a: 0, only_b: 0, neither: 0, unscored: 0, p: 1.0 };
        for (a, b) in pairs {
            match (score(a), score(b)) {
                (Some(true), Some(true)) => out.both += 1,
                (Some(true), Some(false)) => out.only_a += 1,
                (Some(false), Some(true)) => out.only_b += 1,
                (Some(false), Some(false)) => out.neither += 1,
                _ => out.unscored += 1,
            }
        }
        out.p = mcnemar_exact(out.only_a, out.only_b);
        (out.pairs() > 0).then_some(out)
    }

    /// Questions that both have scored.
    pub fn pairs(self) -> u64 {
        self.both + self.only_a + self.only_b + self.neither
    }

    /// Accuracy of a over the pairs, in percent.
    pub fn percent_a(self) -> f64 {
        100.0 * (self.both + self.only_a) as f64 / self.pairs() as f64
    }

    /// Accuracy of b over the pairs, in percent.
    pub fn percent_b(self) -> f64 {
        100.0 * (self.both + self.only_b) as f64 / self.pairs() as f64
    }

    /// b - a in percentage points.
    pub fn difference(self) -> f64 {
        100.0 * (self.only_b as f64 - self.only_a as f64) / self.pairs() as f64
    }
}

/// One mean of two runs over the questions of which both know the value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PairedMean {
    /// Questions of which both know it.
    pub pairs: u64,
    /// Mean of a.
    pub a: f64,
    /// Mean of b.
    pub b: f64,
    /// 95 % bootstrap interval of the mean of b - a.
    pub interval: Interval,
}

impl PairedMean {
    fn of(pairs: &[(&TraceRow, &TraceRow)], value: fn(&TraceRow) -> Option<f64>) -> Option<Self> {
        let (a, b): (Vec<f64>, Vec<f64>) = pairs.iter().filter_map(|(a, b)| value(a).zip(value(b))).unzip();
        let differences: Vec<f64> = a.iter().zip(&b).map(|(a, b)| b - a).collect();
        Some(Self {
            pairs: a.len() as u64,
            a: mean(&a)?,
            b: mean(&b)?,
            interval: paired_bootstrap(&differences, BOOTSTRAP_SEED)?,
        })
    }

    /// Mean of b - a.
    pub fn difference(self) -> f64 {
        self.b - self.a
    }
}

/// Compares two runs, question by question.
///
/// # Errors
/// When the runs are over different datasets, or a question is in one of them only; names it.
pub fn compare(a: &Run, b: &Run) -> Result<Comparison> {
    same_dataset(a, b)?;
    let pairs = pair_by_query(a, b)?;
    let count = |same: fn(&TraceRow, &TraceRow) -> bool| pairs.iter().filter(|(a, b)| same(a, b)).count() as u64;
    let mean_of = |value| PairedMean::of(&pairs, value);
    Ok(Comparison {
        a: a.head().run_id.clone(),
        b: b.head().run_id.clone(),
        dataset: a.head().dataset.clone(),
        questions: pairs.len() as u64,
        same_predictions: count(|a, b| a.prediction == b.prediction),
        same_passages: count(|a, b| a.passages.iter().map(|p| p.passage).eq(b.passages.iter().map(|p| p.passage))),
        contain: PairedAccuracy::of(&pairs, |r| r.contain),
        contain_word: PairedAccuracy::of(&pairs, |r| r.contain_word),
        judge: PairedAccuracy::of(&pairs, judged),
        prompt_tokens: mean_of(|r| r.prompt_tokens.map(f64::from)),
        completion_tokens: mean_of(|r| r.completion_tokens.map(f64::from)),
        cost_usd: mean_of(|r| r.cost_usd),
    })
}

fn same_dataset(a: &Run, b: &Run) -> Result<()> {
    let differ = |what: &str, ours: &str, theirs: &str| {
        Error::request(format!(
            "the two runs are over different datasets: {what} is {ours} in {} and {theirs} in {}",
            a.folder.display(),
            b.folder.display()
        ))
        .with_hint("compare runs of one dataset, unchanged between them")
    };
    if a.head().dataset != b.head().dataset {
        return Err(differ("the name", &a.head().dataset, &b.head().dataset));
    }
    match (&a.manifest, &b.manifest) {
        (Some(ma), Some(mb)) if ma.dataset.fingerprint != mb.dataset.fingerprint => {
            Err(differ("the fingerprint", &ma.dataset.fingerprint, &mb.dataset.fingerprint))
        }
        _ => Ok(()),
    }
}

/// The rows of both runs by question id, in the order of a.
fn pair_by_query<'r>(a: &'r Run, b: &'r Run) -> Result<Vec<(&'r TraceRow, &'r TraceRow)>> {
    let missing = |id: &str, from: &Run, in_run: &Run| {
        Error::request(format!(
            "question `{id}` of {} is missing in {}",
            from.folder.display(),
            in_run.folder.display()
        ))
        .with_hint("compare runs over the same questions: the same limit, both finished")
    };
    let of_b: BTreeMap<&str, &TraceRow> = b.rows.iter().map(|r| (r.query_id.as_str(), r)).collect();
    let of_a: BTreeMap<&str, &TraceRow> = a.rows.iter().map(|r| (r.query_id.as_str(), r)).collect();
    if let Some(row) = b.rows.iter().find(|r| !of_a.contains_key(r.query_id.as_str())) {
        return Err(missing(&row.query_id, b, a));
    }
    a.rows
        .iter()
        .map(|row| {
            let other = of_b.get(row.query_id.as_str()).ok_or_else(|| missing(&row.query_id, a, b))?;
            Ok((row, *other))
        })
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::trace::fixture;

    /// Right answers as a string of 1 and 0, one character a question.
    fn run(folder: &str, right: &str) -> Run {
        let rows = (1..)
            .zip(right.chars())
            .map(|(t, c)| TraceRow { contain: Some(c == '1'), run_id: folder.into(), ..fixture::plain(t) })
            .collect();
        Run { folder: folder.into(), manifest: Some(fixture::manifest("living", right.len() as u64)), rows }
    }

    /// pitfall 38: the files are in different order; the pairs are by question.
    #[test]
    fn rows_are_joined_by_question_not_by_place() {
        let a = run("a", "1110000000");
        let mut b = run("b", "0111111000");
        b.rows.reverse();
        let c = compare(&a, &b).unwrap();
        let contain = c.contain.unwrap();
        assert_eq!((contain.both, contain.only_a, contain.only_b, contain.neither), (2, 1, 4, 3));
        assert_eq!((contain.percent_a(), contain.percent_b(), contain.difference()), (30.0, 60.0, 30.0));
        // 2 (C(5,0) + C(5,1)) / 2^5
        assert!((contain.p - 0.375).abs() < 1e-12);
        assert_eq!((c.questions, c.same_predictions, c.same_passages), (10, 10, 10));
        assert_eq!(c.judge, None);
    }

    /// pitfall 38: a question that is missing on either side is an error that names it.
    #[test]
    fn a_missing_question_is_named() {
        let a = run("a", "111");
        let mut b = run("b", "111");
        b.rows.remove(1);
        assert_eq!(compare(&a, &b).unwrap_err().to_string(), "question `q2` of a is missing in b");
        assert_eq!(compare(&b, &a).unwrap_err().to_string(), "question `q2` of a is missing in b");
    }

    /// pitfall 38: another dataset, or the same name with other files, is refused.
    #[test]
    fn another_dataset_is_refused() {
        let (a, mut b) = (run("a", "1"), run("b", "1"));
        b.manifest.as_mut().unwrap().dataset.fingerprint = "ffff".into();
        assert!(
            compare(&a, &b).unwrap_err().to_string().contains("the fingerprint is d47a5e7f00112233 in a and ffff in b")
        );
        b.rows[0].dataset = "other".into();
        assert!(compare(&a, &b).unwrap_err().to_string().contains("the name is toy in a and other in b"));
    }

    #[test]
    fn unscored_questions_and_unknown_tokens_are_left_out_and_counted() {
        let (mut a, mut b) = (run("a", "1100"), run("b", "1010"));
        b.rows[0].contain = None;
        a.rows[1].prompt_tokens = None;
        b.rows.iter_mut().for_each(|r| r.prompt_tokens = r.prompt_tokens.map(|n| n + 30));
        let c = compare(&a, &b).unwrap();
        let contain = c.contain.unwrap();
        assert_eq!((contain.pairs(), contain.unscored), (3, 1));
        let prompt = c.prompt_tokens.unwrap();
        assert_eq!((prompt.pairs, prompt.a, prompt.difference()), (3, 100.0, 30.0));
        assert_eq!(prompt.interval, Interval { low: 30.0, high: 30.0 });
        assert_eq!(c.cost_usd, None);
    }
}
