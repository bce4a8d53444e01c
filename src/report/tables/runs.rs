//! What ran: the datasets and the runs.
//!
//! In: runs and their manifests. Out: two tables; what a manifest would say and does not exist is missing.

use crate::report::labels::datasets as names;
use crate::report::table::{Column, Table, Value};
use crate::trace::manifest::{Manifest, ModelInfo};
use crate::trace::reader::Run;

/// Digits of a fingerprint that are printed; CSV has them all.
const FINGERPRINT_DIGITS: usize = 12;

/// Datasets with their counts, graphs and fingerprints; a row a distinct pair of dataset and index.
pub fn datasets(runs: &[&Run]) -> Option<Table> {
    let mut table = Table::new(
        "datasets",
        "Datasets",
        vec![
            Column::words("dataset", "Dataset"),
            Column::numbers("questions", "Questions"),
            Column::numbers("gold_known", "With gold passages"),
            Column::numbers("passages", "Passages"),
            Column::numbers("entities", "Entities"),
            Column::numbers("sentences", "Sentences"),
            Column::numbers("edges", "Edges"),
            Column::words("encoder", "Encoder"),
            Column::words("fingerprint", "Dataset fingerprint"),
            Column::words("index_fingerprint", "Index fingerprint"),
        ],
    );
    for name in names(runs) {
        let mut seen: Vec<(&str, &str)> = Vec::new();
        for m in runs.iter().filter(|r| r.head().dataset == name).filter_map(|r| r.manifest.as_ref()) {
            let key = (m.dataset.fingerprint.as_str(), m.index.fingerprint.as_str());
            if !seen.contains(&key) {
                seen.push(key);
                table.push(dataset_row(m));
            }
        }
    }
    table.if_any()
}

fn dataset_row(m: &Manifest) -> Vec<Value> {
    let short = |hash: &str| Value::text(hash.chars().take(FINGERPRINT_DIGITS).collect::<String>());
    vec![
        Value::text(&m.dataset.name),
        Value::Count(m.dataset.questions),
        Value::Count(m.dataset.gold_known),
        Value::Count(m.dataset.passages),
        Value::Count(m.index.entities),
        Value::Count(m.index.sentences),
        Value::Count(m.index.edges),
        Value::text(&m.index.encoder),
        short(&m.dataset.fingerprint),
        short(&m.index.fingerprint),
    ]
}

/// Every run with what answered, checked and judged.
pub fn runs(runs: &[&Run]) -> Option<Table> {
    let mut table = Table::new(
        "runs",
        "Runs",
        vec![
            Column::words("run_id", "Run"),
            Column::words("dataset", "Dataset"),
            Column::words("method", "Method"),
            Column::words("order", "Order"),
            Column::numbers("seed", "Seed"),
            Column::numbers("lag", "Lag"),
            Column::numbers("rows", "Rows"),
            Column::words("reader", "Reader"),
            Column::words("grounding", "Grounding"),
            Column::words("judge", "Judge"),
            Column::words("backend", "Backend"),
        ],
    );
    for run in runs {
        let head = run.head();
        let m = run.manifest.as_ref();
        let model = |of: fn(&Manifest) -> Option<&ModelInfo>| {
            m.and_then(of).map_or(Value::Missing, |i| Value::text(named(&i.name, &i.model)))
        };
        table.push(vec![
            Value::text(&head.run_id),
            Value::text(&head.dataset),
            Value::text(&head.method),
            Value::text(&head.order),
            Value::Count(head.seed),
            Value::Count(head.lag.into()),
            Value::Count(run.rows.len() as u64),
            m.map_or(Value::Missing, |m| Value::text(named(&m.generator.name, &m.generator.model))),
            model(|m| m.grounding.as_ref()),
            model(|m| m.judge.as_ref()),
            m.map_or(Value::Missing, |m| Value::text(&m.backend.name)),
        ]);
    }
    table.if_any()
}

/// `name`, or `name (model)` where there is a model.
fn named(name: &str, model: &str) -> String {
    if model.is_empty() { name.to_string() } else { format!("{name} ({model})") }
}
