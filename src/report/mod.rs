//! Reports: what traces say, as tables and figures.
//!
//! In: run folders. Out: `report.md`, `tables/*.csv`, `figures/*.svg`, and a short text for the terminal. Everything is made from
//! traces and manifests alone; no time or path enters a file, so equal traces give equal reports.
//!
//! [`analyse`](crate::analyse) counts, [`tables`] arrange, and one module a format prints ([`markdown`], [`csv`], [`text`]).

pub mod csv;
pub mod figure;
pub mod figures;
pub mod header;
pub mod labels;
pub mod markdown;
pub mod published;
pub mod table;
pub mod tables;
pub mod text;

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use figures::Figure;
use table::Table;

use crate::analyse::alarms::alarms;
use crate::trace::atomic;
use crate::trace::reader::{self, Run};
use crate::{Error, Result};

/// Tables that the terminal shows.
const ON_TERMINAL: [&str; 5] = ["2", "3", "4", "6", "retrieval"];

/// How a report is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `report.md` with its figures.
    Markdown,
    /// One CSV file a table.
    Csv,
}

impl Format {
    /// Every format.
    pub const ALL: [Self; 2] = [Self::Markdown, Self::Csv];

    /// The name on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Markdown => "md",
            Self::Csv => "csv",
        }
    }
}

impl FromStr for Format {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|f| f.as_str() == name)
            .ok_or_else(|| unknown("report format", name, Self::ALL.into_iter().map(Self::as_str)))
    }
}

fn unknown<'a>(what: &str, found: &str, known: impl Iterator<Item = &'a str>) -> Error {
    let known: Vec<&str> = known.collect();
    Error::request(format!("there is no {what} `{found}`")).with_hint(format!("known: {}", known.join(", ")))
}

/// What a report should hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The formats to write.
    pub formats: Vec<Format>,
    /// Ids of the tables; empty is all.
    pub tables: Vec<String>,
    /// Ids of the figures; empty is all.
    pub figures: Vec<String>,
    /// Whether unfinished runs are taken as they are.
    pub partial: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { formats: Format::ALL.to_vec(), tables: vec![], figures: vec![], partial: false }
    }
}

impl Options {
    /// # Errors
    /// When a table or figure does not exist; names the known ones.
    fn check(&self) -> Result<()> {
        if let Some(id) = self.tables.iter().find(|id| !tables::ids().any(|known| known == *id)) {
            return Err(unknown("table", id, tables::ids()));
        }
        if let Some(id) = self.figures.iter().find(|id| !figures::IDS.contains(&id.as_str())) {
            return Err(unknown("figure", id, figures::IDS.into_iter()));
        }
        Ok(())
    }
}

/// Everything a report says, before any format.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Its title.
    pub title: String,
    /// What is wrong or not whole.
    pub warnings: Vec<String>,
    /// What ran and under which form.
    pub statements: Vec<String>,
    /// Its tables.
    pub tables: Vec<Table>,
    /// Its figures.
    pub figures: Vec<Figure>,
}

impl Report {
    /// The report of these runs.
    pub fn of(runs: &[Run], options: &Options) -> Self {
        let runs = labels::sorted(runs);
        let datasets = labels::datasets(&runs);
        let count = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        Self {
            title: format!("livingrag report: {} on {}", count(runs.len(), "run"), datasets.join(", ")),
            warnings: header::warnings(&runs),
            statements: header::statements(&runs),
            tables: tables::build(&runs, &options.tables),
            figures: figures::build(&runs, &options.figures),
        }
    }

    /// The main tables as text for a terminal, or those that were asked for.
    fn terminal_text(&self, options: &Options) -> String {
        let mut parts: Vec<String> = self.warnings.iter().map(|w| format!("warning: {w}\n")).collect();
        parts.extend(self.statements.iter().filter(|s| s.starts_with("**")).map(|s| s.replace("**", "") + "\n"));
        let shown = self.tables.iter().filter(|t| !options.tables.is_empty() || ON_TERMINAL.contains(&t.id.as_str()));
        parts.extend(shown.map(text::render));
        parts.join("\n")
    }
}

/// What [`build`] made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportSummary {
    /// The files written, `report.md` first where there is one.
    pub files: Vec<PathBuf>,
    /// Text for standard output.
    pub stdout_text: String,
}

/// Reads the runs meant by `paths` (trace files, run folders, sweep folders) and writes their report into `out`.
///
/// # Errors
/// When a run cannot be read or is not finished (unless `options.partial`), a table or figure does not exist, or `out` cannot be
/// written.
pub fn build(paths: &[PathBuf], out: &Path, options: &Options) -> Result<ReportSummary> {
    options.check()?;
    let (runs, without_trace) = reader::read_runs(paths, options.partial)?;
    let mut report = Report::of(&runs, options);
    report.warnings.extend(
        without_trace.iter().map(|folder| format!("{}: left out, it has no traces.parquet yet", folder.display())),
    );
    let files = write(&report, out, options)?;
    Ok(ReportSummary { files, stdout_text: report.terminal_text(options) })
}

/// Compares two runs question by question; text for standard output, and what is plainly wrong with either.
///
/// # Errors
/// As [`crate::analyse::compare::compare`], and when a run cannot be read or either path holds more than one.
pub fn compare(a: &Path, b: &Path) -> Result<(String, Vec<String>)> {
    let (a, b) = (one_run(a)?, one_run(b)?);
    let mut comparison = crate::analyse::compare::compare(&a, &b)?;
    if comparison.a == comparison.b {
        // The same plan run twice: only their folders tell them apart.
        comparison.a = a.folder.display().to_string();
        comparison.b = b.folder.display().to_string();
    }
    let alarms = [&a, &b].into_iter().flat_map(alarms).collect();
    Ok((text::render(&tables::comparison(&comparison)), alarms))
}

fn one_run(path: &Path) -> Result<Run> {
    let folders = reader::find_run_folders(&[path.to_path_buf()])?;
    match folders.as_slice() {
        [folder] => reader::read_run(folder, false),
        several => Err(Error::request(format!("{} holds {} runs, one is compared", path.display(), several.len()))
            .with_hint(format!("give one of them, for example {}", several[0].display()))),
    }
}

fn write(report: &Report, out: &Path, options: &Options) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut put = |path: PathBuf, text: &str| {
        let folder = path.parent().unwrap_or(out);
        fs::create_dir_all(folder).map_err(|e| Error::io("create", folder, e))?;
        atomic::write(&path, text.as_bytes())?;
        files.push(path);
        Ok::<_, Error>(())
    };
    if options.formats.contains(&Format::Markdown) {
        put(out.join("report.md"), &markdown::render(report))?;
        for figure in &report.figures {
            put(out.join(figure.path()), &figure.svg)?;
        }
    }
    if options.formats.contains(&Format::Csv) {
        for table in &report.tables {
            let number = table.id.chars().all(|c| c.is_ascii_digit());
            let name = if number { format!("table-{}.csv", table.id) } else { format!("{}.csv", table.id) };
            put(out.join("tables").join(name), &csv::render(table))?;
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests;
