//! How runs are told apart in a table, and which of them belong together.
//!
//! In: runs. Out: the fewest label columns that tell them apart (dataset always; method, order, seed, lag, settings, run id only when
//! needed), the order of rows, and pairs of a baseline and a living run.

use std::collections::BTreeSet;

use super::published;
use super::table::{Column, Value};
use crate::trace::reader::Run;

/// The methods in the order of the report; others follow by name.
pub const METHODS: [&str; 6] = ["vanilla", "linear", "living", "no_fusion", "no_scaffold", "no_gate"];

/// Something runs are told apart by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Label {
    /// Name of the dataset.
    Dataset,
    /// Name of the method.
    Method,
    /// Arrival order.
    Order,
    /// Seed.
    Seed,
    /// W.
    Lag,
    /// First digits of the settings' hash.
    Settings,
    /// The whole run id.
    Run,
}

impl Label {
    /// What a run's value of it is.
    pub fn of(self, run: &Run) -> String {
        let head = run.head();
        match self {
            Self::Dataset => head.dataset.clone(),
            Self::Method => head.method.clone(),
            Self::Order => head.order.clone(),
            Self::Seed => head.seed.to_string(),
            Self::Lag => head.lag.to_string(),
            Self::Settings => settings(run).chars().take(8).collect(),
            Self::Run => head.run_id.clone(),
        }
    }

    fn column(self) -> Column {
        match self {
            Self::Dataset => Column::words("dataset", "Dataset"),
            Self::Method => Column::words("method", "Method"),
            Self::Order => Column::words("order", "Order"),
            Self::Seed => Column::words("seed", "Seed"),
            Self::Lag => Column::words("lag", "Lag"),
            Self::Settings => Column::words("settings", "Settings"),
            Self::Run => Column::words("run_id", "Run"),
        }
    }
}

/// Hash of everything but method, order, seed and paths; empty when there is no manifest.
pub fn settings(run: &Run) -> &str {
    run.manifest.as_ref().map_or("", |m| m.settings.as_str())
}

/// The label columns of one table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Labels(Vec<Label>);

impl Labels {
    /// `always`, then as many more as it takes to tell the runs apart.
    pub fn telling_apart(runs: &[&Run], always: &[Label]) -> Self {
        let mut labels = always.to_vec();
        for label in [Label::Method, Label::Order, Label::Seed, Label::Lag, Label::Settings, Label::Run] {
            let unique: BTreeSet<_> = runs.iter().map(|r| values(&labels, r)).collect();
            if unique.len() == runs.len() {
                break;
            }
            let kinds: BTreeSet<String> = runs.iter().map(|r| label.of(r)).collect();
            if kinds.len() > 1 && !labels.contains(&label) {
                labels.push(label);
            }
        }
        Self(labels)
    }

    /// The same labels without one.
    pub fn without(&self, label: Label) -> Self {
        Self(self.0.iter().copied().filter(|l| *l != label).collect())
    }

    /// One column a label.
    pub fn columns(&self) -> Vec<Column> {
        self.0.iter().map(|l| l.column()).collect()
    }

    /// One value a label.
    pub fn cells(&self, run: &Run) -> Vec<Value> {
        values(&self.0, run).into_iter().map(Value::Text).collect()
    }

    /// The values in words, for example `living, shuffle:1`.
    pub fn words(&self, run: &Run) -> String {
        values(&self.0, run).join(", ")
    }

    /// A row that belongs to no single run: words in the first column, nothing in the others.
    pub fn cells_for(&self, words: &str) -> Vec<Value> {
        let mut cells = vec![Value::Missing; self.0.len()];
        if let Some(first) = cells.first_mut() {
            *first = Value::text(words);
        }
        cells
    }
}

fn values(labels: &[Label], run: &Run) -> Vec<String> {
    labels.iter().map(|l| l.of(run)).collect()
}

/// Runs in the order of the report: the paper's datasets first, then by method, order, seed and run id.
pub fn sorted(runs: &[Run]) -> Vec<&Run> {
    let mut sorted: Vec<&Run> = runs.iter().collect();
    sorted.sort_by_cached_key(|run| {
        let head = run.head();
        (published::place(&head.dataset, run.rows.len() as u64), head.dataset.clone(), rank(run))
    });
    sorted
}

/// Place of a run among those of its dataset: by method, the file's own order first, then seed and run id.
pub fn rank(run: &Run) -> impl Ord + use<> {
    let head = run.head();
    let method = METHODS.iter().position(|m| *m == head.method).unwrap_or(METHODS.len());
    let order = (head.order != "file", head.order.clone());
    (method, head.method.clone(), order, head.seed, head.run_id.clone())
}

/// The datasets of sorted runs, each once, in their order.
pub fn datasets<'r>(runs: &[&'r Run]) -> Vec<&'r str> {
    let mut names: Vec<&str> = Vec::new();
    for run in runs {
        if !names.contains(&run.head().dataset.as_str()) {
            names.push(&run.head().dataset);
        }
    }
    names
}

/// Each living run with the linear run of the same dataset, order and seed.
pub fn linear_and_living<'r>(runs: &[&'r Run]) -> Vec<(&'r Run, &'r Run)> {
    let living = runs.iter().copied().filter(|r| r.head().method == "living");
    living.filter_map(|living| Some((replicate_of_linear(living, runs)?, living))).collect()
}

/// The linear run of a run's dataset, order and seed: the one of equal settings, else the only one there is (a method without a store
/// does not depend on the store's settings).
pub fn replicate_of_linear<'r>(run: &Run, runs: &[&'r Run]) -> Option<&'r Run> {
    fn key(run: &Run) -> (&str, &str, u64) {
        (&run.head().dataset, &run.head().order, run.head().seed)
    }
    let same: Vec<&Run> = runs.iter().copied().filter(|l| l.head().method == "linear" && key(l) == key(run)).collect();
    let equal = same.iter().copied().find(|l| settings(l) == settings(run));
    equal.or(same.first().copied().filter(|_| same.len() == 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::fixture;
    use crate::trace::row::TraceRow;

    fn run(dataset: &str, method: &str, order: &str, seed: u64, settings: &str) -> Run {
        let id = format!("{dataset}-{method}-{order}-{seed}-{settings}");
        let mut manifest = fixture::manifest(method, 1);
        manifest.settings = settings.into();
        let head = TraceRow {
            run_id: id,
            dataset: dataset.into(),
            method: method.into(),
            order: order.into(),
            seed,
            ..fixture::plain(1)
        };
        Run { folder: "r".into(), manifest: Some(manifest), rows: vec![head] }
    }

    #[test]
    fn only_the_labels_that_are_needed() {
        let labels = |runs: &[Run]| {
            let runs: Vec<&Run> = runs.iter().collect();
            Labels::telling_apart(&runs, &[Label::Dataset]).0
        };
        assert_eq!(labels(&[run("a", "living", "file", 0, "s"), run("b", "living", "file", 0, "s")]), [Label::Dataset]);
        assert_eq!(
            labels(&[run("a", "living", "file", 0, "s"), run("a", "living", "file", 1, "s")]),
            [Label::Dataset, Label::Seed]
        );
        assert_eq!(
            labels(&[run("a", "living", "file", 0, "s"), run("a", "living", "file", 0, "t")]),
            [Label::Dataset, Label::Settings]
        );
    }

    #[test]
    fn rows_stand_in_the_papers_order() {
        let runs = [
            run("zoo", "linear", "file", 0, "s"),
            run("wixqa", "living", "file", 0, "s"),
            run("2wiki", "living", "reverse", 0, "s"),
            run("2wiki", "living", "file", 0, "s"),
            run("2wiki", "vanilla", "file", 0, "s"),
        ];
        let ids: Vec<&str> = sorted(&runs).iter().map(|r| r.head().run_id.as_str()).collect();
        assert_eq!(
            ids,
            [
                "2wiki-vanilla-file-0-s",
                "2wiki-living-file-0-s",
                "2wiki-living-reverse-0-s",
                "wixqa-living-file-0-s",
                "zoo-linear-file-0-s"
            ]
        );
    }

    #[test]
    fn a_living_run_is_paired_with_its_own_baseline() {
        let runs = [
            run("a", "linear", "file", 0, "s"),
            run("a", "linear", "file", 0, "t"),
            run("a", "linear", "reverse", 0, "s"),
            run("a", "living", "file", 0, "t"),
            run("a", "living", "file", 0, "u"),
            run("a", "living", "reverse", 0, "u"),
        ];
        let runs: Vec<&Run> = runs.iter().collect();
        let pairs: Vec<(String, String)> = linear_and_living(&runs)
            .into_iter()
            .map(|(a, b)| (a.head().run_id.clone(), b.head().run_id.clone()))
            .collect();
        let pair = |a: &str, b: &str| (a.to_string(), b.to_string());
        assert_eq!(
            pairs,
            [pair("a-linear-file-0-t", "a-living-file-0-t"), pair("a-linear-reverse-0-s", "a-living-reverse-0-u")]
        );
    }
}
