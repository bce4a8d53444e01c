//! `livingrag rescore`: new scores for the stored answers of a finished run, without any call.
//!
//! In: a run folder and the settings of parsing. Out: another run folder; its path on standard output.

use std::path::PathBuf;

use clap::Args;

use super::{Global, check_out_folder, output};
use crate::Result;
use crate::replay::rescore;

/// Scores the stored answers of a run anew, without asking anything
///
/// Prediction, contain and contain_word are computed from the text that the run kept, and judgements from what the judge said;
/// retrieval, store and gates stay as they were.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  livingrag rescore results/RUN --set generate.answer_marker=last --out results/last"
)]
pub struct RescoreArgs {
    /// The folder of a finished run
    #[arg(value_name = "RUN-FOLDER")]
    pub run: PathBuf,
    /// Sets generate.answer_marker, or dataset.path where the dataset has moved; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub sets: Vec<String>,
    /// The folder that gets the new run folder
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
}

/// Rescores.
pub fn rescore(args: &RescoreArgs, global: &Global) -> Result<()> {
    check_out_folder(&args.out)?;
    let config = rescore::config(&args.run, &args.sets)?;
    let done = rescore::rescore(&args.run, &config, &args.out)?;
    output::note(
        global.quiet,
        &format!(
            "{} rows: {} predictions and {} scores changed; {} judgements read anew, {} changed, {} are of another answer and unscored now",
            done.rows, done.predictions, done.scores, done.reread, done.rejudged, done.judgements
        ),
    );
    output::data(&done.folder.display().to_string())
}
