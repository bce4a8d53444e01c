//! The index of one dataset: graph, occurrence counts and vectors, built once and opened by every run.
//!
//! In: a dataset folder with its annotations and vectors ([`build`]), and an encoder for the vectors that are not there ([`vectors`]). Out:
//! an index folder ([`files`]) with a fingerprint of everything that went into it, and [`Index`] with the matrices a backend takes.

pub mod build;
pub mod encoder;
pub mod files;
pub mod graph;
pub mod kept;
#[cfg(feature = "encoders")]
mod model_encoders;
#[cfg(not(feature = "encoders"))]
#[path = "model_encoders_disabled.rs"]
mod model_encoders;
pub mod occurrences;
pub mod vectors;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::backend::{Matrix, RetrievalData};
use crate::config::{AdjacentPassages, AnnotationSource, EntityText, IndexConfig, PassagePrefix};
use crate::dataset::Question;
use crate::dataset::annotations::Span;

/// Version of the folder's files; an index of another version is refused.
pub const INDEX_VERSION: u32 = 1;

/// How the graph is built, `[index]` of the configuration without the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub struct IndexOptions {
    /// Which annotations make the graph.
    pub annotations: AnnotationSource,
    /// What stands before each passage text.
    pub passage_prefix: PassagePrefix,
    /// Which corpus neighbours are joined.
    pub adjacent_passages: AdjacentPassages,
    /// What an entity's text is.
    pub entity_text: EntityText,
}

impl From<&IndexConfig> for IndexOptions {
    fn from(config: &IndexConfig) -> Self {
        Self {
            annotations: config.annotations,
            passage_prefix: config.passage_prefix,
            adjacent_passages: config.adjacent_passages,
            entity_text: config.entity_text,
        }
    }
}

/// How much there is of everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Counts {
    /// Passages.
    pub passages: usize,
    /// Unique sentences with an entity.
    pub sentences: usize,
    /// Unique entities.
    pub entities: usize,
    /// Undirected edges, passage chain included.
    pub edges: usize,
    /// (entity, passage) pairs with an occurrence.
    pub occurrences: usize,
    /// Questions.
    pub questions: usize,
    /// Distinct question entities.
    pub question_entities: usize,
    /// Template vectors; 0 when the dataset has none.
    pub templates: usize,
}

/// `index.json`: what the folder is. Written last; a folder without it is not an index.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IndexMeta {
    /// [`INDEX_VERSION`].
    pub version: u32,
    /// The dataset's name.
    pub dataset: String,
    /// blake3 of the dataset's questions and corpus.
    pub dataset_fingerprint: String,
    /// blake3 of everything that went in: dataset, annotations, vectors, encoder, options, version.
    pub fingerprint: String,
    /// Encoder of the vectors, as their files name it.
    pub encoder: String,
    /// blake3 of the encoder's files, where it computed vectors for this index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoder_fingerprint: Option<String>,
    /// Texts whose vectors the encoder computed, by kind; the others' lay beside the dataset.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub computed: BTreeMap<String, usize>,
    /// Where the encoder cut texts, tokens.
    pub truncated_at_tokens: Option<usize>,
    /// Width of the vectors.
    pub dim: usize,
    /// How the graph was built.
    pub options: IndexOptions,
    /// How much there is.
    pub counts: Counts,
    /// blake3 of each input beside questions and corpus.
    pub inputs: BTreeMap<String, String>,
    /// blake3 of each file of the folder.
    pub files: BTreeMap<String, String>,
    /// Kinds of texts whose vectors are all equal, so that similarity says nothing about them.
    #[serde(default)]
    pub constant_vectors: Vec<String>,
    /// What a user should know, for example that there is no entity.
    pub notes: Vec<String>,
}

/// A question as the index keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexedQuestion {
    /// The question with its gold data.
    pub question: Question,
    /// Rows of `question_entity_vectors`: lower-cased entity strings in order of first appearance, without repeats.
    pub entities: Vec<u32>,
    /// Every annotated mention, for masking.
    pub mentions: Vec<Span>,
}

impl IndexMeta {
    /// Counts, encoder and fingerprint in two lines for a person.
    pub fn summary(&self) -> String {
        let c = &self.counts;
        format!(
            "{}: {} passages, {} sentences, {} entities, {} edges, {} occurrences, {} questions with {} entities\n\
             encoder {}{} ({} numbers), fingerprint {}",
            self.dataset,
            c.passages,
            c.sentences,
            c.entities,
            c.edges,
            c.occurrences,
            c.questions,
            c.question_entities,
            self.encoder,
            self.encoder_fingerprint.as_deref().map(|f| format!(" {}", f.get(..12).unwrap_or(f))).unwrap_or_default(),
            self.dim,
            self.fingerprint.get(..12).unwrap_or(&self.fingerprint)
        )
    }
}

/// An opened index.
#[derive(Debug, Clone)]
pub struct Index {
    /// What it is.
    pub meta: IndexMeta,
    /// Entity surface strings.
    pub entities: Vec<String>,
    /// Sentence texts.
    pub sentences: Vec<String>,
    /// The stream in file order.
    pub questions: Vec<IndexedQuestion>,
    /// Distinct lower-cased question entities.
    pub question_entities: Vec<String>,
    /// `[questions, dim]`
    pub question_vectors: Matrix,
    /// `[question_entities, dim]`
    pub question_entity_vectors: Matrix,
    /// Masked question → row of `template_vectors`. Looked up only.
    pub template_rows: HashMap<String, usize>,
    /// `[templates, dim]`
    pub template_vectors: Matrix,
    /// What a backend takes.
    pub data: Arc<RetrievalData>,
}
