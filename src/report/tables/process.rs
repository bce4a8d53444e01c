//! How the runs went: retrieval of gold passages, fallbacks and call statuses, and time (table 15).
//!
//! In: numbers by [`crate::analyse`]. Out: a row a run.

use std::collections::BTreeSet;

use crate::analyse::retrieval::{DEPTHS, retrieval as score};
use crate::analyse::runtime::runtime as times;
use crate::analyse::status::{STATUSES, status_counts};
use crate::report::labels::{Label, Labels};
use crate::report::table::{Better, Column, Table, Value};
use crate::trace::reader::Run;

/// Recall, hit rate and MRR of the gold passages in the ranking.
pub fn retrieval(runs: &[&Run]) -> Option<Table> {
    let scored: Vec<_> = runs.iter().filter_map(|r| score(&r.rows).map(|s| (*r, s))).collect();
    let runs: Vec<&Run> = scored.iter().map(|(run, _)| *run).collect();
    let labels = Labels::telling_apart(&runs, &[Label::Dataset, Label::Method]);
    let mut columns = labels.columns();
    columns.push(Column::numbers("with_gold", "Queries with gold"));
    columns.extend(DEPTHS.map(|k| Column::numbers(format!("recall_{k}"), format!("R@{k}"))));
    // People see hit and MRR at the reader's usual 5 and MRR at full depth; CSV has every depth.
    columns.extend(DEPTHS.map(|k| shown_if(k == 5, format!("hit_{k}"), format!("Hit@{k}"))));
    columns.extend(DEPTHS.map(|k| shown_if(k == 5 || k == 20, format!("mrr_{k}"), format!("MRR@{k}"))));
    let mut table = Table::new("retrieval", "Retrieval of gold passages (%)", columns);
    for (run, s) in &scored {
        let mut row = labels.cells(run);
        row.push(Value::Count(s.with_gold));
        row.extend([s.recall, s.hit, s.mrr].concat().into_iter().map(|x| Value::Percent(100.0 * x)));
        table.push(row);
    }
    for key in ["recall", "hit", "mrr"].iter().flat_map(|m| DEPTHS.map(|k| format!("{m}_{k}"))) {
        table.mark(&key, Better::Higher, &["dataset"]);
    }
    table.note("Means over the queries whose gold passages are known.");
    table.if_any()
}

fn shown_if(shown: bool, key: String, title: String) -> Column {
    Column { csv_only: !shown, ..Column::numbers(key, title) }
}

/// Fallbacks of retrieval and statuses of the reader's calls.
pub fn status(runs: &[&Run]) -> Option<Table> {
    let counted: Vec<_> = runs.iter().map(|r| (*r, status_counts(&r.rows))).collect();
    let reasons: BTreeSet<&String> = counted.iter().flat_map(|(_, c)| c.fallbacks.keys()).collect();
    let labels = Labels::telling_apart(runs, &[Label::Dataset, Label::Method]);
    let mut columns = labels.columns();
    columns.push(Column::numbers("queries", "Queries"));
    columns.extend(reasons.iter().map(|r| Column::numbers(format!("fallback_{r}"), format!("`{r}`"))));
    columns.extend(STATUSES.map(|s| Column::numbers(format!("call_{}", s.as_str()), format!("Calls {}", s.as_str()))));
    let mut table = Table::new("status", "Fallbacks of retrieval and statuses of the reader's calls", columns);
    for (run, c) in &counted {
        let mut row = labels.cells(run);
        row.push(Value::Count(run.rows.len() as u64));
        row.extend(reasons.iter().map(|r| Value::Count(c.fallbacks.get(*r).copied().unwrap_or(0))));
        row.extend(c.calls.map(Value::Count));
        table.push(row);
    }
    table.note("A fallback is a query that was ranked by dense cosine instead of the graph.");
    table.if_any()
}

/// Table 15: averages a query, in milliseconds.
pub fn runtime(runs: &[&Run]) -> Option<Table> {
    let timed: Vec<_> = runs.iter().filter_map(|r| times(&r.rows).map(|t| (*r, t))).collect();
    let runs: Vec<&Run> = timed.iter().map(|(run, _)| *run).collect();
    let labels = Labels::telling_apart(&runs, &[Label::Dataset, Label::Method]);
    let mut columns = labels.columns();
    columns.extend([
        Column::numbers("llm_ms", "LLM ms/q"),
        Column::numbers("retrieval_ms", "Retrieval ms/q"),
        Column::numbers("retrieval_over_llm_percent", "Retrieval / LLM (%)"),
        Column::numbers("validation_ms", "Validation ms/q"),
        Column::numbers("novelty_ms", "of it novelty"),
        Column::raw("grounding_ms"),
        Column::numbers("judge_ms", "Judge ms/q"),
    ]);
    let mut table = Table::new("15", "Time a query", columns);
    for (run, t) in &timed {
        let ms = |known: crate::analyse::Known| Value::number(known.mean().map(|us| us / 1000.0), 3);
        let ratio = t.retrieval.mean().zip(t.llm.mean()).filter(|(_, llm)| *llm > 0.0).map(|(r, llm)| 100.0 * r / llm);
        let mut row = labels.cells(run);
        row.extend([ms(t.llm), ms(t.retrieval), Value::percent(ratio), ms(t.validation), ms(t.novelty)]);
        row.extend([ms(t.grounding), ms(t.judge)]);
        table.push(row);
    }
    table.note(
        "Averages over the timed queries; indexing and loading are not in them. Validation is novelty and grounding.",
    );
    table.if_any()
}
