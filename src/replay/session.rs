//! One dataset with everything its runs share: index on a backend, base rankings, masked questions.
//!
//! In: [`Dataset`], [`Index`], a backend. Out: store-independent results, each computed once however many runs ask for it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::backend::Backend;
use crate::config::{RetrieveConfig, TemplateSimilarity};
use crate::dataset::Dataset;
use crate::experience::template::mask_question;
use crate::index::Index;
use crate::index::graph::entity_text;
use crate::math::tfidf::{TfidfModel, TokenCounts};
use crate::replay::cosines::PairCosines;
use crate::replay::opportunity::{Opportunity, Traits, opportunities};
use crate::replay::shared::{Shared, Work};
use crate::retrieve::{Prepared, RANK_DEPTH, Retrieved};
use crate::{Error, Result, backend};

/// Rankings that no store can change, filled as they are asked for.
struct BaseRankings {
    vanilla: Vec<OnceLock<Arc<Retrieved>>>,
    linear: Vec<OnceLock<Arc<Retrieved>>>,
}

impl BaseRankings {
    fn new(n: usize) -> Self {
        let empty = || std::iter::repeat_with(OnceLock::new).take(n).collect();
        Self { vanilla: empty(), linear: empty() }
    }
}

/// One order of the stream with what describes it.
pub struct Stream {
    /// Question (file place) of each stream place.
    pub questions: Vec<usize>,
    /// Reuse opportunities by stream place.
    pub opportunities: Vec<Option<Opportunity>>,
    /// TF-IDF of the masked questions, fitted on this stream; documents are stream places.
    tfidf: TfidfModel,
    /// Stream place of each question.
    place: Vec<Option<usize>>,
}

impl Stream {
    /// Where a question stands in this stream, from 0.
    pub(super) fn place(&self, question: usize) -> Option<usize> {
        self.place[question]
    }

    /// TF-IDF cosine of two questions' templates; `None` when one is not in this stream.
    pub fn template_tfidf(&self, a: usize, b: usize) -> Option<f64> {
        Some(self.tfidf.cosine(self.place[a]?, self.place[b]?))
    }
}

/// Everything the runs of one dataset share.
pub struct Session {
    /// Questions and passages.
    pub dataset: Dataset,
    /// The index on its backend.
    pub prepared: Prepared,
    /// Masked question by file place, equation 11.
    pub templates: Vec<String>,
    /// Numbers of each question's lower-cased entity strings, ascending: its seeds where there is no graph to link to.
    question_entities: Vec<Vec<u32>>,
    token_counts: Vec<TokenCounts>,
    /// Row of the template vectors by file place; `None` when a template has no vector.
    template_rows: Option<Vec<usize>>,
    base: Mutex<BTreeMap<String, Arc<BaseRankings>>>,
    streams: Mutex<BTreeMap<String, Arc<Stream>>>,
    question_cosines: PairCosines,
    /// By embedding and by tokens.
    template_cosines: [PairCosines; 2],
    /// What runs share while they advance in step.
    pub shared: Shared,
}

/// A key that two equal configurations share.
pub(super) fn key(config: &RetrieveConfig) -> String {
    // Rankings are kept at least this deep, whatever the reader is given of them.
    let depth = config.top_k.max(RANK_DEPTH as u32);
    format!("{:?}", RetrieveConfig { top_k: depth, ..config.clone() })
}

impl Session {
    /// Prepares a dataset.
    ///
    /// # Errors
    /// When index and dataset do not belong together, or the backend cannot take the index or fails.
    pub fn new(dataset: Dataset, index: Arc<Index>, backend: Arc<dyn Backend>) -> Result<Self> {
        if index.questions.len() != dataset.questions.len() || index.meta.counts.passages != dataset.passages.len() {
            return Err(Error::request(format!(
                "the index of {:?} has {} questions and {} passages, the dataset {:?} has {} and {}",
                index.meta.dataset,
                index.questions.len(),
                index.meta.counts.passages,
                dataset.name,
                dataset.questions.len(),
                dataset.passages.len()
            ))
            .with_hint("build the index again with `livingrag index`"));
        }
        let lengths = dataset.passages.iter().map(|p| p.text.chars().count() as f64).collect();
        let templates: Vec<String> =
            index.questions.iter().map(|q| mask_question(&q.question.text, &q.mentions)).collect();
        let mut numbers: BTreeMap<String, u32> = BTreeMap::new();
        let question_entities = index
            .questions
            .iter()
            .map(|q| {
                let texts = q.mentions.iter().filter_map(|m| entity_text(m, index.meta.options.entity_text));
                let mut ids: Vec<u32> = texts
                    .map(|text| {
                        let next = numbers.len() as u32;
                        *numbers.entry(text.to_lowercase()).or_insert(next)
                    })
                    .collect();
                ids.sort_unstable();
                ids.dedup();
                ids
            })
            .collect();
        let token_counts = templates.iter().map(|t| TokenCounts::of(t)).collect();
        let template_rows = templates.iter().map(|t| index.template_rows.get(t).copied()).collect();
        let n = index.questions.len();
        Ok(Self {
            prepared: Prepared::new(index, backend, lengths)?,
            dataset,
            templates,
            question_entities,
            token_counts,
            template_rows,
            base: Mutex::default(),
            streams: Mutex::default(),
            question_cosines: PairCosines::new(n),
            template_cosines: [PairCosines::new(n), PairCosines::new(n)],
            shared: Shared::default(),
        })
    }

    /// The index.
    pub fn index(&self) -> &Index {
        &self.prepared.index
    }

    fn base(&self, config: &RetrieveConfig) -> Arc<BaseRankings> {
        let mut base = self.base.lock().unwrap_or_else(PoisonError::into_inner);
        let n = self.index().questions.len();
        Arc::clone(base.entry(key(config)).or_insert_with(|| Arc::new(BaseRankings::new(n))))
    }

    /// LinearRAG's result of each question, computed once per configuration.
    ///
    /// # Errors
    /// When the backend fails.
    pub fn linear(&self, config: &RetrieveConfig, questions: &[usize]) -> Result<Vec<Arc<Retrieved>>> {
        let base = self.base(config);
        fill(&base.linear, questions, |missing| self.prepared.linear(config, missing))
    }

    /// Dense ranking of each question, computed once per configuration.
    ///
    /// # Errors
    /// When the backend fails.
    pub fn vanilla(&self, config: &RetrieveConfig, questions: &[usize]) -> Result<Vec<Arc<Retrieved>>> {
        let base = self.base(config);
        fill(&base.vanilla, questions, |missing| self.prepared.vanilla(config, missing))
    }

    /// The stream of these questions in this order, with its opportunities under `linear` (section 3.1).
    ///
    /// # Errors
    /// When the backend fails.
    pub fn stream(&self, questions: &[usize], config: &RetrieveConfig) -> Result<Arc<Stream>> {
        let name = format!("{config:?} {questions:?}");
        if let Some(known) = self.streams.lock().unwrap_or_else(PoisonError::into_inner).get(&name) {
            return Ok(Arc::clone(known));
        }
        let documents: Vec<&str> = questions.iter().map(|&q| self.templates[q].as_str()).collect();
        let tfidf = TfidfModel::fit(&documents);
        let linear = self.linear(config, questions)?;
        let traits: Vec<Traits> =
            questions.iter().zip(&linear).map(|(&q, r)| self.traits(q, r, config.top_k as usize)).collect();
        let views: Vec<&Traits> = traits.iter().collect();
        let opportunities = opportunities(&views, |a, b| tfidf.cosine(a, b));
        let mut place = vec![None; self.index().questions.len()];
        for (at, &q) in questions.iter().enumerate() {
            place[q] = Some(at);
        }
        let stream = Arc::new(Stream { questions: questions.to_vec(), opportunities, tfidf, place });
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Arc::clone(streams.entry(name).or_insert(stream)))
    }

    /// What reuse opportunities compare. Seeds are graph entities; in a graph without entities, distinct question entity strings.
    fn traits(&self, question: usize, linear: &Retrieved, top_k: usize) -> Traits {
        let index = self.index();
        let seeds = match index.entities.is_empty() {
            true => self.question_entities[question].clone(),
            false => self.prepared.bases[question].activation.ids.clone(),
        };
        let mut passages: Vec<u32> = linear.ranking.iter().take(top_k).map(|&(p, _)| p).collect();
        let graph = &index.data.graph;
        let mut context: Vec<u32> = passages
            .iter()
            .flat_map(|&p| graph.passage_entities.row(p as usize))
            .copied()
            .filter(|&e| linear.propagated.active.binary_search_by_key(&e, |a| a.entity).is_ok())
            .collect();
        passages.sort_unstable();
        context.sort_unstable();
        context.dedup();
        Traits { seeds, passages, context }
    }

    /// How templates are compared: what `auto` comes to with this index.
    ///
    /// `auto` looks only at whether there are template vectors at all. Would it also look at whether every question has one, a
    /// question added at the stream's end could change how all earlier ones are compared.
    ///
    /// # Errors
    /// When vectors are to be compared and a masked question has none.
    pub fn template_similarity(&self, asked: TemplateSimilarity) -> Result<TemplateSimilarity> {
        let known = &self.index().template_rows;
        if asked == TemplateSimilarity::Tokens || (asked == TemplateSimilarity::Auto && known.is_empty()) {
            return Ok(TemplateSimilarity::Tokens);
        }
        if self.template_rows.is_some() {
            return Ok(TemplateSimilarity::Embedding);
        }
        let missing: Vec<&String> = self.templates.iter().filter(|t| !known.contains_key(*t)).collect();
        let first = missing.first().map(|t| t.chars().take(60).collect::<String>()).unwrap_or_default();
        Err(Error::request(format!(
            "experience.template_similarity = \"{}\": the index has no vector for {} of {} masked questions, the first is {first:?}",
            asked.as_str(),
            missing.len(),
            self.templates.len()
        ))
        .with_hint(
            "leave index.path empty, and index.encoder makes the vectors; or write them into embeddings/templates.parquet from \
             `livingrag dataset texts <dir>`, or set experience.template_similarity=tokens",
        ))
    }

    /// cos(T(q_a), T(q_b)) in the resolved way; depends on the two questions alone.
    pub fn template_cosine(&self, how: TemplateSimilarity, a: usize, b: usize) -> f32 {
        match (how, &self.template_rows) {
            (TemplateSimilarity::Embedding, Some(rows)) => self.template_cosines[0].get(a, b, || {
                let vectors = &self.index().template_vectors;
                backend::cpu::dot(vectors.row(rows[a]), vectors.row(rows[b]))
            }),
            _ => self.template_cosines[1].get(a, b, || self.token_counts[a].cosine(&self.token_counts[b]) as f32),
        }
    }

    /// cos(v_a, v_b) of two questions, computed once for all runs.
    pub fn question_cosine(&self, a: usize, b: usize) -> f32 {
        self.question_cosines.get(a, b, || self.prepared.question_similarity(a, b))
    }

    /// What was done so far for all runs of this session.
    pub fn work(&self) -> Work {
        let (propagations, ppr_columns) = self.prepared.computed();
        let mut work = self.shared.counted();
        work.retrievals.done = propagations;
        Work {
            propagations,
            ppr_columns,
            question_cosines: self.question_cosines.computed(),
            template_cosines: self.template_cosines.iter().map(PairCosines::computed).sum(),
            ..work
        }
    }
}

/// Computes what is missing in one batch and hands out everything asked for, in order.
fn fill(
    kept: &[OnceLock<Arc<Retrieved>>],
    questions: &[usize],
    compute: impl FnOnce(&[usize]) -> Result<Vec<Retrieved>>,
) -> Result<Vec<Arc<Retrieved>>> {
    let mut missing: Vec<usize> = questions.iter().copied().filter(|&q| kept[q].get().is_none()).collect();
    missing.sort_unstable();
    missing.dedup();
    if !missing.is_empty() {
        for (&q, found) in missing.iter().zip(compute(&missing)?) {
            // Another thread may have set the same result first.
            let _ = kept[q].set(Arc::new(found));
        }
    }
    Ok(questions.iter().map(|&q| kept[q].get().map(Arc::clone).unwrap_or_default()).collect())
}
