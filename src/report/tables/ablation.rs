//! Table 5: what each part of living is worth.
//!
//! In: runs of living and its ablations, with linear as the baseline. Out: a row a method (and settings), accuracy by dataset, and the
//! reduction of completion tokens against linear, summed over the streams as in the paper. Several orders or seeds are averaged.

use crate::analyse::accuracy::{Accuracy, contain, judge};
use crate::analyse::tokens::tokens;
use crate::report::labels::{METHODS, datasets, replicate_of_linear, settings};
use crate::report::table::{Better, Column, Table, Value};
use crate::trace::reader::Run;
use crate::trace::row::TraceRow;

type Score = fn(&[TraceRow]) -> Option<Accuracy>;

const SCORES: [(&str, &str, Score); 2] = [("contain", "contain", contain), ("judge", "judge", judge)];

/// Methods and settings of one row.
type RowKey<'r> = (&'r str, &'r str);

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Completion tokens of the runs and of their baselines; `None` unless every run has a baseline and all tokens are known.
fn tokens_against_linear(runs: &[&Run], all: &[&Run]) -> Option<(f64, f64)> {
    let (mut own, mut linear) = (0.0, 0.0);
    for run in runs {
        let known = |run: &Run| {
            let completion = tokens(&run.rows).completion;
            (completion.known > 0 && completion.known == completion.of).then_some(completion.sum)
        };
        own += known(run)?;
        linear += known(replicate_of_linear(run, all)?)?;
    }
    (linear > 0.0).then_some((own, linear))
}

/// 1 - tokens / tokens of linear, in percent.
fn reduction((own, linear): (f64, f64)) -> f64 {
    100.0 * (1.0 - own / linear)
}

/// Table 5; only where an ablation ran.
pub fn ablation(runs: &[&Run]) -> Option<Table> {
    if !runs.iter().any(|run| run.head().method.starts_with("no_")) {
        return None;
    }
    let mut rows: Vec<RowKey> = Vec::new();
    for run in runs {
        let key = (run.head().method.as_str(), settings(run));
        if !rows.contains(&key) {
            rows.push(key);
        }
    }
    let place = |method: &str| METHODS.iter().position(|m| *m == method).unwrap_or(METHODS.len());
    rows.sort_by_key(|(method, _)| place(method));
    // Settings differ between datasets already by their presets, so a method has several rows only if one dataset has several.
    let names = datasets(runs);
    let several = rows.iter().any(|(method, settings_a)| {
        names.iter().any(|name| {
            let of = |s: &str| {
                runs.iter().any(|r| r.head().dataset == **name && r.head().method == *method && settings(r) == s)
            };
            rows.iter()
                .any(|(m, settings_b)| m == method && settings_a != settings_b && of(settings_a) && of(settings_b))
        })
    });
    if !several {
        for row in &mut rows {
            row.1 = "";
        }
        rows.dedup();
    }
    let shown: Vec<_> =
        SCORES.into_iter().filter(|(_, _, score)| runs.iter().any(|r| score(&r.rows).is_some())).collect();
    let mut columns = vec![Column::words("method", "Method")];
    if several {
        columns.push(Column::words("settings", "Settings"));
    }
    for name in &names {
        for (key, title, _) in &shown {
            columns.push(Column::numbers(format!("{name}_{key}"), format!("{name} {title}")));
        }
        columns.push(Column::raw(format!("{name}_reduction")));
        columns.push(Column::raw(format!("{name}_runs")));
    }
    columns.push(Column::numbers("reduction", "Red. (%)"));
    let mut table = Table::new("5", "Ablation: accuracy (%) and reduction of completion tokens", columns);
    let mut averaged = false;
    for (method, setting) in rows {
        let mut row = vec![Value::text(method)];
        if several {
            row.push(Value::text(setting.chars().take(8).collect::<String>()));
        }
        let of_row: Vec<&Run> = runs
            .iter()
            .copied()
            .filter(|r| r.head().method == method && (!several || settings(r) == setting))
            .collect();
        for name in &names {
            let here: Vec<&Run> = of_row.iter().copied().filter(|r| r.head().dataset == **name).collect();
            averaged |= here.len() > 1;
            for (_, _, score) in &shown {
                let values: Vec<f64> =
                    here.iter().filter_map(|r| score(&r.rows).and_then(|a| a.share().percent())).collect();
                row.push(Value::percent(mean(&values)));
            }
            let against = if here.is_empty() { None } else { tokens_against_linear(&here, runs) };
            row.push(Value::number(against.map(reduction), 2));
            row.push(Value::Count(here.len() as u64));
        }
        row.push(Value::number(tokens_against_linear(&of_row, runs).map(reduction), 2));
        table.push(row);
    }
    for name in &names {
        for (key, _, _) in &shown {
            table.mark(&format!("{name}_{key}"), Better::Higher, &[]);
        }
    }
    table.mark("reduction", Better::Higher, &[]);
    if averaged {
        table.note("Means over the orders and seeds of a method; table 18 has every one of them.");
    }
    super::note_simulated(&mut table, runs);
    table.note("Red. = 1 - completion tokens / completion tokens of linear, both summed over all streams.");
    table.if_any()
}
