//! Where the arithmetic runs: a few coarse, batched operations over matrices and vectors.
//!
//! In: the matrices of one index ([`RetrievalData`]), then batches. Out: numbers. A backend knows `math` only; it sees no questions,
//! files or stores' records. Rows of a batch never influence each other, so results do not depend on how work is batched.

pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
#[cfg(not(feature = "cuda"))]
#[path = "cuda_disabled.rs"]
pub mod cuda;
pub mod device;
mod matrix;

use std::sync::Arc;

pub use matrix::Matrix;

use crate::config::{BackendConfig, BackendKind};
use crate::math::graph::{Graph, WeightedCsr};
use crate::math::propagation::{Active, Propagated, PropagationParams};
use crate::math::sparse::SparseVector;
use crate::{Error, Result};

/// What a backend is, for the manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// `cpu` or `cuda`.
    pub name: String,
    /// The device in words, with the instruction set in use.
    pub device: String,
    /// Worker threads on the host.
    pub threads: usize,
    /// What a reader of the manifest should know, for example why `auto` did not take CUDA.
    pub note: Option<String>,
}

/// Form of propagation (spec 2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Breadth-first.
    Bfs,
    /// Vectorised.
    Matrix,
}

/// The matrices of one index. Rows of the vector matrices are L2-normalised.
#[derive(Debug, Clone, Default)]
pub struct RetrievalData {
    /// Entities, sentences, passages and their edges.
    pub graph: Graph,
    /// Entity → (passage, ln(1 + occ)) where occ > 0, passages ascending.
    pub occurrences: WeightedCsr<f64>,
    /// `[n_passages, dim]`
    pub passages: Matrix,
    /// `[n_sentences, dim]`
    pub sentences: Matrix,
    /// `[n_entities, dim]`
    pub entities: Matrix,
}

impl RetrievalData {
    /// Whether graph and vectors have the same shape.
    ///
    /// # Errors
    /// When they do not.
    pub(crate) fn check_shapes(&self) -> Result<()> {
        let graph = &self.graph;
        let agree = self.passages.rows() == graph.n_passages()
            && (self.sentences.rows() == graph.n_sentences() || graph.n_sentences() == 0)
            && (self.entities.rows() == graph.n_entities() || graph.n_entities() == 0)
            && self.occurrences.rows() == graph.n_entities()
            && graph.n_nodes() == graph.n_entities() + graph.n_passages();
        if agree {
            return Ok(());
        }
        Err(Error::work("the index's graph and vectors do not have the same shape")
            .with_hint("build the index again with `livingrag index`"))
    }
}

/// One query of a propagation batch.
#[derive(Debug, Clone, Copy)]
pub struct PropagationQuery<'a> {
    /// (entity, score), in query order.
    pub seeds: &'a [(u32, f64)],
    /// The question's vector, `[dim]`.
    pub question: &'a [f32],
}

/// One query of a passage-weight batch.
#[derive(Debug, Clone, Copy)]
pub struct PassageWeightQuery<'a> {
    /// Cosines of question and passages, `[n_passages]`.
    pub similarities: &'a [f32],
    /// The active set of its propagation.
    pub active: &'a [Active],
}

/// One column of a PageRank batch.
#[derive(Debug, Clone, Copy)]
pub struct Reset<'a> {
    /// Entity part, (entity, weight), ascending ids.
    pub entities: &'a [(u32, f64)],
    /// Passage part, `[n_passages]`.
    pub passages: &'a [f32],
}

/// Which store a scan reads: a device finds by it what it keeps of the store. A clone is another store.
#[derive(Debug, Default)]
pub struct StoreId(Arc<()>);

impl StoreId {
    /// Lives as long as the store.
    pub(crate) fn token(&self) -> &Arc<()> {
        &self.0
    }
}

impl Clone for StoreId {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// Stored activation maps of one run, as a scan needs them. A store only grows: what was in it once stays as it was.
pub trait ActivationStore: Sync {
    /// Which store this is.
    fn id(&self) -> &StoreId;
    /// Number of stored maps.
    fn count(&self) -> usize;
    /// One map.
    fn map(&self, experience: usize) -> &SparseVector;
    /// (experience, value) for every map with this entity, experiences ascending.
    fn postings(&self, entity: u32) -> &[(u32, f64)];
    /// Euclidean length of one map.
    fn norm(&self, experience: usize) -> f64;
}

/// One query of a store scan. The experiences it sees are a prefix of the store.
#[derive(Debug, Clone, Copy)]
pub struct ScanQuery<'a> {
    /// a_base.
    pub activation: &'a SparseVector,
    /// cos(v_q, v_k) of the visible experiences; its length is their number.
    pub cos_query: &'a [f32],
    /// cos of the masked templates, for the scaffold score; same length; `None` when no scaffold is wanted.
    pub cos_template: Option<&'a [f32]>,
    /// α of equations 7 and 17.
    pub alpha: f64,
    /// λ of equation 12.
    pub lambda: f64,
    /// K: how many best matches are wanted.
    pub k: usize,
}

/// One scanned experience.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hit {
    /// Which experience.
    pub experience: u32,
    /// s_ret, equation 7 (η of equation 17 is the same number).
    pub score: f64,
    /// cos(v_q, v_k).
    pub cos_query: f64,
    /// cos(a_base, ã_k).
    pub cos_activation: f64,
}

/// What a scan found.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ScanResult {
    /// The K best by (score desc, experience asc).
    pub top: Vec<Hit>,
    /// Best experience by s_scaf, equations 12–13, with that score.
    pub scaffold: Option<(u32, f64)>,
}

/// Settings of a graph retrieval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RetrievalParams {
    /// Form of propagation.
    pub form: Form,
    /// Its settings.
    pub propagation: PropagationParams,
    /// Share of the dense part in a passage's weight, spec 2.4.
    pub passage_ratio: f64,
    /// Factor of all passage weights, spec 2.4.
    pub passage_node_weight: f64,
    /// d of PageRank.
    pub damping: f64,
    /// How many best passages are wanted; `None`: the scores of all.
    pub best: Option<usize>,
}

/// One query of a retrieval batch.
#[derive(Debug, Clone, Copy)]
pub struct RetrievalQuery<'a> {
    /// (entity, score), in query order.
    pub seeds: &'a [(u32, f64)],
    /// The question's vector, `[dim]`.
    pub question: &'a [f32],
    /// Cosines of question and passages, `[n_passages]`; read only where [`Corpus::needs_similarities`].
    pub similarities: &'a [f32],
}

/// How the passages of a retrieval came out.
#[derive(Debug, Clone, PartialEq)]
pub enum Ranked {
    /// The reset vector was zero or not finite.
    ZeroReset,
    /// The best by (score desc, id asc).
    Best(Vec<(u32, f64)>),
    /// The scores of all, `[n_passages]`; also where the best were wanted, by a corpus that leaves ranking to [`Backend::top_k`].
    Scores(Vec<f32>),
}

/// What one query of a retrieval batch came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Retrieval {
    /// Entity weights and active set.
    pub propagated: Propagated,
    /// Passages.
    pub ranked: Ranked,
}

/// What a device that fails in mid-work ends it with: which operation it was, and how to go on.
pub(crate) fn failed_in(operation: &str, backend: &str, error: Error) -> Error {
    Error::work(format!("the {backend} backend failed in {operation}")).with_source(error).with_hint(
        "what was committed is kept: go on with --resume once the device answers, or with backend.kind = \"cpu\" where the run was begun \
         with \"auto\"",
    )
}

/// A place where arithmetic runs.
pub trait Backend: Send + Sync {
    /// What it is.
    fn description(&self) -> Description;
    /// Takes over the matrices of one index, once.
    ///
    /// # Errors
    /// When they do not fit or do not agree in shape.
    fn load(&self, data: Arc<RetrievalData>) -> Result<Box<dyn Corpus>>;
    /// Inner products of every row of `queries` with every row of `rows`: `[queries, rows]`, row-major.
    ///
    /// # Errors
    /// When the device fails.
    fn similarities(&self, rows: &Matrix, queries: &Matrix) -> Result<Vec<f32>>;
    /// Scores a batch of queries against one store, equations 7, 12, 13 and 17.
    ///
    /// # Errors
    /// When the device fails.
    fn store_scan(&self, store: &dyn ActivationStore, batch: &[ScanQuery<'_>]) -> Result<Vec<ScanResult>>;
    /// The k best of each row of scores, by (score desc, id asc).
    ///
    /// # Errors
    /// When the device fails.
    fn top_k(&self, batch: &[&[f32]], k: usize) -> Result<Vec<Vec<(u32, f64)>>>;
}

/// One index on a backend.
pub trait Corpus: Send + Sync {
    /// How batches are split to fit the device, in a sentence; `None` where nothing has to be split.
    fn plan(&self) -> Option<String> {
        None
    }
    /// For each row of `queries` the entity of highest cosine (ties: lowest id) and that cosine; `None` without entities.
    ///
    /// # Errors
    /// When the device fails.
    fn link(&self, queries: &Matrix) -> Result<Vec<Option<(u32, f32)>>>;
    /// Cosines of each query with every passage: one `[n_passages]` a query.
    ///
    /// # Errors
    /// When the device fails.
    fn passage_similarities(&self, queries: &[&[f32]]) -> Result<Vec<Vec<f32>>>;
    /// Entity propagation, spec 2.3.
    ///
    /// # Errors
    /// When the device fails.
    fn propagate(
        &self,
        form: Form,
        params: PropagationParams,
        batch: &[PropagationQuery<'_>],
    ) -> Result<Vec<Propagated>>;
    /// Passage weights of the reset vector, spec 2.4: one `[n_passages]` a query; NaN and negatives are 0.
    ///
    /// # Errors
    /// When the device fails.
    fn passage_weights(
        &self,
        passage_ratio: f64,
        passage_node_weight: f64,
        batch: &[PassageWeightQuery<'_>],
    ) -> Result<Vec<Vec<f32>>>;
    /// Personalised PageRank: scores of the passages, of a vector that sums to 1 over all nodes; `None` for a zero reset.
    ///
    /// # Errors
    /// When the device fails.
    fn pagerank(&self, damping: f64, batch: &[Reset<'_>]) -> Result<Vec<Option<Vec<f32>>>>;

    /// Whether [`retrieve`](Self::retrieve) reads the cosines of question and passages from its queries; else it makes its own.
    fn needs_similarities(&self) -> bool {
        true
    }

    /// Propagation, passage weights, PageRank and, where the best are wanted, their ranking, in one call (spec 2.3, 2.4). This is the
    /// single operations one after the other; a device does the same without its numbers leaving it in between.
    ///
    /// # Errors
    /// When the device fails.
    fn retrieve(&self, params: &RetrievalParams, batch: &[RetrievalQuery<'_>]) -> Result<Vec<Retrieval>> {
        let queries: Vec<PropagationQuery<'_>> =
            batch.iter().map(|q| PropagationQuery { seeds: q.seeds, question: q.question }).collect();
        let propagated = self.propagate(params.form, params.propagation, &queries)?;
        let weighted: Vec<PassageWeightQuery<'_>> = batch
            .iter()
            .zip(&propagated)
            .map(|(q, p)| PassageWeightQuery { similarities: q.similarities, active: &p.active })
            .collect();
        let weights = self.passage_weights(params.passage_ratio, params.passage_node_weight, &weighted)?;
        let resets: Vec<Reset<'_>> =
            propagated.iter().zip(&weights).map(|(p, w)| Reset { entities: &p.weights, passages: w }).collect();
        let scores = self.pagerank(params.damping, &resets)?;
        let ranked = scores.into_iter().map(|scores| scores.map_or(Ranked::ZeroReset, Ranked::Scores));
        Ok(propagated.into_iter().zip(ranked).map(|(propagated, ranked)| Retrieval { propagated, ranked }).collect())
    }
}

/// Opens the backend a configuration asks for. `auto` takes CUDA where it was built in and a device answers, else the CPU, and the
/// description's note says why.
///
/// # Errors
/// `cuda` without CUDA in the build, without a driver or without a device: one sentence, with what to do instead.
pub fn open(config: &BackendConfig) -> Result<Box<dyn Backend>> {
    let threads = config.threads as usize;
    match config.kind {
        BackendKind::Cpu => Ok(Box::new(cpu::Cpu::new(threads)?)),
        BackendKind::Cuda => cuda::open(threads),
        BackendKind::Auto => match cuda::open(threads) {
            Ok(backend) => Ok(backend),
            Err(error) => {
                let note = format!("auto took the CPU, since {}", error.sentence());
                Ok(Box::new(cpu::Cpu::new(threads)?.with_note(note)))
            }
        },
    }
}
