//! Builds an index from a dataset folder (spec 2.1).
//!
//! In: [`Dataset`], `annotations.jsonl`, `question_entities.jsonl`, `embeddings/*.parquet`. Out: [`Index`]. Nothing is written here.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::backend::{Matrix, RetrievalData};
use crate::config::{AnnotationSource, EntityText, PassagePrefix};
use crate::dataset::annotations::{self, PassageAnnotation, QuestionAnnotation};
use crate::dataset::texts::{TextKind, cut_note, index_texts};
use crate::dataset::vectors::{self, VectorTable};
use crate::dataset::{ANNOTATIONS_FILE, Dataset, Note, QUESTION_ENTITIES_FILE};
use crate::index::graph::{self, entity_text};
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

/// The vectors of one kind of text, checked against the encoder of those read before.
struct VectorReader<'a> {
    folder: &'a Path,
    notes: Vec<Note>,
    encoder: Option<(String, usize, Option<usize>, &'static str)>,
    /// Kinds whose vectors are all equal.
    constant: Vec<String>,
}

impl VectorReader<'_> {
    fn read(&mut self, kind: &'static str) -> Result<VectorTable> {
        let path = self.folder.join("embeddings").join(format!("{kind}.parquet"));
        if !path.is_file() {
            return Err(Error::request(format!("the vectors of the {kind} are missing: {}", path.display())).with_hint(
                "`livingrag dataset texts <dir>` prints every text that needs a vector and scripts/embed_texts.py makes the files; \
                 with --set index.annotations=none only passages and questions are needed",
            ));
        }
        let (table, notes) = vectors::read_with_notes(&path)?;
        self.notes.extend(notes);
        if table.is_constant() {
            self.constant.push(kind.to_owned());
        }
        match &self.encoder {
            None => self.encoder = Some((table.encoder.clone(), table.dim, table.truncated_at_tokens, kind)),
            Some((encoder, dim, _, first)) if *encoder != table.encoder || *dim != table.dim => {
                let (found, before) = match *encoder == table.encoder {
                    true => (format!("{} numbers wide", table.dim), format!("{dim}")),
                    false => (format!("of encoder {:?}", table.encoder), format!("of {encoder:?}")),
                };
                return Err(Error::request(format!(
                    "{}: the vectors are {found}, those of the {first} are {before}",
                    path.display()
                ))
                .with_hint("all vectors of an index must come from one encoder; make the odd file again"));
            }
            Some(_) => {}
        }
        Ok(table)
    }

    /// One row a text, in the texts' order.
    fn rows(&mut self, kind: &'static str, texts: &[&str]) -> Result<Matrix> {
        let table = self.read(kind)?;
        let rows = table.index();
        let mut data = Vec::with_capacity(texts.len() * table.dim);
        let missing: Vec<&str> = texts
            .iter()
            .filter(|text| match rows.vector(text) {
                Some(vector) => {
                    data.extend_from_slice(vector);
                    false
                }
                None => true,
            })
            .copied()
            .collect();
        if let Some(first) = missing.first() {
            let path = self.folder.join("embeddings").join(format!("{kind}.parquet"));
            let shown: String = first.chars().take(60).collect();
            return Err(Error::request(format!(
                "{}: no vector for {} of {} texts, the first is {shown:?}",
                path.display(),
                missing.len(),
                texts.len()
            ))
            .with_hint(
                "the vectors were made from other texts (another corpus, passage_prefix or annotations): make them again from \
                 `livingrag dataset texts <dir>`",
            ));
        }
        if let Some(limit) = table.truncated_at_tokens {
            let file = format!("embeddings/{kind}.parquet");
            self.notes.extend(cut_note(&file, texts.iter().copied(), limit).map(|(_, note)| note));
        }
        Ok(Matrix::new(table.dim, data))
    }

    /// What should be said about vectors that are all equal.
    fn constant_note(&self) -> Option<Note> {
        (!self.constant.is_empty()).then(|| Note {
            code: "constant_vectors",
            text: format!(
                "all texts have the same vector in the vectors of {}: similarity says nothing there, and rankings do not \
                 depend on the question",
                self.constant.join(", ")
            ),
        })
    }
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

/// Builds the index of a dataset.
///
/// # Errors
/// Missing or contradictory annotations and vectors; each names its file.
pub fn build(dataset: &Dataset, options: &IndexOptions) -> Result<Index> {
    if dataset.passages.is_empty() {
        return Err(Error::request(format!(
            "the dataset {} holds no passage, so there is nothing to retrieve from",
            dataset.folder.display()
        ))
        .with_hint("a stream of questions alone can be inspected; add its corpus, for example in hipporag's shape"));
    }
    let (inputs, fingerprint) = fingerprint(dataset, options)?;
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

    let mut reader = VectorReader { folder: &dataset.folder, notes: Vec::new(), encoder: None, constant: Vec::new() };
    let passage_vectors = reader.rows("passages", &as_views(&texts))?;
    let question_vectors = reader.rows("questions", &as_views(&question_texts))?;
    let empty = Matrix::new(passage_vectors.dim(), Vec::new());
    let mut optional = |kind, texts: &[String]| {
        if texts.is_empty() { Ok(empty.clone()) } else { reader.rows(kind, &as_views(texts)) }
    };
    let sentence_vectors = optional("sentences", &graph.sentences)?;
    let entity_vectors = optional("entities", &graph.entities)?;
    let question_entity_vectors = optional("question_entities", &question_entities)?;
    let templates = match dataset.folder.join("embeddings/templates.parquet").is_file() {
        true => Some(reader.read("templates")?),
        false => None,
    };
    let (template_rows, template_vectors) = match templates {
        None => (HashMap::new(), empty),
        Some(table) => (
            table.texts.iter().enumerate().rev().map(|(i, t)| (t.clone(), i)).collect(),
            Matrix::new(table.dim, table.data),
        ),
    };
    let occurrences = occurrences::count(&graph.entities, &texts)?;

    notes.append(&mut reader.notes);
    notes.extend(reader.constant_note());
    let (encoder, dim, truncated_at_tokens, _) = reader.encoder.unwrap_or_default();
    let meta = IndexMeta {
        version: INDEX_VERSION,
        dataset: dataset.name.clone(),
        dataset_fingerprint: dataset.fingerprint.clone(),
        fingerprint,
        encoder,
        truncated_at_tokens,
        dim,
        options: *options,
        counts: Counts {
            passages: texts.len(),
            sentences: graph.sentences.len(),
            entities: graph.entities.len(),
            edges: graph.graph.n_edges(),
            occurrences: occurrences.values.len(),
            questions: questions.len(),
            question_entities: question_entities.len(),
            templates: template_rows.len(),
        },
        inputs,
        files: BTreeMap::new(),
        constant_vectors: reader.constant,
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
        template_rows,
        template_vectors,
        data: Arc::new(RetrievalData {
            graph: graph.graph,
            occurrences,
            passages: passage_vectors,
            sentences: sentence_vectors,
            entities: entity_vectors,
        }),
    })
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
