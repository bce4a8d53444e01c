//! One dataset ready to be asked: seeds linked, matrices loaded, store-independent results kept.
//!
//! Everything here is the same for every run of a dataset, so it is computed once and shared: seeds and base activations of all
//! questions, question–passage cosines (kept while they fit the budget), question–question cosines, and the rankings of `linear`
//! and `vanilla`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::Result;
use crate::backend::{Backend, Corpus, Form, Ranked, RetrievalParams, RetrievalQuery, cpu};
use crate::config::{Propagation, RetrieveConfig};
use crate::index::Index;
use crate::math::propagation::PropagationParams;
use crate::math::sparse::SparseVector;
use crate::retrieve::length_norm::normalize_by_length;
use crate::retrieve::{Fallback, QueryBase, RANK_DEPTH, Retrieved};

/// Question–passage cosines are kept when all of them take at most so many bytes.
pub const SIMILARITY_CACHE_BYTES: usize = 1 << 30;

/// One query of a retrieval batch.
#[derive(Debug, Clone, Copy)]
pub struct GraphQuery<'a> {
    /// Which question.
    pub question: usize,
    /// Where propagation starts, in order.
    pub seeds: &'a [(u32, f64)],
}

/// An index on a backend with everything that does not depend on a store.
pub struct Prepared {
    /// The index.
    pub index: Arc<Index>,
    /// Where it runs.
    pub backend: Arc<dyn Backend>,
    /// One a question, in file order.
    pub bases: Vec<QueryBase>,
    corpus: Box<dyn Corpus>,
    /// Characters of each passage, for length normalisation.
    lengths: Vec<f64>,
    similarities: Vec<OnceLock<Arc<[f32]>>>,
    keep_similarities: bool,
    propagations: AtomicU64,
    columns: AtomicU64,
}

impl Prepared {
    /// Loads the index and links the seeds of every question (spec 2.2).
    ///
    /// `lengths` are the passages' lengths in characters; empty when no length normalisation is wanted.
    ///
    /// # Errors
    /// When the backend cannot take the index, or fails.
    pub fn new(index: Arc<Index>, backend: Arc<dyn Backend>, lengths: Vec<f64>) -> Result<Self> {
        let corpus = backend.load(Arc::clone(&index.data))?;
        let links = corpus.link(&index.question_entity_vectors)?;
        let bases = index
            .questions
            .iter()
            .map(|question| {
                let seeds: Vec<(u32, f64)> = question
                    .entities
                    .iter()
                    .filter_map(|&row| links.get(row as usize).copied().flatten())
                    .map(|(entity, cosine)| (entity, f64::from(cosine)))
                    .collect();
                let activation = SparseVector::from_assignments(seeds.iter().copied());
                QueryBase { seeds, activation }
            })
            .collect();
        let n = index.questions.len();
        let keep_similarities = n * index.meta.counts.passages * size_of::<f32>() <= SIMILARITY_CACHE_BYTES;
        let similarities = std::iter::repeat_with(OnceLock::new).take(n).collect();
        Ok(Self {
            index,
            backend,
            bases,
            corpus,
            lengths,
            similarities,
            keep_similarities,
            propagations: AtomicU64::new(0),
            columns: AtomicU64::new(0),
        })
    }

    /// Propagation queries and PageRank columns computed so far.
    pub fn computed(&self) -> (u64, u64) {
        (self.propagations.load(Ordering::Relaxed), self.columns.load(Ordering::Relaxed))
    }

    /// How the backend splits batches to fit its device, in a sentence; `None` where nothing has to be split.
    pub fn plan(&self) -> Option<String> {
        self.corpus.plan()
    }

    /// cos(v_a, v_b) of two questions.
    pub fn question_similarity(&self, a: usize, b: usize) -> f32 {
        cpu::dot(self.index.question_vectors.row(a), self.index.question_vectors.row(b))
    }

    /// Cosines of each question with every passage.
    fn passage_similarities(&self, questions: &[usize]) -> Result<Vec<Arc<[f32]>>> {
        let mut wanted: Vec<usize> = questions.to_vec();
        wanted.sort_unstable();
        wanted.dedup();
        wanted.retain(|&q| self.similarities[q].get().is_none());
        let vectors: Vec<&[f32]> = wanted.iter().map(|&q| self.index.question_vectors.row(q)).collect();
        let computed = self.corpus.passage_similarities(&vectors)?;
        let computed: Vec<Arc<[f32]>> = computed.into_iter().map(Arc::from).collect();
        let of = |q: usize| -> Arc<[f32]> {
            match (self.similarities[q].get(), wanted.binary_search(&q)) {
                (Some(kept), _) => Arc::clone(kept),
                (None, Ok(at)) => Arc::clone(&computed[at]),
                (None, Err(_)) => Arc::from([]),
            }
        };
        let out = questions.iter().map(|&q| of(q)).collect();
        if self.keep_similarities {
            for (&q, row) in wanted.iter().zip(&computed) {
                // Another thread may have set the same numbers first.
                let _ = self.similarities[q].set(Arc::clone(row));
            }
        }
        Ok(out)
    }

    fn rank(&self, config: &RetrieveConfig, scores: &[&[f32]]) -> Result<Vec<Vec<(u32, f64)>>> {
        let depth = RANK_DEPTH.max(config.top_k as usize);
        if config.length_b == 0.0 {
            return self.backend.top_k(scores, depth);
        }
        let average = self.lengths.iter().sum::<f64>() / self.lengths.len().max(1) as f64;
        let ranked = scores.iter().map(|row| {
            let normalized = row
                .iter()
                .zip(&self.lengths)
                .map(|(&s, &l)| normalize_by_length(f64::from(s), l, average, config.length_b));
            crate::math::rank::top_k(normalized, depth)
        });
        Ok(ranked.collect())
    }

    /// Dense ranking of each question.
    ///
    /// # Errors
    /// When the backend fails.
    pub fn vanilla(&self, config: &RetrieveConfig, questions: &[usize]) -> Result<Vec<Retrieved>> {
        let similarities = self.passage_similarities(questions)?;
        let views: Vec<&[f32]> = similarities.iter().map(|s| &**s).collect();
        let ranked = self.rank(config, &views)?;
        Ok(ranked.into_iter().map(|ranking| Retrieved { ranking, ..Retrieved::default() }).collect())
    }

    /// LinearRAG from the questions' own seeds.
    ///
    /// # Errors
    /// When the backend fails.
    pub fn linear(&self, config: &RetrieveConfig, questions: &[usize]) -> Result<Vec<Retrieved>> {
        let batch: Vec<GraphQuery<'_>> =
            questions.iter().map(|&question| GraphQuery { question, seeds: &self.bases[question].seeds }).collect();
        self.graph(config, &batch)
    }

    /// Graph retrieval from given seeds: propagation, passage weights, PageRank, ranking (spec 2.3–2.4).
    ///
    /// # Errors
    /// When the backend fails.
    pub fn graph(&self, config: &RetrieveConfig, batch: &[GraphQuery<'_>]) -> Result<Vec<Retrieved>> {
        let params = RetrievalParams {
            form: match config.propagation {
                Propagation::Bfs => Form::Bfs,
                Propagation::Matrix => Form::Matrix,
            },
            propagation: PropagationParams {
                max_iterations: config.max_iterations,
                threshold: config.iteration_threshold,
                top_k_sentence: config.top_k_sentence as usize,
            },
            passage_ratio: config.passage_ratio,
            passage_node_weight: config.passage_node_weight,
            damping: config.damping,
            best: (config.length_b == 0.0).then(|| RANK_DEPTH.max(config.top_k as usize)),
        };
        let similarities = match self.corpus.needs_similarities() {
            true => self.passage_similarities(&batch.iter().map(|q| q.question).collect::<Vec<_>>())?,
            false => Vec::new(),
        };
        let seeded: Vec<usize> = (0..batch.len()).filter(|&i| !batch[i].seeds.is_empty()).collect();
        let queries: Vec<RetrievalQuery<'_>> = seeded
            .iter()
            .map(|&i| RetrievalQuery {
                seeds: batch[i].seeds,
                question: self.index.question_vectors.row(batch[i].question),
                similarities: similarities.get(i).map_or(&[], |s| &**s),
            })
            .collect();
        let found = self.corpus.retrieve(&params, &queries)?;
        self.propagations.fetch_add(queries.len() as u64, Ordering::Relaxed);
        self.columns.fetch_add(queries.len() as u64, Ordering::Relaxed);

        let mut out: Vec<Retrieved> =
            vec![Retrieved { fallback: Some(Fallback::DenseNoSeed), ..Retrieved::default() }; batch.len()];
        // Rows that are still to be ranked, by these scores.
        let mut open: Vec<(usize, Vec<f32>)> = Vec::new();
        for (&i, found) in seeded.iter().zip(found) {
            out[i].propagated = found.propagated;
            out[i].fallback = None;
            match found.ranked {
                Ranked::ZeroReset => out[i].fallback = Some(Fallback::DenseZeroReset),
                Ranked::Best(ranking) => out[i].ranking = ranking,
                Ranked::Scores(scores) => open.push((i, scores)),
            }
        }
        let dense: Vec<usize> = (0..batch.len()).filter(|&i| out[i].fallback.is_some()).collect();
        let cosines = match self.corpus.needs_similarities() {
            true => dense.iter().map(|&i| Arc::clone(&similarities[i])).collect(),
            false => self.passage_similarities(&dense.iter().map(|&i| batch[i].question).collect::<Vec<_>>())?,
        };
        let scores: Vec<&[f32]> = open.iter().map(|(_, s)| s.as_slice()).chain(cosines.iter().map(|s| &**s)).collect();
        let rows = open.iter().map(|&(i, _)| i).chain(dense.iter().copied());
        for (i, ranking) in rows.zip(self.rank(config, &scores)?) {
            out[i].ranking = ranking;
        }
        Ok(out)
    }
}
