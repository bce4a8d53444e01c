//! The tables of a report, one file a group.
//!
//! In: runs in the report's order. Out: [`Table`]s with their numbers as in the paper; a table that no run can fill is left out.

mod ablation;
mod accuracy;
mod experience;
mod orders;
mod paired;
mod process;
mod runs;
mod tokens;

pub use paired::comparison;

use super::table::Table;
use crate::trace::reader::Run;

/// Makes one table, or nothing where no run has the data.
type Builder = fn(&[&Run]) -> Option<Table>;

/// Every table by its id, in the order of the report.
const TABLES: [(&str, Builder); 15] = [
    ("datasets", runs::datasets),
    ("runs", runs::runs),
    ("2", accuracy::accuracy),
    ("paired", paired::paired),
    ("3", tokens::linear_and_living),
    ("tokens", tokens::by_run),
    ("5", ablation::ablation),
    ("1", experience::opportunities),
    ("4", experience::realised),
    ("6", experience::gates),
    ("16", experience::coverage),
    ("retrieval", process::retrieval),
    ("status", process::status),
    ("15", process::runtime),
    ("18", orders::orders),
];

/// The ids of all tables, in the order of the report.
pub fn ids() -> impl Iterator<Item = &'static str> {
    TABLES.iter().map(|(id, _)| *id)
}

/// The tables that the runs can fill, those named by `wanted` only (all when it is empty).
pub fn build(runs: &[&Run], wanted: &[String]) -> Vec<Table> {
    TABLES
        .iter()
        .filter(|(id, _)| wanted.is_empty() || wanted.iter().any(|w| w == id))
        .filter_map(|(_, builder)| builder(runs))
        .collect()
}

/// A note where some of the rows were answered by the simulated reader.
fn note_simulated(table: &mut Table, runs: &[&Run]) {
    if runs.iter().any(|run| super::header::is_simulated(run)) {
        table
            .note("Simulated reader: the answers are made from gold data, so these numbers measure no language model.");
    }
}
