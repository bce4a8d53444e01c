//! Linear and living question by question, and any two runs that are compared.
//!
//! In: comparisons by [`crate::analyse::compare`]. Out: a row a measure; accuracies with McNemar's exact test, corrected by Holm over
//! the rows of the table, tokens and cost with the bootstrap interval.

use crate::analyse::compare::{Comparison, PairedAccuracy, PairedMean, compare};
use crate::analyse::statistics::{DRAWS, holm};
use crate::report::labels::{Label, Labels, linear_and_living};
use crate::report::table::{Column, Table, Value};
use crate::trace::reader::Run;

/// Every living run against its linear run.
pub fn paired(runs: &[&Run]) -> Option<Table> {
    let pairs = linear_and_living(runs);
    let living: Vec<&Run> = pairs.iter().map(|(_, living)| *living).collect();
    let labels = Labels::telling_apart(&living, &[Label::Dataset]);
    let mut table =
        Table::new("paired", "Living against linear, question by question", columns(&labels, "linear", "living"));
    let mut rows = Vec::new();
    for (linear, living) in &pairs {
        match compare(linear, living) {
            Ok(comparison) => rows.extend(measures(&comparison).into_iter().map(|m| (labels.cells(living), m))),
            Err(error) => table.note(format!("Not paired: {error}.")),
        }
    }
    fill(&mut table, rows);
    super::note_simulated(&mut table, runs);
    (!pairs.is_empty()).then_some(table)
}

/// Two runs, a the first.
pub fn comparison(c: &Comparison) -> Table {
    let labels = Labels::telling_apart(&[], &[]);
    let mut table = Table::new("compare", &format!("{}: b - a", c.dataset), columns(&labels, "a", "b"));
    fill(&mut table, measures(c).into_iter().map(|m| (vec![], m)).collect());
    table.note(format!("a = {}, b = {}", c.a, c.b));
    table.note(format!(
        "{} questions in both; {} with equal predictions, {} with equal passages.",
        c.questions, c.same_predictions, c.same_passages
    ));
    table
}

fn columns(labels: &Labels, a: &str, b: &str) -> Vec<Column> {
    let mut columns = labels.columns();
    columns.extend([
        Column::words("measure", "Measure"),
        Column::numbers("pairs", "Pairs"),
        Column::numbers("a", a),
        Column::numbers("b", b),
        Column::numbers("difference", "Difference"),
        Column::numbers("low", "95 % low"),
        Column::numbers("high", "95 % high"),
        Column::numbers("only_a", format!("Only {a} right")),
        Column::numbers("only_b", format!("Only {b} right")),
        Column::numbers("p", "p"),
        Column::numbers("p_holm", "p (Holm)"),
        Column::raw("unscored"),
    ]);
    columns
}

/// One measure of a comparison.
enum Measured {
    Accuracy(&'static str, PairedAccuracy),
    Mean(&'static str, usize, PairedMean),
}

fn measures(c: &Comparison) -> Vec<Measured> {
    let accuracies =
        [("Contain acc. (%)", c.contain), ("Contain acc., words (%)", c.contain_word), ("Judge acc. (%)", c.judge)];
    let means = [
        ("Prompt tokens", 1, c.prompt_tokens),
        ("Completion tokens", 1, c.completion_tokens),
        ("Cost (USD)", 6, c.cost_usd),
    ];
    let accuracies = accuracies.into_iter().filter_map(|(name, a)| a.map(|a| Measured::Accuracy(name, a)));
    let means = means.into_iter().filter_map(|(name, digits, m)| m.map(|m| Measured::Mean(name, digits, m)));
    accuracies.chain(means).collect()
}

fn fill(table: &mut Table, rows: Vec<(Vec<Value>, Measured)>) {
    let p_values: Vec<f64> =
        rows.iter().filter_map(|(_, m)| if let Measured::Accuracy(_, a) = m { Some(a.p) } else { None }).collect();
    let mut adjusted = holm(&p_values).into_iter();
    for (mut row, measured) in rows {
        match measured {
            Measured::Accuracy(name, a) => row.extend([
                Value::text(name),
                Value::Count(a.pairs()),
                Value::Percent(a.percent_a()),
                Value::Percent(a.percent_b()),
                Value::Change(a.difference()),
                Value::Missing,
                Value::Missing,
                Value::Count(a.only_a),
                Value::Count(a.only_b),
                Value::P(a.p),
                adjusted.next().map_or(Value::Missing, Value::P),
                Value::Count(a.unscored),
            ]),
            Measured::Mean(name, digits, m) => {
                row.extend([Value::text(name), Value::Count(m.pairs)]);
                row.extend(
                    [m.a, m.b, m.difference(), m.interval.low, m.interval.high].map(|x| Value::Number(x, digits)),
                );
                row.extend(vec![Value::Missing; 5]);
            }
        }
        table.push(row);
    }
    table.note(format!(
        "Accuracies: McNemar's exact test on the discordant questions, Holm over the rows; tokens and cost: 95 % of {DRAWS} paired \
         bootstrap draws."
    ));
}
