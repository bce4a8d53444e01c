//! The files beside a dataset: `annotations.jsonl`, `question_entities.jsonl` and `embeddings/*.parquet` in, summaries and
//! findings out.

use std::collections::BTreeSet;
use std::path::Path;

use super::{AnnotationSummary, QuestionEntitySummary, VectorSummary, percent};
use crate::dataset::annotations::{self, PassageAnnotation, QuestionAnnotation, Span};
use crate::dataset::texts::{TextKind, TextMeasure, cut_note, cut_note_exact, index_texts};
use crate::dataset::vectors::{self, VectorTable};
use crate::dataset::{ANNOTATIONS_FILE, Dataset, Note, QUESTION_ENTITIES_FILE};
use crate::error::{Error, ErrorKind, Result};

/// What lies beside a dataset.
pub(super) struct Beside {
    pub(super) passage_prefix: &'static str,
    pub(super) annotations: Option<AnnotationSummary>,
    pub(super) question_entities: Option<QuestionEntitySummary>,
    pub(super) vectors: Vec<VectorSummary>,
    /// Kinds of which the dataset has no text.
    pub(super) unneeded: Vec<TextKind>,
}

/// Reads all of it.
pub(super) fn look(dataset: &Dataset, measure: Option<&dyn TextMeasure>, findings: &mut Vec<Note>) -> Result<Beside> {
    let annotated = passage_annotations(dataset, findings)?;
    let question_annotations = question_annotations(dataset, findings)?;
    let mut tables = Vec::new();
    for kind in TextKind::ALL {
        let path = kind.vector_file(&dataset.folder);
        if !path.exists() {
            tables.push((kind, None));
            continue;
        }
        let read = vectors::read_with_notes(&path);
        tables.push((kind, usable(read, "vectors_unusable", findings)?));
    }

    let annotated_prefix = annotated.as_ref().map(|(prefix, _)| *prefix);
    let passage_prefix = annotated_prefix.or_else(|| vector_prefix(dataset, &tables)).unwrap_or("unknown");
    let passage_texts = dataset.passage_texts(passage_prefix != "none");
    let question_texts = dataset.question_texts();
    let passage_annotations = annotated.map(|(_, a)| a);
    let needed = index_texts(
        &passage_texts,
        passage_annotations.as_deref().unwrap_or_default(),
        &question_texts,
        question_annotations.as_deref().unwrap_or_default(),
        false,
    );
    let needed = |kind: TextKind| -> Option<Vec<&str>> {
        let known = match kind {
            TextKind::Passages | TextKind::Questions => true,
            TextKind::Sentences | TextKind::Entities => passage_annotations.is_some(),
            TextKind::QuestionEntities => question_annotations.is_some(),
        };
        known.then(|| needed.iter().filter(|(k, _)| *k == kind).map(|(_, text)| text.as_str()).collect())
    };
    let count = |kind| needed(kind).map_or(0, |texts| texts.len());

    let annotations = passage_annotations.as_deref().map(|all| {
        let mentions = |a: &PassageAnnotation| -> usize {
            a.sentences.iter().map(|s| s.entities.iter().filter(|e| e.is_entity()).count()).sum()
        };
        AnnotationSummary {
            mentions: all.iter().map(mentions).sum(),
            entities: count(TextKind::Entities),
            sentences: count(TextKind::Sentences),
            passages_without: all.iter().filter(|a| mentions(a) == 0).count(),
        }
    });
    let question_entities = question_annotations.as_deref().map(|all| QuestionEntitySummary {
        entities: count(TextKind::QuestionEntities),
        questions_without: all.iter().filter(|a| !a.entities.iter().any(Span::is_entity)).count(),
    });
    entity_findings(dataset, annotations, question_entities, findings);

    let (mut summaries, mut without_file) = (Vec::new(), Vec::new());
    for (kind, table) in &tables {
        let needed = needed(*kind);
        match table {
            Some(table) => summaries.push(vector_summary(*kind, table, needed.as_deref(), measure, findings)?),
            None if needed.as_ref().is_some_and(|t| !t.is_empty()) && !kind.vector_file(&dataset.folder).exists() => {
                without_file.push(kind.as_str());
                if let (Some(measure), Some(texts)) = (measure, &needed) {
                    let cut = measure.cut(texts)?.into_iter().filter(|cut| *cut).count();
                    findings.extend(cut_note_exact(kind.as_str(), cut, texts.len(), measure.max_tokens()));
                }
            }
            None => {}
        }
    }
    if !without_file.is_empty() {
        findings.push(Note {
            code: "missing_vectors",
            text: format!("embeddings/ has no file for {}: these texts have no vectors", without_file.join(", ")),
        });
    }
    encoder_findings(&summaries, findings);
    let unneeded = TextKind::ALL.into_iter().filter(|kind| needed(*kind).is_some_and(|t| t.is_empty())).collect();
    Ok(Beside { passage_prefix, annotations, question_entities, vectors: summaries, unneeded })
}

/// A file's content and its notes; a file that cannot be used becomes a finding, an operating-system error stays one.
fn usable<T>(read: Result<(T, Vec<Note>)>, code: &'static str, findings: &mut Vec<Note>) -> Result<Option<T>> {
    match read {
        Ok((content, notes)) => {
            findings.extend(notes);
            Ok(Some(content))
        }
        Err(e) if e.kind() == ErrorKind::Request => {
            findings.push(Note { code, text: sentence(&e) });
            Ok(None)
        }
        Err(e) => Err(e),
    }
}

fn sentence(error: &Error) -> String {
    match error.hint() {
        Some(hint) => format!("{error} ({hint})"),
        None => error.to_string(),
    }
}

fn missing(path: &Path, what: &str, findings: &mut Vec<Note>, code: &'static str) -> bool {
    let missing = !path.exists();
    if missing {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        findings.push(Note { code, text: format!("{name} is not there: {what}") });
    }
    missing
}

/// The annotations and the prefix they were made with.
fn passage_annotations(
    dataset: &Dataset,
    findings: &mut Vec<Note>,
) -> Result<Option<(&'static str, Vec<PassageAnnotation>)>> {
    let path = dataset.folder.join(ANNOTATIONS_FILE);
    let without = "an index needs index.annotations = \"none\", a graph without entities";
    if missing(&path, without, findings, "missing_annotations") {
        return Ok(None);
    }
    let with_prefix = annotations::read_passages(&path, &dataset.passage_texts(true));
    if with_prefix.is_err()
        && let Ok((bare, notes)) = annotations::read_passages(&path, &dataset.passage_texts(false))
    {
        findings.extend(notes);
        findings.push(Note {
            code: "annotations_without_prefix",
            text: format!("{ANNOTATIONS_FILE} was made on the bare texts: set index.passage_prefix = \"none\""),
        });
        return Ok(Some(("none", bare)));
    }
    Ok(usable(with_prefix, "annotations_unusable", findings)?.map(|annotations| ("index", annotations)))
}

fn question_annotations(dataset: &Dataset, findings: &mut Vec<Note>) -> Result<Option<Vec<QuestionAnnotation>>> {
    let path = dataset.folder.join(QUESTION_ENTITIES_FILE);
    if missing(
        &path,
        "a graph without the questions' entities ranks nothing, so an index needs index.annotations = \"none\"",
        findings,
        "missing_question_entities",
    ) {
        return Ok(None);
    }
    usable(annotations::read_questions(&path, &dataset.question_texts()), "question_entities_unusable", findings)
}

/// The prefix under which more of the passages have a vector.
fn vector_prefix(dataset: &Dataset, tables: &[(TextKind, Option<VectorTable>)]) -> Option<&'static str> {
    let index = tables.iter().find(|(kind, _)| *kind == TextKind::Passages)?.1.as_ref()?.index();
    let found = |prefix| dataset.passage_texts(prefix).iter().filter(|text| index.row(text).is_some()).count();
    match (found(true), found(false)) {
        (0, 0) => None,
        (with, without) => Some(if with >= without { "index" } else { "none" }),
    }
}

fn entity_findings(
    dataset: &Dataset,
    annotations: Option<AnnotationSummary>,
    question_entities: Option<QuestionEntitySummary>,
    findings: &mut Vec<Note>,
) {
    if let Some(a) = annotations {
        let n = dataset.passages.len();
        if a.entities == 0 && n > 0 {
            findings.push(Note {
                code: "no_entities",
                text: format!(
                    "{ANNOTATIONS_FILE} holds no entity at all: every question will be ranked by dense cosine"
                ),
            });
        } else if a.passages_without > 0 {
            findings.push(Note {
                code: "passage_without_entities",
                text: format!(
                    "{} of {n} passages hold no entity; they stay retrievable, by dense cosine and by their neighbours",
                    a.passages_without
                ),
            });
        }
    }
    if let Some(q) = question_entities.filter(|q| q.questions_without > 0) {
        findings.push(Note {
            code: "question_without_entities",
            text: format!(
                "{} of {} questions ({}) hold no entity and fall back to dense cosine",
                q.questions_without,
                dataset.questions.len(),
                percent(q.questions_without, dataset.questions.len())
            ),
        });
    }
}

fn vector_summary(
    kind: TextKind,
    table: &VectorTable,
    needed: Option<&[&str]>,
    measure: Option<&dyn TextMeasure>,
    findings: &mut Vec<Note>,
) -> Result<VectorSummary> {
    let file = format!("embeddings/{}.parquet", kind.as_str());
    let index = table.index();
    let lacking: Vec<&str> = needed.unwrap_or_default().iter().copied().filter(|t| index.row(t).is_none()).collect();
    if let Some(first) = lacking.first() {
        let all = needed.map_or(0, <[&str]>::len);
        let start: String = first.chars().take(60).collect();
        findings.push(Note {
            code: "text_without_vector",
            text: format!("{file}: {} of {all} texts have no vector, first \"{start}\"", lacking.len()),
        });
    }
    if table.is_constant() {
        findings.push(Note {
            code: "constant_vectors",
            text: format!("{file}: all {} vectors are equal, so similarity says nothing there", table.texts.len()),
        });
    }
    let (mut cut, mut cut_estimated) = (None, None);
    // The files may have been made with another limit than the encoder's own.
    let own = |m: &&dyn TextMeasure| table.truncated_at_tokens.is_none_or(|limit| limit == m.max_tokens());
    if let Some(measure) = measure.filter(own) {
        let texts: Vec<&str> = table.texts.iter().map(String::as_str).collect();
        let n = measure.cut(&texts)?.into_iter().filter(|cut| *cut).count();
        findings.extend(cut_note_exact(&file, n, texts.len(), measure.max_tokens()));
        cut = Some(n);
    } else if let Some(limit) = table.truncated_at_tokens {
        let found = cut_note(&file, table.texts.iter().map(String::as_str), limit);
        cut_estimated = Some(found.as_ref().map_or(0, |(n, _)| *n));
        findings.extend(found.map(|(_, note)| note));
    }
    Ok(VectorSummary {
        kind,
        encoder: table.encoder.clone(),
        dim: table.dim,
        rows: table.texts.len(),
        needed: needed.map(<[&str]>::len),
        missing: lacking.len(),
        truncated_at_tokens: table.truncated_at_tokens,
        cut_estimated,
        cut,
    })
}

fn encoder_findings(vectors: &[VectorSummary], findings: &mut Vec<Note>) {
    let encoders: BTreeSet<(&str, usize)> = vectors.iter().map(|v| (v.encoder.as_str(), v.dim)).collect();
    if encoders.len() > 1 {
        let names: Vec<String> = encoders.iter().map(|(name, dim)| format!("{name} ({dim} wide)")).collect();
        findings.push(Note {
            code: "encoder_mismatch",
            text: format!("the vector files are of different encoders: {}", names.join(", ")),
        });
    }
}
