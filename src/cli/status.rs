//! `livingrag status`: how far a sweep is, from another shell.
//!
//! In: results folders. Out: a line a dataset and the failed runs on standard output. Never in the way of a process that works.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::progress::readable;
use super::{Global, output};
use crate::Result;
use crate::report::table::{Column, Table, Value};
use crate::report::text;
use crate::sweep::ledger::State;
use crate::sweep::status::{self as look, SweepStatus};

/// Says how far the runs of a results folder are
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  livingrag status results/ablation")]
pub struct StatusArgs {
    /// Folders of sweeps, or of runs
    #[arg(required = true, value_name = "RESULTS-DIR")]
    pub results: Vec<PathBuf>,
    /// A line a run
    #[arg(long)]
    pub runs: bool,
}

/// Prints the status.
pub fn status(args: &StatusArgs, _global: &Global) -> Result<()> {
    for folder in &args.results {
        let found = look::status(folder)?;
        let title = folder.display().to_string();
        output::data(
            text::render(&if args.runs { by_run(&title, &found) } else { by_dataset(&title, &found) }).trim_end(),
        )?;
        for failed in &found.failed {
            output::data(&format!("failed: {} after {} queries: {}", failed.run_id, failed.after, failed.error))?;
        }
    }
    Ok(())
}

fn percent(done: usize, total: usize) -> Value {
    Value::percent((total > 0).then(|| 100.0 * done as f64 / total as f64))
}

fn ago(idle: Option<Duration>) -> Value {
    idle.map_or(Value::Missing, |time| Value::text(format!("{} ago", readable(time))))
}

fn by_dataset(title: &str, found: &SweepStatus) -> Table {
    let mut columns = vec![Column::words("dataset", "Dataset")];
    for (key, title) in [
        ("runs", "Runs"),
        ("finished", "Finished"),
        ("begun", "Begun"),
        ("waiting", "Waiting"),
        ("failed", "Failed"),
        ("queries", "Queries"),
        ("of", "of"),
        ("percent", "%"),
    ] {
        columns.push(Column::numbers(key, title));
    }
    columns.push(Column::words("commit", "Last commit"));
    let mut table = Table::new("status", title, columns);
    for d in found.datasets() {
        let mut row = vec![Value::text(&d.dataset)];
        row.extend([d.runs, d.finished, d.begun, d.waiting, d.failed, d.done, d.total].map(|n| Value::Count(n as u64)));
        row.extend([percent(d.done, d.total), ago(d.idle)]);
        table.push(row);
    }
    table
}

fn by_run(title: &str, found: &SweepStatus) -> Table {
    let columns = vec![
        Column::words("run", "Run"),
        Column::words("state", "State"),
        Column::numbers("queries", "Queries"),
        Column::numbers("of", "of"),
        Column::numbers("percent", "%"),
        Column::words("commit", "Last commit"),
    ];
    let mut table = Table::new("status", title, columns);
    for run in &found.runs {
        let state = match run.state {
            State::New => "waiting",
            State::Begun => "begun",
            State::Failed(_) => "failed",
            State::Finished => "finished",
        };
        table.push(vec![
            Value::text(&run.run_id),
            Value::text(state),
            Value::Count(run.done as u64),
            Value::Count(run.total as u64),
            percent(run.done, run.total),
            ago(run.idle),
        ]);
    }
    table
}
