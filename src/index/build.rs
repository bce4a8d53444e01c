//! Builds an index from a dataset folder (spec 2.1).
//!
//! In: [`Dataset`], `annotations.jsonl`, `question_entities.jsonl`, `embeddings/*.parquet`, and a [`Supply`] of the vectors that are not
//! there. Out: [`Index`]. Nothing is written here but computed vectors, where the supply keeps them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::backend::{Matrix, RetrievalData};
use crate::config::{AnnotationSource, EntityText, PassagePrefix};
use crate::dataset::annotations::{self, PassageAnnotation, QuestionAnnotation, Span};
use crate::dataset::texts::{TextKind, index_texts};
use crate::dataset::{ANNOTATIONS_FILE, Dataset, Note, QUESTION_ENTITIES_FILE};
use crate::index::graph::{self, entity_text};
use crate::index::vectors::{Needed, Supply, gather};
use crate::index::{Counts, INDEX_VERSION, Index, IndexMeta, IndexOptions, IndexedQuestion, occurrences};
use crate::{Error, Result};

/// The input files beside questions and corpus that an index of these options reads, present ones only.
pub fn input_files(folder: &Path, options: &IndexOptions) -> Vec<PathBuf> {
    let mut names = vec!["embeddings/passages.parquet", "embeddings/questions.parquet", "embeddings/templates.parquet"];
    names.push(QUESTION_ENTITIES_FILE);
    if options.annotations == AnnotationSource::File {
        names.extend([
            ANNOTATIONS_FILE,
            "embeddings/sentences.parquet",
            "embeddings/entities.parquet",
            "embeddings/question_entities.parquet",
        ]);
    }
    names.sort_unstable();
    names.into_iter().map(|n| folder.join(n)).filter(|p| p.is_file()).collect()
}

/// blake3 of each input file by its name, and the fingerprint of the index they make.
///
/// # Errors
/// When a file cannot be read.
pub fn fingerprint(dataset: &Dataset, options: &IndexOptions) -> Result<(BTreeMap<String, String>, String)> {
    let mut inputs = BTreeMap::new();
    for path in input_files(&dataset.folder, options) {
        let name = path.strip_prefix(&dataset.folder).unwrap_or(&path).to_string_lossy().replace('\\', "/");
        let bytes = std::fs::read(&path).map_err(|e| Error::io("read", &path, e))?;
        inputs.insert(name, blake3::hash(&bytes).to_hex().to_string());
    }
    let mut hasher = blake3::Hasher::new();
    hasher.update(&INDEX_VERSION.to_le_bytes());
    hasher.update(dataset.fingerprint.as_bytes());
    hasher.update(format!("{options:?}").as_bytes());
    for (name, hash) in &inputs {
        hasher.update(name.as_bytes());
        hasher.update(hash.as_bytes());
    }
    Ok((inputs, hasher.finalize().to_hex().to_string()))
}

/// The fingerprint of an index whose missing vectors the encoder with this fingerprint makes; `base` is the one of [`fingerprint`].
pub fn with_encoder(base: &str, encoder: &str) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(base.as_bytes());
    hasher.update(b"encoder");
    hasher.update(encoder.as_bytes());
    hasher.finalize().to_hex().to_string()
}

/// The texts of a dataset with the annotations that options ask for.
struct Annotated {
    texts: Vec<String>,
    question_texts: Vec<String>,
    passages: Vec<PassageAnnotation>,
    mentions: Vec<QuestionAnnotation>,
    notes: Vec<Note>,
}

fn annotated(dataset: &Dataset, options: &IndexOptions) -> Result<Annotated> {
    let mut notes: Vec<Note> = Vec::new();
    let texts = dataset.passage_texts(options.passage_prefix == PassagePrefix::Index);
    let passages = match options.annotations {
        AnnotationSource::None => Vec::new(),
        AnnotationSource::File => {
            let (read, found) =
                annotations::read_passages(&annotation_file(&dataset.folder, ANNOTATIONS_FILE)?, &texts)?;
            notes.extend(found);
            read
        }
    };
    let question_texts = dataset.question_texts();
    let path = dataset.folder.join(QUESTION_ENTITIES_FILE);
    // Without a graph the mentions serve masking only, so they may be absent.
    let mentions = if options.annotations == AnnotationSource::None && !path.is_file() {
        vec![QuestionAnnotation::default(); question_texts.len()]
    } else {
        let (read, found) =
            annotations::read_questions(&annotation_file(&dataset.folder, QUESTION_ENTITIES_FILE)?, &question_texts)?;
        notes.extend(found);
        read
    };
    Ok(Annotated { texts, question_texts, passages, mentions, notes })
}

/// Every text that needs a vector, and the questions' mentions, from which masked questions are made.
pub struct Texts {
    /// (kind, text), distinct within a kind.
    pub index: Vec<(TextKind, String)>,
    /// One a question.
    pub mentions: Vec<QuestionAnnotation>,
}

/// The texts of a dataset under these options.
///
/// # Errors
/// Missing or contradictory annotations.
pub fn texts(dataset: &Dataset, options: &IndexOptions) -> Result<Texts> {
    let a = annotated(dataset, options)?;
    let of_graph = match options.annotations {
        AnnotationSource::None => &[],
        AnnotationSource::File => a.mentions.as_slice(),
    };
    let trim = options.entity_text == EntityText::Trim;
    Ok(Texts { index: index_texts(&a.texts, &a.passages, &a.question_texts, of_graph, trim), mentions: a.mentions })
}

/// Builds the index of a dataset whose vectors all lie beside it.
///
/// # Errors
/// Missing or contradictory annotations and vectors; each names its file.
pub fn build(dataset: &Dataset, options: &IndexOptions) -> Result<Index> {
    build_with(dataset, options, None)
}

/// Builds the index of a dataset; what its files lack comes from `supply`.
///
/// # Errors
/// As [`build`], and when vectors are missing and cannot be made.
pub fn build_with(dataset: &Dataset, options: &IndexOptions, supply: Option<&mut Supply<'_>>) -> Result<Index> {
    if dataset.passages.is_empty() {
        return Err(Error::request(format!(
            "the dataset {} holds no passage, so there is nothing to retrieve from",
            dataset.folder.display()
        ))
        .with_hint("a stream of questions alone can be inspected; add its corpus, for example in hipporag's shape"));
    }
    let (inputs, base) = fingerprint(dataset, options)?;
    let Annotated { texts, question_texts, passages, mentions, mut notes } = annotated(dataset, options)?;
    let titles: Vec<Option<&str>> = dataset.passages.iter().map(|p| p.title.as_deref()).collect();
    let graph = graph::build(&texts, &titles, &passages, options.adjacent_passages, options.entity_text);
    if graph.entities.is_empty() {
        notes.push(Note {
            code: "no_entities",
            text: "the graph has no entity: every query is ranked by dense cosine".into(),
        });
    }
    let (questions, question_entities) = index_questions(dataset, &mentions, options);
    let templates = match &supply {
        Some(supply) => masked(dataset, &mentions, supply.mask),
        None => Vec::new(),
    };
    let needed = |kind, texts| Needed { kind, texts: as_views(texts) };
    let needed = [
        needed("passages", &texts),
        needed("questions", &question_texts),
        needed("sentences", &graph.sentences),
        needed("entities", &graph.entities),
        needed("question_entities", &question_entities),
    ];
    let mut gathered = gather(&dataset.folder, &needed, &as_views(&templates), supply)?;
    let empty = Matrix::new(gathered.dim, Vec::new());
    let mut matrix = |kind| gathered.matrices.remove(kind).unwrap_or_else(|| empty.clone());
    let (passage_vectors, question_vectors) = (matrix("passages"), matrix("questions"));
    let (sentence_vectors, entity_vectors) = (matrix("sentences"), matrix("entities"));
    let question_entity_vectors = matrix("question_entities");
    let occurrences = occurrences::count(&graph.entities, &texts)?;
    notes.append(&mut gathered.notes);
    let fingerprint = match &gathered.encoder_fingerprint {
        Some(encoder) => with_encoder(&base, encoder),
        None => base,
    };
    let meta = IndexMeta {
        version: INDEX_VERSION,
        dataset: dataset.name.clone(),
        dataset_fingerprint: dataset.fingerprint.clone(),
        fingerprint,
        encoder: gathered.encoder,
        encoder_fingerprint: gathered.encoder_fingerprint,
        computed: gathered.computed,
        truncated_at_tokens: gathered.truncated_at_tokens,
        dim: gathered.dim,
        options: *options,
        counts: Counts {
            passages: texts.len(),
            sentences: graph.sentences.len(),
            entities: graph.entities.len(),
            edges: graph.graph.n_edges(),
            occurrences: occurrences.values.len(),
            questions: questions.len(),
            question_entities: question_entities.len(),
            templates: gathered.template_rows.len(),
        },
        inputs,
        files: BTreeMap::new(),
        constant_vectors: gathered.constant,
        notes: notes.into_iter().map(|n| n.text).collect(),
    };
    Ok(Index {
        meta,
        entities: graph.entities,
        sentences: graph.sentences,
        questions,
        question_entities,
        question_vectors,
        question_entity_vectors,
        template_rows: gathered.template_rows,
        template_vectors: gathered.templates,
        data: Arc::new(RetrievalData {
            graph: graph.graph,
            occurrences,
            passages: passage_vectors,
            sentences: sentence_vectors,
            entities: entity_vectors,
        }),
    })
}

/// The distinct masked questions, by first appearance.
fn masked(dataset: &Dataset, mentions: &[QuestionAnnotation], mask: fn(&str, &[Span]) -> String) -> Vec<String> {
    let mut seen = HashSet::new();
    let all = dataset.questions.iter().zip(mentions).map(|(question, m)| mask(&question.text, &m.entities));
    all.filter(|template| seen.insert(template.clone())).collect()
}

fn as_views(texts: &[String]) -> Vec<&str> {
    texts.iter().map(String::as_str).collect()
}

fn annotation_file(folder: &Path, name: &str) -> Result<PathBuf> {
    let path = folder.join(name);
    if path.is_file() {
        return Ok(path);
    }
    Err(Error::request(format!("the annotations are missing: {}", path.display())).with_hint(
        "make them with an entity recogniser, or build a graph without entities: --set index.annotations=none",
    ))
}

/// Query entities of each question (spec 2.2): lower-cased, in order of first appearance, without repeats; numbered over the dataset.
fn index_questions(
    dataset: &Dataset,
    mentions: &[QuestionAnnotation],
    options: &IndexOptions,
) -> (Vec<IndexedQuestion>, Vec<String>) {
    let mut row_of: HashMap<String, u32> = HashMap::new();
    let mut texts: Vec<String> = Vec::new();
    let questions = dataset
        .questions
        .iter()
        .zip(mentions)
        .map(|(question, annotation)| {
            let mut entities: Vec<u32> = Vec::new();
            if options.annotations == AnnotationSource::File {
                for span in &annotation.entities {
                    let Some(surface) = entity_text(span, options.entity_text) else { continue };
                    let lower = surface.to_lowercase();
                    let row = *row_of.entry(lower.clone()).or_insert_with(|| {
                        texts.push(lower);
                        (texts.len() - 1) as u32
                    });
                    if !entities.contains(&row) {
                        entities.push(row);
                    }
                }
            }
            IndexedQuestion { question: question.clone(), entities, mentions: annotation.entities.clone() }
        })
        .collect();
    (questions, texts)
}
