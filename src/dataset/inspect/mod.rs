//! What a dataset folder is and what is odd about it (`livingrag dataset inspect`): an opened dataset in, a serialisable
//! [`Inspection`] with a text form out.
//!
//! Nothing here stops at the first trouble: a file beside the dataset that cannot be used becomes a finding. Token counts are
//! estimates, and say so.

mod beside;
mod contents;
mod render;

use serde::Serialize;

use super::clusters::ClusterStats;
use super::texts::{TextKind, TextMeasure};
use super::{ANNOTATIONS_FILE, Dataset, Kind, Note, QUESTION_ENTITIES_FILE};
use crate::error::Result;

/// Everything `dataset inspect` tells.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Inspection {
    /// The dataset's name.
    pub name: String,
    /// What its files are.
    pub kind: Kind,
    /// Where it lies.
    pub folder: String,
    /// Its licence, if `dataset.toml` tells.
    pub licence: Option<String>,
    /// blake3 of its files.
    pub fingerprint: String,
    /// The corpus.
    pub passages: PassageSummary,
    /// The stream.
    pub questions: QuestionSummary,
    /// Which prefix the annotations, else the passage vectors, were made with: `index`, `none` or `unknown`.
    pub passage_prefix: &'static str,
    /// What `annotations.jsonl` holds, if it can be used.
    pub annotations: Option<AnnotationSummary>,
    /// What `question_entities.jsonl` holds, if it can be used.
    pub question_entities: Option<QuestionEntitySummary>,
    /// Vector files that can be used.
    pub vectors: Vec<VectorSummary>,
    /// Whether an index can be built from what is there, and what it lacks.
    pub readiness: String,
    /// What a user should know, in order of reading.
    pub findings: Vec<Note>,
}

/// Lengths in Unicode code points.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Default)]
pub struct Lengths {
    /// Shortest.
    pub min: usize,
    /// The lower median.
    pub median: usize,
    /// Arithmetic mean.
    pub mean: f64,
    /// Longest.
    pub max: usize,
}

impl Lengths {
    /// Lengths of `texts`; zeros when there are none.
    fn of<'a>(texts: impl Iterator<Item = &'a str>) -> Self {
        let mut lengths: Vec<usize> = texts.map(|t| t.chars().count()).collect();
        lengths.sort_unstable();
        let (Some(&min), Some(&max)) = (lengths.first(), lengths.last()) else { return Self::default() };
        let mean = lengths.iter().sum::<usize>() as f64 / lengths.len() as f64;
        Self { min, median: lengths[(lengths.len() - 1) / 2], mean, max }
    }
}

/// The corpus.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PassageSummary {
    /// Passages.
    pub count: usize,
    /// Passages with a title.
    pub titled: usize,
    /// Their lengths.
    pub characters: Lengths,
}

/// The stream.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct QuestionSummary {
    /// Questions.
    pub count: usize,
    /// Their lengths.
    pub characters: Lengths,
    /// Questions a category, largest first; questions without one are left out.
    pub categories: Vec<(String, usize)>,
    /// Questions whose gold passages are known.
    pub with_gold: usize,
    /// Number of gold passages and questions with that many, ascending.
    pub gold_sizes: Vec<(usize, usize)>,
    /// Pairs of gold passages of one question, if there are any.
    pub gold_pairs: Option<GoldPairs>,
    /// Gold answers.
    pub answers: AnswerSummary,
    /// Experience clusters (appendix E), where hop ids are known.
    pub clusters: Option<ClusterStats>,
}

/// How often two gold passages of a question are neighbours in the corpus.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct GoldPairs {
    /// Unordered pairs over all questions.
    pub pairs: usize,
    /// Those at distance 1.
    pub neighbours: usize,
    /// `neighbours / pairs`.
    pub share: f64,
    /// The share that a shuffled corpus would have: 2 / passages.
    pub by_chance: f64,
}

/// Gold answers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct AnswerSummary {
    /// Lengths of main answers.
    pub characters: Lengths,
    /// Questions without any answer text.
    pub empty: usize,
    /// Questions whose main answer is yes or no.
    pub yes_no: usize,
    /// Questions with aliases.
    pub with_aliases: usize,
}

/// What `annotations.jsonl` holds; ORDINAL and CARDINAL left out.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct AnnotationSummary {
    /// Entity mentions.
    pub mentions: usize,
    /// Distinct surfaces.
    pub entities: usize,
    /// Distinct sentences with an entity.
    pub sentences: usize,
    /// Passages without an entity.
    pub passages_without: usize,
}

/// What `question_entities.jsonl` holds; ORDINAL and CARDINAL left out.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct QuestionEntitySummary {
    /// Distinct lower-cased entities.
    pub entities: usize,
    /// Questions without an entity.
    pub questions_without: usize,
}

/// One vector file.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VectorSummary {
    /// Of which texts.
    pub kind: TextKind,
    /// The encoder it names.
    pub encoder: String,
    /// Width.
    pub dim: usize,
    /// Distinct texts in the file.
    pub rows: usize,
    /// Distinct texts that an index needs; `None` where that needs annotations that are not there.
    pub needed: Option<usize>,
    /// Needed texts that are not in the file.
    pub missing: usize,
    /// Where the encoder cut, in tokens, if the file says.
    pub truncated_at_tokens: Option<usize>,
    /// Rows longer than that, estimated.
    pub cut_estimated: Option<usize>,
    /// Rows longer than the encoder takes, counted with its tokenizer; `None` where that is not at hand.
    pub cut: Option<usize>,
}

/// The encoder that would make what the vector files lack.
pub struct Outlook<'a> {
    /// Its name.
    pub name: &'a str,
    /// How to get it, where it is not on this machine.
    pub missing: Option<&'a str>,
    /// Its tokenizer, where it is.
    pub measure: Option<&'a dyn TextMeasure>,
}

/// Looks at a dataset and the files beside it, without a thought of what an encoder could make. Only reading that fails for reasons
/// outside the files is an error.
pub fn inspect(dataset: &Dataset) -> Result<Inspection> {
    inspect_with(dataset, None)
}

/// As [`inspect`], where `encoder` makes what the vector files lack.
///
/// # Errors
/// As [`inspect`].
pub fn inspect_with(dataset: &Dataset, encoder: Option<&Outlook<'_>>) -> Result<Inspection> {
    let mut findings = dataset.notes.clone();
    let passages = contents::passages(dataset, &mut findings);
    let questions = contents::questions(dataset, &mut findings);
    let beside = beside::look(dataset, encoder.and_then(|e| e.measure), &mut findings)?;
    contents::prefixed(dataset, beside.passage_prefix, &mut findings);
    Ok(Inspection {
        name: dataset.name.clone(),
        kind: dataset.kind,
        folder: dataset.folder.display().to_string(),
        licence: dataset.licence.clone(),
        fingerprint: dataset.fingerprint.clone(),
        passages,
        questions,
        passage_prefix: beside.passage_prefix,
        annotations: beside.annotations,
        question_entities: beside.question_entities,
        readiness: readiness(dataset, &beside, encoder),
        vectors: beside.vectors,
        findings,
    })
}

/// What `livingrag index` would say: ready, ready without entities, or what is missing.
fn readiness(dataset: &Dataset, beside: &beside::Beside, encoder: Option<&Outlook<'_>>) -> String {
    if dataset.passages.is_empty() {
        return "cannot be built: there is no passage".into();
    }
    let lacking = |kinds: &[TextKind]| -> Vec<&str> {
        let whole = |kind: &TextKind| beside.vectors.iter().any(|v| v.kind == *kind && v.missing == 0);
        kinds.iter().filter(|k| !whole(k) && !beside.unneeded.contains(k)).map(|k| k.as_str()).collect()
    };
    let dense = lacking(&[TextKind::Passages, TextKind::Questions]);
    let graph = lacking(&[TextKind::Sentences, TextKind::Entities, TextKind::QuestionEntities]);
    let mut missing: Vec<String> = Vec::new();
    missing.extend(beside.annotations.is_none().then(|| ANNOTATIONS_FILE.to_owned()));
    missing.extend(beside.question_entities.is_none().then(|| QUESTION_ENTITIES_FILE.to_owned()));
    let vectors = [dense.as_slice(), &graph].concat();
    let prefix = if beside.passage_prefix == "none" { " with --set index.passage_prefix=none" } else { "" };
    if let Some(encoder) = encoder.filter(|_| !vectors.is_empty()) {
        // The encoder makes vectors, and nothing makes annotations.
        let how = match encoder.missing {
            None => encoder.name.to_owned(),
            Some(command) => format!("{}, which is not on this machine (get it with `{command}`)", encoder.name),
        };
        if missing.is_empty() {
            return format!("can be built{prefix}; the missing vectors of {} are made by {how}", vectors.join(", "));
        }
        let with = if prefix.is_empty() { " with" } else { prefix };
        return format!(
            "can be built{with} --set index.annotations=none, without entities{}; with them it lacks {}",
            if dense.is_empty() { String::new() } else { format!(", where {how} makes the missing vectors") },
            missing.join(", ")
        );
    }
    missing.extend((!vectors.is_empty()).then(|| format!("vectors of {}", vectors.join(", "))));
    let missing = missing.join(", ");
    let mut sets = prefix.to_owned();
    if missing.is_empty() {
        format!("can be built{sets}")
    } else if dense.is_empty() {
        sets.push_str(if sets.is_empty() { " with" } else { "" });
        format!("can be built{sets} --set index.annotations=none, without entities; with them it lacks {missing}")
    } else {
        format!("cannot be built yet, it lacks {missing}")
    }
}

/// `part` of `whole` in per cent, one decimal.
fn percent(part: usize, whole: usize) -> String {
    if whole == 0 { "0 %".into() } else { format!("{:.1} %", 100.0 * part as f64 / whole as f64) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests;
