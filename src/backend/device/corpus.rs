//! [`DeviceCorpus`]: one index on a device; splits batches as planned and calls the steps.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::Result;
use crate::backend::device::dense::{Rows, best};
use crate::backend::device::pagerank::{PageRank, ResetLists};
use crate::backend::device::plan::{MemoryPlan, Step};
use crate::backend::device::propagate::Mentions;
use crate::backend::device::weights::{ActiveLists, Occurrences};
use crate::backend::device::{Device, Engine, checks};
use crate::backend::{
    Corpus, Form, Matrix, PassageWeightQuery, PropagationQuery, Ranked, Reset, Retrieval, RetrievalData,
    RetrievalParams, RetrievalQuery,
};
use crate::math::propagation::{Propagated, PropagationParams};

/// One index on a device: graph and vectors are uploaded once.
pub(crate) struct DeviceCorpus<D: Device> {
    engine: Engine<D>,
    turn: Arc<Mutex<()>>,
    plan: MemoryPlan,
    entities: Rows<D>,
    passages: Rows<D>,
    mentions: Mentions<D>,
    occurrences: Occurrences<D>,
    pagerank: PageRank<D>,
    n_passages: usize,
}

impl<D: Device> DeviceCorpus<D> {
    pub(crate) fn new(engine: Engine<D>, turn: Arc<Mutex<()>>, data: Arc<RetrievalData>) -> Result<Self> {
        data.check_shapes()?;
        checks::check(&data)?;
        // Planned before anything is uploaded, so that what cannot fit is told at once.
        let plan = MemoryPlan::new(&data, engine.device().free_bytes()?)?;
        let corpus = {
            let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
            Self {
                entities: Rows::upload(&engine, &data.entities)?,
                passages: Rows::upload(&engine, &data.passages)?,
                mentions: Mentions::upload(&engine, &data.graph, &data.sentences)?,
                occurrences: Occurrences::upload(&engine, &data.occurrences, data.graph.n_passages())?,
                pagerank: PageRank::upload(&engine, &data.graph.adjacency, data.graph.n_entities())?,
                n_passages: data.graph.n_passages(),
                turn: Arc::clone(&turn),
                engine,
                plan,
            }
        };
        Ok(corpus)
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `work` on parts of the batch, as large as planned for this step.
    fn in_parts<Q, T>(&self, step: Step, batch: &[Q], work: impl Fn(&[Q]) -> Result<Vec<T>>) -> Result<Vec<T>> {
        let mut out = Vec::with_capacity(batch.len());
        for part in batch.chunks(self.plan.queries(step)) {
            out.extend(self.engine.during(step.name(), work(part))?);
        }
        Ok(out)
    }

    /// One batch from seeds to rankings; everything between stays on the device.
    fn chain(&self, params: &RetrievalParams, batch: &[RetrievalQuery<'_>]) -> Result<Vec<Retrieval>> {
        let engine = &self.engine;
        let questions: Vec<&[f32]> = batch.iter().map(|q| q.question).collect();
        let seeds: Vec<&[(u32, f64)]> = batch.iter().map(|q| q.seeds).collect();
        let vectors = self.passages.vectors(engine, &questions)?;
        let touched = self.mentions.touched(engine, params.form, params.propagation, &seeds, &vectors)?;
        if batch.len() > 1 && !self.plan.fits_touched(params.form, batch.len(), touched.entities.len()) {
            // Planned for the few entities that queries touch as a rule; these touched so many that the batch is halved.
            drop((touched, vectors));
            let (first, rest) = batch.split_at(batch.len() / 2);
            let mut out = self.chain(params, first)?;
            out.extend(self.chain(params, rest)?);
            return Ok(out);
        }
        let weights = {
            let similarities = self.passages.products(engine, &vectors, batch.len())?;
            let active = ActiveLists {
                offsets: &touched.offsets,
                entities: &touched.entities,
                scores: &touched.scores,
                tiers: &touched.tiers,
            };
            let (ratio, node_weight) = (params.passage_ratio, params.passage_node_weight);
            self.occurrences.weigh(engine, ratio, node_weight, batch.len(), &similarities, &active)?
        };
        drop(vectors);
        let reset = ResetLists { offsets: &touched.offsets, entities: &touched.entities, weights: &touched.weights };
        let solved = self.pagerank.scores(engine, params.damping, batch.len(), &reset, weights)?;
        let n = self.n_passages;
        let ranked: Vec<Ranked> = if solved.scores.is_empty() {
            vec![Ranked::ZeroReset; batch.len()]
        } else if let Some(k) = params.best.map(|k| k.min(n)) {
            let best = best(engine, &solved.scores, batch.len(), n, k)?;
            let row = |q: usize| {
                let range = q * k..(q + 1) * k;
                let scores = best.scores[range.clone()].iter().map(|&s| f64::from(s));
                Ranked::Best(best.ids[range].iter().copied().zip(scores).collect())
            };
            (0..batch.len()).map(row).collect()
        } else {
            let scores = engine.download(&solved.scores, batch.len() * n)?;
            (0..batch.len()).map(|q| Ranked::Scores(scores[q * n..(q + 1) * n].to_vec())).collect()
        };
        let propagated = touched.download(engine)?;
        Ok(propagated
            .into_iter()
            .zip(ranked)
            .zip(solved.alive)
            .map(|((propagated, ranked), alive)| Retrieval {
                propagated,
                ranked: if alive { ranked } else { Ranked::ZeroReset },
            })
            .collect())
    }
}

impl<D: Device> Corpus for DeviceCorpus<D> {
    fn plan(&self) -> Option<String> {
        Some(self.plan.to_string())
    }

    fn link(&self, queries: &Matrix) -> Result<Vec<Option<(u32, f32)>>> {
        let _turn = self.turn();
        let views: Vec<&[f32]> = (0..queries.rows()).map(|q| queries.row(q)).collect();
        self.in_parts(Step::Link, &views, |part| self.entities.best(&self.engine, part))
    }

    fn passage_similarities(&self, queries: &[&[f32]]) -> Result<Vec<Vec<f32>>> {
        let _turn = self.turn();
        self.in_parts(Step::Similarities, queries, |part| self.passages.products_of(&self.engine, part))
    }

    fn propagate(
        &self,
        form: Form,
        params: PropagationParams,
        batch: &[PropagationQuery<'_>],
    ) -> Result<Vec<Propagated>> {
        let _turn = self.turn();
        self.in_parts(Step::Propagate(form), batch, |part| self.mentions.propagate(&self.engine, form, params, part))
    }

    fn passage_weights(
        &self,
        passage_ratio: f64,
        passage_node_weight: f64,
        batch: &[PassageWeightQuery<'_>],
    ) -> Result<Vec<Vec<f32>>> {
        let _turn = self.turn();
        self.in_parts(Step::Weights, batch, |part| {
            self.occurrences.weights(&self.engine, passage_ratio, passage_node_weight, part)
        })
    }

    fn pagerank(&self, damping: f64, batch: &[Reset<'_>]) -> Result<Vec<Option<Vec<f32>>>> {
        let _turn = self.turn();
        self.in_parts(Step::PageRank, batch, |part| self.pagerank.solve(&self.engine, damping, part))
    }

    fn needs_similarities(&self) -> bool {
        false
    }

    fn retrieve(&self, params: &RetrievalParams, batch: &[RetrievalQuery<'_>]) -> Result<Vec<Retrieval>> {
        let _turn = self.turn();
        self.in_parts(Step::Retrieve(params.form), batch, |part| self.chain(params, part))
    }
}
