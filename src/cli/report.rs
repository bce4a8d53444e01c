//! `livingrag report`: tables from traces alone.
//!
//! In: results folders. Out: tables as files, or Markdown on standard output.

use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};

use super::{Global, check_out_folder, output};
use crate::{Result, report};

/// What a table is written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Markdown
    Md,
    /// Comma-separated values, with unrounded numbers
    Csv,
}

/// Makes tables from the traces of finished runs
///
/// Reads traces only: no dataset, index or model is needed.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  livingrag report results/mine\n  \
                        livingrag report results/a results/b --out tables --format md,csv --tables 2,3")]
pub struct ReportArgs {
    /// Results folders: of one run, or of many
    #[arg(required = true, value_name = "RESULTS-DIR")]
    pub results: Vec<PathBuf>,
    /// Where the files go [default: report/ in the first results folder]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Which forms are written
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "md,csv")]
    pub format: Vec<Format>,
    /// Which tables are made [default: all that the traces allow]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = PossibleValuesParser::new(report::tables::ids()))]
    pub tables: Vec<String>,
    /// Also takes a traces.parquet whose manifest is missing; rows still in a journal are not read
    #[arg(long)]
    pub partial: bool,
}

/// The folder that a file lies in, or the folder itself.
fn beside(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if path.is_file() => folder.into(),
        _ => path.into(),
    }
}

/// Makes the tables.
pub fn report(args: &ReportArgs, global: &Global) -> Result<()> {
    let out = match (&args.out, args.results.first()) {
        (Some(out), _) => out.clone(),
        (None, first) => first.map(|p| beside(p).join("report")).unwrap_or_default(),
    };
    check_out_folder(&out)?;
    let formats = args.format.iter().map(|f| match f {
        Format::Md => report::Format::Markdown,
        Format::Csv => report::Format::Csv,
    });
    let options = report::Options {
        formats: formats.collect(),
        tables: args.tables.clone(),
        figures: Vec::new(),
        partial: args.partial,
    };
    let summary = report::build(&args.results, &out, &options)?;
    output::data(&summary.stdout_text)?;
    output::note(global.quiet, &format!("{} files under {}", summary.files.len(), out.display()));
    match summary.files.first() {
        Some(path) => output::data(&format!("report: {}", path.display())),
        None => Ok(()),
    }
}
