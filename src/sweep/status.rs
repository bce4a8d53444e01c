//! How far a sweep is, seen from outside.
//!
//! In: a results folder, from another shell or while nothing runs. Out: counts a dataset and the runs that failed. Only reads: takes no
//! lock, so it can never be in the way of a process that works.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::Deserialize;

use super::ledger::{self, Failed, State};
use super::manifest;
use crate::replay::{JOURNAL_FILE, ORDER_FILE};
use crate::trace::manifest::{MANIFEST_FILE, Manifest};
use crate::{Error, Result};

/// One run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunStatus {
    /// Its id.
    pub run_id: String,
    /// The dataset's name; the first part of the id where nothing says it.
    pub dataset: String,
    /// Its state.
    pub state: State,
    /// Queries committed.
    pub done: usize,
    /// Queries of its stream; 0 when nothing says.
    pub total: usize,
    /// Time since its last commit, where it is not finished.
    pub idle: Option<Duration>,
}

/// The runs of one dataset.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DatasetStatus {
    /// The dataset's name.
    pub dataset: String,
    /// All runs.
    pub runs: usize,
    /// Finished ones.
    pub finished: usize,
    /// Begun and not finished.
    pub begun: usize,
    /// Failed.
    pub failed: usize,
    /// Not begun.
    pub waiting: usize,
    /// Queries committed.
    pub done: usize,
    /// Queries of all runs.
    pub total: usize,
    /// Time since the last commit of any run that is begun.
    pub idle: Option<Duration>,
}

/// A whole folder.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SweepStatus {
    /// Every run, by dataset and id.
    pub runs: Vec<RunStatus>,
    /// Those that failed.
    pub failed: Vec<Failed>,
}

/// Looks at a sweep's folder, or any folder of run folders.
///
/// # Errors
/// A folder without runs, a file that cannot be read.
pub fn status(folder: &Path) -> Result<SweepStatus> {
    let mut names: BTreeMap<String, (String, usize)> = BTreeMap::new();
    for manifest in manifest::read_all(folder)? {
        names.extend(manifest.runs.into_iter().map(|r| (r.run_id, (r.dataset, r.queries))));
    }
    for run in run_folders(folder)? {
        let id = run.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        names.entry(id).or_insert_with_key(|id| (id.split('-').next().unwrap_or_default().to_owned(), 0));
    }
    if names.is_empty() {
        return Err(Error::request(format!("{} holds no sweep and no run", folder.display()))
            .with_hint("give the folder that `livingrag sweep` or `livingrag run --out` writes into"));
    }
    let mut out = SweepStatus::default();
    for (run_id, (dataset, queries)) in names {
        let run = look(&folder.join(&run_id), run_id, dataset, queries)?;
        if let State::Failed(failed) = &run.state {
            out.failed.push(failed.clone());
        }
        out.runs.push(run);
    }
    out.runs.sort_by(|a, b| (&a.dataset, &a.run_id).cmp(&(&b.dataset, &b.run_id)));
    Ok(out)
}

fn run_folders(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut out = Vec::new();
    for entry in fs::read_dir(folder).map_err(|e| Error::io("read", folder, e))? {
        let path = entry.map_err(|e| Error::io("read", folder, e))?.path();
        let files = [MANIFEST_FILE, JOURNAL_FILE, ORDER_FILE, ledger::FAILED_FILE];
        if path.is_dir() && files.iter().any(|name| path.join(name).is_file()) {
            out.push(path);
        }
    }
    Ok(out)
}

fn look(folder: &Path, run_id: String, dataset: String, queries: usize) -> Result<RunStatus> {
    let state = ledger::state(folder)?;
    let mut run = RunStatus { run_id, dataset, state, done: 0, total: queries, idle: None };
    if run.state == State::Finished {
        let manifest = Manifest::read(folder)?;
        run.done = usize::try_from(manifest.rows).unwrap_or(usize::MAX);
        run.total = run.done;
        run.dataset = manifest.dataset.name;
        return Ok(run);
    }
    if let Some((records, age)) = journal(&folder.join(JOURNAL_FILE))? {
        run.done = records;
        run.idle = Some(age);
    }
    if run.total == 0 {
        run.total = order_length(&folder.join(ORDER_FILE));
    }
    Ok(run)
}

/// Whole records of a journal, and its age. A run may end while we look, so a journal that is gone is no error.
fn journal(path: &Path) -> Result<Option<(usize, Duration)>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::io("read", path, e)),
    };
    let changed = file.metadata().and_then(|m| m.modified()).map_err(|e| Error::io("read", path, e))?;
    let mut reader = BufReader::with_capacity(1 << 16, file);
    let mut lines = 0_usize;
    loop {
        let bytes = reader.fill_buf().map_err(|e| Error::io("read", path, e))?;
        if bytes.is_empty() {
            break;
        }
        lines += bytes.iter().filter(|&&b| b == b'\n').count();
        let read = bytes.len();
        reader.consume(read);
    }
    // The first line is the header.
    Ok(Some((lines.saturating_sub(1), SystemTime::now().duration_since(changed).unwrap_or_default())))
}

fn order_length(path: &Path) -> usize {
    #[derive(Deserialize)]
    struct Order {
        query_ids: Vec<serde::de::IgnoredAny>,
    }
    let text = fs::read(path).unwrap_or_default();
    serde_json::from_slice::<Order>(&text).map_or(0, |order| order.query_ids.len())
}

impl SweepStatus {
    /// A line a dataset, by name.
    pub fn datasets(&self) -> Vec<DatasetStatus> {
        let mut out: BTreeMap<&str, DatasetStatus> = BTreeMap::new();
        for run in &self.runs {
            let d = out.entry(&run.dataset).or_default();
            d.dataset.clone_from(&run.dataset);
            d.runs += 1;
            d.done += run.done;
            d.total += run.total;
            match run.state {
                State::Finished => d.finished += 1,
                State::Begun => d.begun += 1,
                State::Failed(_) => d.failed += 1,
                State::New => d.waiting += 1,
            }
            if let (State::Begun, Some(idle)) = (&run.state, run.idle) {
                d.idle = Some(d.idle.map_or(idle, |known| known.min(idle)));
            }
        }
        out.into_values().collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::replay::journal::{Header, Journal, Record};
    use crate::trace::fixture;

    #[test]
    fn it_counts_while_another_holds_the_journal() {
        let folder = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let path = folder.path().join(name);
            fs::create_dir(&path).unwrap();
            path
        };
        let whole = make("demo-a");
        let mut manifest = fixture::manifest("living", 5);
        manifest.dataset.name = "demo".into();
        manifest.write(&whole).unwrap();
        let begun = make("demo-b");
        fs::write(begun.join(ORDER_FILE), r#"{"order": "file", "query_ids": ["a", "b", "c", "d"]}"#).unwrap();
        let mut journal = Journal::create(&begun.join(JOURNAL_FILE), &Header::new("b", "i")).unwrap();
        let records: Vec<Record> =
            (1..=3).map(|t| Record { row: fixture::row(t), experience: None, spent: None }).collect();
        journal.append(&records).unwrap();
        let failed = Failed { run_id: "demo-c".into(), after: 2, error: "error: gone".into() };
        ledger::write_failed(&folder.path().join("demo-c"), &failed).unwrap();
        make("indexes");

        let found = status(folder.path()).unwrap();
        assert_eq!(found.failed, [failed]);
        let d = &found.datasets()[0];
        assert_eq!((d.runs, d.finished, d.begun, d.failed, d.waiting), (3, 1, 1, 1, 0));
        assert_eq!((d.done, d.total), (8, 9));
        assert!(d.idle.is_some());
        drop(journal);
        assert!(status(&folder.path().join("indexes")).unwrap_err().report().contains("holds no sweep"));
    }
}
