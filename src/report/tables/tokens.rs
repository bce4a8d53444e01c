//! Table 3: tokens and cost of linear and living; and the tokens of every run.
//!
//! In: sums by [`crate::analyse::tokens`]. Out: means a query, run costs and relative changes; the last row of table 3 weighs every
//! question the same.

use crate::analyse::Known;
use crate::analyse::tokens::{Tokens, relative_change, tokens};
use crate::report::labels::{Label, Labels, linear_and_living as pairs};
use crate::report::table::{Column, Table, Value};
use crate::trace::reader::Run;

/// Table 3: linear and living side by side.
pub fn linear_and_living(runs: &[&Run]) -> Option<Table> {
    let pairs = pairs(runs);
    let living: Vec<&Run> = pairs.iter().map(|(_, living)| *living).collect();
    let labels = Labels::telling_apart(&living, &[Label::Dataset]);
    let mut columns = labels.columns();
    columns.push(Column::numbers("queries", "Queries"));
    for (key, title) in [("prompt", "Prompt"), ("completion", "Completion"), ("cost_usd", "Run cost")] {
        columns.push(Column::numbers(format!("{key}_linear"), format!("{title}, linear")));
        columns.push(Column::numbers(format!("{key}_living"), format!("{title}, living")));
        columns.push(Column::numbers(format!("{key}_change"), format!("{title}, Δ %")));
        columns.push(Column::raw(format!("{key}_linear_known")));
        columns.push(Column::raw(format!("{key}_living_known")));
    }
    let mut table = Table::new("3", "Tokens a query and cost of a run, linear and living", columns);
    let mut sums = (Tokens::default(), Tokens::default());
    for (linear, living) in &pairs {
        let (a, b) = (tokens(&linear.rows), tokens(&living.rows));
        let mut row = labels.cells(living);
        row.extend(cells(&a, &b));
        table.push(row);
        note_known(&mut table, linear, &a);
        note_known(&mut table, living, &b);
        sums = (sums.0 + a, sums.1 + b);
    }
    if pairs.len() > 1 {
        let mut row = labels.cells_for("All, weighted by queries");
        row.extend(cells(&sums.0, &sums.1));
        table.push(row);
    }
    super::note_simulated(&mut table, runs);
    table.note("Δ = (living - linear) / linear.");
    table.if_any()
}

fn cells(linear: &Tokens, living: &Tokens) -> Vec<Value> {
    let mut cells = vec![Value::Count(living.prompt.of)];
    let change = |a: Known, b: Known| Value::change(relative_change(a.mean(), b.mean()));
    let known = |a: Known, b: Known| [Value::Count(a.known), Value::Count(b.known)];
    for (a, b) in [(linear.prompt, living.prompt), (linear.completion, living.completion)] {
        cells.extend([Value::number(a.mean(), 1), Value::number(b.mean(), 1), change(a, b)]);
        cells.extend(known(a, b));
    }
    let (a, b) = (linear.cost_usd, living.cost_usd);
    cells.extend([total_usd(a), total_usd(b), change(a, b)]);
    cells.extend(known(a, b));
    cells
}

/// The whole run's cost; missing unless every question's cost is known, since a partial sum is not the run's cost.
fn total_usd(cost: Known) -> Value {
    Value::usd((cost.known > 0 && cost.known == cost.of).then_some(cost.sum))
}

fn note_known(table: &mut Table, run: &Run, t: &Tokens) {
    let id = &run.head().run_id;
    for (what, k) in [("prompt tokens", t.prompt), ("completion tokens", t.completion), ("cost", t.cost_usd)] {
        if k.known > 0 && k.known < k.of {
            table.note(format!("{id}: {what} known of {} of {} queries; means are over those.", k.known, k.of));
        }
    }
    if t.estimated.hits > 0 {
        table.note(format!(
            "{id}: tokens of {} of {} queries are estimated, not reported.",
            t.estimated.hits, t.estimated.of
        ));
    }
}

/// Tokens and cost of every run, with cached and reasoning tokens apart.
pub fn by_run(runs: &[&Run]) -> Option<Table> {
    let labels = Labels::telling_apart(runs, &[Label::Dataset, Label::Method]);
    let mut columns = labels.columns();
    for (key, title) in [
        ("prompt", "Prompt"),
        ("cached", "of it cached"),
        ("completion", "Completion"),
        ("reasoning", "of it reasoning"),
        ("cost_usd", "Cost"),
    ] {
        columns.push(Column::numbers(key, title));
        columns.push(Column::raw(format!("{key}_total")));
        columns.push(Column::raw(format!("{key}_known")));
    }
    columns.push(Column::numbers("estimated_percent", "Estimated (%)"));
    columns.push(Column::raw("queries"));
    let mut table = Table::new("tokens", "Tokens and cost a query, by run", columns);
    for run in runs {
        let t = tokens(&run.rows);
        let mut row = labels.cells(run);
        for k in [t.prompt, t.cached, t.completion, t.reasoning] {
            row.push(Value::number(k.mean(), 1));
            row.extend(totals(k));
        }
        row.push(Value::usd(t.cost_usd.mean()));
        row.extend(totals(t.cost_usd));
        row.extend([Value::percent(t.estimated.percent()), Value::Count(t.estimated.of)]);
        table.push(row);
    }
    table.note("Means over the queries that know the number; a number nobody reported is missing, not 0.");
    table.if_any()
}

fn totals(k: Known) -> [Value; 2] {
    [Value::number((k.known > 0).then_some(k.sum), 0), Value::Count(k.known)]
}
