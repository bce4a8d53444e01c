//! Table 2: accuracy of every method on every dataset.
//!
//! In: scores by [`crate::analyse::accuracy`]. Out: a row a method, three columns a dataset; counts and Wilson intervals in CSV.

use crate::analyse::accuracy::{Accuracy, contain, contain_word, judge};
use crate::analyse::statistics::wilson;
use crate::report::labels::{Label, Labels, datasets, rank};
use crate::report::table::{Better, Column, Table, Value};
use crate::trace::reader::Run;
use crate::trace::row::TraceRow;

type Score = fn(&[TraceRow]) -> Option<Accuracy>;

/// Key, title, function.
const SCORES: [(&str, &str, Score); 3] =
    [("contain", "contain", contain), ("contain_word", "contain, words", contain_word), ("judge", "judge", judge)];

/// Accuracy in percent over all questions.
pub fn accuracy(runs: &[&Run]) -> Option<Table> {
    let labels = Labels::telling_apart(runs, &[Label::Dataset, Label::Method]);
    let row_labels = labels.without(Label::Dataset);
    let mut by_rank = runs.to_vec();
    by_rank.sort_by_cached_key(|run| rank(run));
    let mut row_names: Vec<(String, Vec<Value>)> = Vec::new();
    for run in by_rank {
        let words = row_labels.words(run);
        if !row_names.iter().any(|(known, _)| *known == words) {
            row_names.push((words, row_labels.cells(run)));
        }
    }

    // A score that no run has gets no column.
    let shown: Vec<_> =
        SCORES.into_iter().filter(|(_, _, score)| runs.iter().any(|r| score(&r.rows).is_some())).collect();
    let names = datasets(runs);
    let mut columns = row_labels.columns();
    for name in &names {
        for (key, title, _) in &shown {
            columns.push(Column::numbers(format!("{name}_{key}"), format!("{name} {title}")));
            for raw in ["correct", "unscored", "of", "low", "high"] {
                columns.push(Column::raw(format!("{name}_{key}_{raw}")));
            }
        }
    }
    let mut table = Table::new("2", "Accuracy (%)", columns);
    for (words, cells) in row_names {
        let mut row = cells;
        for name in &names {
            let run = runs.iter().find(|r| r.head().dataset == **name && row_labels.words(r) == words);
            for (_, title, score) in &shown {
                let found = run.and_then(|r| score(&r.rows));
                row.extend(cells_of(found));
                if let Some(a) = found.filter(|a| a.unscored > 0) {
                    table.note(unscored_note(name, &words, title, a));
                }
            }
        }
        table.push(row);
    }
    for name in &names {
        for (key, _, _) in &shown {
            table.mark(&format!("{name}_{key}"), Better::Higher, &[]);
        }
    }
    super::note_simulated(&mut table, runs);
    table.note("Over all questions of the stream; counts and 95 % Wilson intervals are in the CSV file.");
    (!shown.is_empty()).then_some(table)
}

fn cells_of(accuracy: Option<Accuracy>) -> Vec<Value> {
    let Some(a) = accuracy else { return vec![Value::Missing; 6] };
    let interval = wilson(a.share());
    vec![
        Value::percent(a.share().percent()),
        Value::Count(a.correct),
        Value::Count(a.unscored),
        Value::Count(a.of),
        Value::percent(interval.map(|i| 100.0 * i.low)),
        Value::percent(interval.map(|i| 100.0 * i.high)),
    ]
}

/// Says what the accuracy would be if every unscored answer were right, which bounds what is not known.
fn unscored_note(dataset: &str, row: &str, score: &str, a: Accuracy) -> String {
    let highest = 100.0 * (a.correct + a.unscored) as f64 / a.of as f64;
    format!(
        "{dataset}, {row}, {score}: {} of {} scored ({:.2} %); the {} unscored count as not correct, the accuracy is at most {highest:.2}.",
        a.coverage().hits,
        a.of,
        a.coverage().percent().unwrap_or(0.0),
        a.unscored
    )
}
