//! New scores for old answers: prediction, contain, contain_word and judgement out of the text that a run kept, without any call.
//!
//! In: a finished run folder and the answer marker that shall count. Out: another run folder, whose manifest says what it was made
//! from. Retrieval, store and gates stay as they were: the run acted on its own predictions then.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::config::{AnswerMarker, RunConfig};
use crate::dataset::{Dataset, Question};
use crate::generate::{Judgement, Marker, contain, contain_word, parse_answer};
use crate::llm::judge;
use crate::replay::run::{EXPERIENCES_FILE, ORDER_FILE, TRACES_FILE};
use crate::trace::reader::{read_rows, read_run};
use crate::trace::row::{ExperienceRow, TraceRow};
use crate::trace::{atomic, writer};
use crate::{Error, Result};

/// What rescoring changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rescored {
    /// The new run folder.
    pub folder: PathBuf,
    /// Rows.
    pub rows: usize,
    /// Rows whose prediction is another.
    pub predictions: usize,
    /// Rows whose contain or contain_word is another.
    pub scores: usize,
    /// Judgements that were of another answer and are unscored now.
    pub judgements: usize,
    /// Judgements that were read anew from what the judge had said.
    pub reread: usize,
    /// Those of them that are another word now.
    pub rejudged: usize,
}

/// The name of a marker in configurations, and what the parser takes.
pub(super) fn marker(marker: AnswerMarker) -> Marker {
    match marker {
        AnswerMarker::First => Marker::First,
        AnswerMarker::Last => Marker::Last,
    }
}

/// The plan of a finished run with `sets` over it.
///
/// # Errors
/// A key that cannot be changed afterwards.
pub fn config(folder: &Path, sets: &[String]) -> Result<RunConfig> {
    const ALLOWED: [&str; 2] = ["generate.answer_marker", "dataset.path"];
    for set in sets {
        let key = set.split('=').next().unwrap_or_default().trim();
        if !ALLOWED.contains(&key) {
            return Err(Error::request(format!("--set {key} cannot change a finished run: its answers are made"))
                .with_hint("rescore takes generate.answer_marker, and dataset.path where the dataset has moved"));
        }
    }
    RunConfig::load(&folder.join("plan.toml"), sets)
}

/// Scores the answers of the run in `folder` anew and writes a run folder under `out`.
///
/// # Errors
/// A run that is not finished, a dataset that is not the run's, a folder that is taken.
pub fn rescore(folder: &Path, config: &RunConfig, out: &Path) -> Result<Rescored> {
    let run = read_run(folder, false)?;
    let mut manifest = run.manifest.ok_or_else(|| Error::request(format!("{} has no manifest", folder.display())))?;
    let dataset = Dataset::open(config.dataset_path()?)?;
    if dataset.fingerprint != manifest.dataset.fingerprint {
        return Err(Error::request(format!(
            "{} is not the dataset of the run: its fingerprint is {}, the run's {}",
            config.dataset.path.display(),
            dataset.fingerprint.get(..12).unwrap_or(&dataset.fingerprint),
            manifest.dataset.fingerprint.get(..12).unwrap_or(&manifest.dataset.fingerprint)
        ))
        .with_hint("gold answers come from the dataset; name the right folder with --set dataset.path=DIR"));
    }
    let questions: BTreeMap<&str, &Question> = dataset.questions.iter().map(|q| (q.id.as_str(), q)).collect();
    let name = config.generate.answer_marker.as_str();
    let run_id = format!("{}-rescored-{name}", manifest.run_id);
    let target = out.join(&run_id);
    if target.exists() {
        return Err(Error::request(format!("{} is there already", target.display()))
            .with_hint("choose another --out folder, or remove it"));
    }

    let mut done = Rescored {
        folder: target.clone(),
        rows: run.rows.len(),
        predictions: 0,
        scores: 0,
        judgements: 0,
        reread: 0,
        rejudged: 0,
    };
    let mut rows = run.rows;
    for row in &mut rows {
        let question = questions.get(row.query_id.as_str()).ok_or_else(|| {
            Error::request(format!("the dataset {:?} has no question {:?}", dataset.name, row.query_id))
        })?;
        score(row, question, marker(config.generate.answer_marker), &mut done);
        row.run_id.clone_from(&run_id);
    }
    let mut experiences = read_rows::<ExperienceRow>(&folder.join(EXPERIENCES_FILE))?;
    for experience in &mut experiences {
        experience.run_id.clone_from(&run_id);
    }

    manifest.notes.push(format!(
        "rescored from the stored answers of {} with answer_marker = \"{name}\": {} of {} predictions changed; retrieval, stores and \
         gates are those of the original run, which acted on its own predictions{}",
        manifest.run_id,
        done.predictions,
        done.rows,
        match (&manifest.judge, done.judgements) {
            (None, _) => String::new(),
            (Some(_), n) => format!(
                "; {} judgements were read anew from the judge's stored text, {} of them are another word now; {n} were of an answer that \
                 changed and are unscored",
                done.reread, done.rejudged
            ),
        }
    ));
    manifest.settings = format!("{}-rescored-{name}", manifest.settings);
    let plan = config.plan(&dataset.name, &manifest.index.fingerprint)?;
    let plan = crate::config::RunPlan { run_id: run_id.clone(), ..plan };
    manifest.run_id = run_id;

    std::fs::create_dir_all(&target).map_err(|e| Error::io("create", &target, e))?;
    plan.write(&target)?;
    let order = folder.join(ORDER_FILE);
    atomic::write(&target.join(ORDER_FILE), &std::fs::read(&order).map_err(|e| Error::io("read", &order, e))?)?;
    writer::write_rows(&target.join(TRACES_FILE), &rows)?;
    writer::write_rows(&target.join(EXPERIENCES_FILE), &experiences)?;
    manifest.write(&target)?;
    Ok(done)
}

/// One row by its own raw text.
fn score(row: &mut TraceRow, question: &Question, marker: Marker, done: &mut Rescored) {
    let prediction = parse_answer(&row.raw_response, marker).prediction;
    let scores =
        (contain(&prediction, &question.answers), contain_word(&prediction, &question.answers, &question.aliases));
    done.scores += usize::from(scores != (row.contain, row.contain_word));
    (row.contain, row.contain_word) = scores;
    if prediction != row.prediction {
        done.predictions += 1;
        if row.judge != Judgement::NotRun {
            // It was a judgement of another answer.
            row.judge = Judgement::Unscored;
            row.judge_raw.clear();
            row.judge_agreement = None;
            done.judgements += 1;
        }
        row.prediction = prediction;
    } else if !row.judge_raw.is_empty() {
        let verdict = judge::read(row.judge_raw.clone());
        done.reread += 1;
        done.rejudged += usize::from(verdict.judgement != row.judge);
        row.judge = verdict.judgement;
        row.judge_agreement = Some(verdict.agreement as f32);
    }
}
