//! Command line: parse, dispatch, print the one error.
//!
//! In: arguments. Out: data on standard output, everything else on standard error, and an exit code: 0 done, 1 the work
//! failed, 2 the request was wrong. One file a command; each turns its arguments into a checked request before it works.

mod cache;
mod compare;
mod dataset;
mod demo;
mod doctor;
mod endpoint;
mod index;
mod models;
#[cfg(feature = "encoders")]
mod nli;
pub mod output;
pub mod progress;
mod report;
mod rescore;
mod retrieve;
mod run;
mod session;
mod status;
mod sweep;

use std::path::Path;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::{Error, Result};

/// The command line.
#[derive(Debug, Parser)]
#[command(
    name = "livingrag",
    version,
    max_term_width = 100,
    about = "Replays question streams through Graph-RAG systems that learn from their own verified reasoning, and measures them",
    after_help = "Example:\n  livingrag demo\n\nExit codes: 0 done, 1 the work failed, 2 the request was wrong."
)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// Options every command takes.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// Worker threads; 0 is one a core; never changes a result
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1024))]
    pub threads: Option<u32>,
    /// No progress and no remarks on standard error, only warnings and errors
    #[arg(short, long, global = true)]
    pub quiet: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::DemoArgs),
    Index(index::IndexArgs),
    Retrieve(retrieve::RetrieveArgs),
    Run(run::RunArgs),
    Sweep(sweep::SweepArgs),
    Status(status::StatusArgs),
    Report(report::ReportArgs),
    Rescore(rescore::RescoreArgs),
    Compare(compare::CompareArgs),
    Cache(cache::CacheArgs),
    #[cfg(feature = "encoders")]
    Nli(nli::NliArgs),
    Dataset(dataset::DatasetArgs),
    Doctor(doctor::DoctorArgs),
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version come here too, with code 0; a reader that went away is no failure.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    match dispatch(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::error(&error);
            ExitCode::from(error.exit_code())
        }
    }
}

fn dispatch(cli: &Cli) -> Result<()> {
    let global = &cli.global;
    match &cli.command {
        Command::Demo(args) => demo::demo(args, global),
        Command::Index(args) => index::index(args, global),
        Command::Retrieve(args) => retrieve::retrieve(args, global),
        Command::Run(args) => run::run(args, global),
        Command::Sweep(args) => sweep::sweep(args, global),
        Command::Status(args) => status::status(args, global),
        Command::Report(args) => report::report(args, global),
        Command::Rescore(args) => rescore::rescore(args, global),
        Command::Compare(args) => compare::compare(args, global),
        Command::Cache(args) => cache::cache(args, global),
        #[cfg(feature = "encoders")]
        Command::Nli(args) => nli::nli(args, global),
        Command::Dataset(args) => dataset::dataset(args, global),
        Command::Doctor(args) => doctor::doctor(args, global),
    }
}

/// Refuses an `--out` folder that is something else, before any work is done for it.
fn check_out_folder(out: &Path) -> Result<()> {
    if out.exists() && !out.is_dir() {
        return Err(Error::request(format!("--out {} is a file, and results go into a folder", out.display()))
            .with_hint("choose another --out folder"));
    }
    Ok(())
}

impl Global {
    /// `sets` with `--threads` added as `backend.threads`, which it overrides.
    fn with_threads(&self, sets: &[String]) -> Vec<String> {
        let threads = self.threads.map(|n| format!("backend.threads={n}"));
        sets.iter().cloned().chain(threads).collect()
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn verify_cli() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_shows_an_example() {
        for command in Cli::command().get_subcommands() {
            let leaves: Vec<_> =
                if command.has_subcommands() { command.get_subcommands().collect() } else { vec![command] };
            for leaf in leaves {
                let after = leaf.get_after_help().map(ToString::to_string).unwrap_or_default();
                assert!(after.contains("livingrag"), "{} has no example", leaf.get_name());
            }
        }
    }
}
