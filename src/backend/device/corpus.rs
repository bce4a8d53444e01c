//! [`DeviceCorpus`]: one index on a device; splits batches as planned and calls the steps.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::Result;
use crate::backend::device::dense::Rows;
use crate::backend::device::pagerank::PageRank;
use crate::backend::device::plan::MemoryPlan;
use crate::backend::device::propagate::Mentions;
use crate::backend::device::weights::Occurrences;
use crate::backend::device::{Device, Engine, checks};
use crate::backend::{Corpus, Form, Matrix, PassageWeightQuery, PropagationQuery, Reset, RetrievalData};
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
}

impl<D: Device> DeviceCorpus<D> {
    pub(crate) fn new(engine: Engine<D>, turn: Arc<Mutex<()>>, data: Arc<RetrievalData>) -> Result<Self> {
        data.check_shapes()?;
        checks::check(&data)?;
        // Planned before anything is uploaded, so that what cannot fit is told at once.
        let resident = super::plan::resident_bytes(&data);
        let plan = MemoryPlan::new(&data, engine.device().free_bytes()?.saturating_sub(resident))?;
        let corpus = {
            let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
            Self {
                entities: Rows::upload(&engine, &data.entities)?,
                passages: Rows::upload(&engine, &data.passages)?,
                mentions: Mentions::upload(&engine, &data.graph, &data.sentences)?,
                occurrences: Occurrences::upload(&engine, &data.occurrences, data.graph.n_passages())?,
                pagerank: PageRank::upload(&engine, &data.graph.adjacency, data.graph.n_entities())?,
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

    /// Runs `step` on parts of the batch.
    fn in_parts<Q, T>(
        &self,
        operation: &str,
        batch: &[Q],
        most: usize,
        step: impl Fn(&[Q]) -> Result<Vec<T>>,
    ) -> Result<Vec<T>> {
        let mut out = Vec::with_capacity(batch.len());
        for part in batch.chunks(most) {
            out.extend(self.engine.during(operation, step(part))?);
        }
        Ok(out)
    }
}

impl<D: Device> Corpus for DeviceCorpus<D> {
    fn plan(&self) -> Option<String> {
        Some(self.plan.to_string())
    }

    fn link(&self, queries: &Matrix) -> Result<Vec<Option<(u32, f32)>>> {
        let _turn = self.turn();
        let views: Vec<&[f32]> = (0..queries.rows()).map(|q| queries.row(q)).collect();
        self.in_parts("linking", &views, self.plan.link, |part| self.entities.best(&self.engine, part))
    }

    fn passage_similarities(&self, queries: &[&[f32]]) -> Result<Vec<Vec<f32>>> {
        let _turn = self.turn();
        self.in_parts("passage similarity", queries, self.plan.similarities, |part| {
            self.passages.products_of(&self.engine, part)
        })
    }

    fn propagate(
        &self,
        form: Form,
        params: PropagationParams,
        batch: &[PropagationQuery<'_>],
    ) -> Result<Vec<Propagated>> {
        let _turn = self.turn();
        self.in_parts("propagation", batch, self.plan.propagate, |part| {
            self.mentions.propagate(&self.engine, form, params, part)
        })
    }

    fn passage_weights(
        &self,
        passage_ratio: f64,
        passage_node_weight: f64,
        batch: &[PassageWeightQuery<'_>],
    ) -> Result<Vec<Vec<f32>>> {
        let _turn = self.turn();
        self.in_parts("passage weighting", batch, self.plan.weights, |part| {
            self.occurrences.weights(&self.engine, passage_ratio, passage_node_weight, part)
        })
    }

    fn pagerank(&self, damping: f64, batch: &[Reset<'_>]) -> Result<Vec<Option<Vec<f32>>>> {
        let _turn = self.turn();
        self.in_parts("PageRank", batch, self.plan.pagerank, |part| self.pagerank.solve(&self.engine, damping, part))
    }
}
