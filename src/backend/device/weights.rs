//! Passage weights of a batch: `kernels/passage_weight.cu`.

use crate::backend::PassageWeightQuery;
use crate::backend::device::kernel::{PASSAGE_MINMAX, PASSAGE_TILE, PASSAGE_WEIGHT};
use crate::backend::device::propagate::Lists;
use crate::backend::device::{Arg, Array, Device, Engine, index, offsets};
use crate::math::graph::WeightedCsr;
use crate::{Error, Result};

/// Entity → (passage, ln(1 + occ)) on the device.
pub(crate) struct Occurrences<D: Device> {
    passages: Lists<D>,
    ln: Array<D, f64>,
    n_entities: usize,
    n_passages: usize,
}

/// A list of entities a query, on the device.
pub(crate) struct ActiveLists<'a, D: Device> {
    /// `[queries + 1]`
    pub(crate) offsets: &'a Array<D, u32>,
    /// `[entries]`, ascending within a query
    pub(crate) entities: &'a Array<D, u32>,
    /// `[entries]`
    pub(crate) scores: &'a Array<D, f64>,
    /// `[entries]`, tier + 1, 0 where not active
    pub(crate) tiers: &'a Array<D, u32>,
}

impl<D: Device> Occurrences<D> {
    pub(crate) fn upload(engine: &Engine<D>, occurrences: &WeightedCsr<f64>, n_passages: usize) -> Result<Self> {
        Ok(Self {
            passages: Lists::upload(engine, &occurrences.shape)?,
            ln: engine.upload(&occurrences.values)?,
            n_entities: occurrences.rows(),
            n_passages,
        })
    }

    /// Runs a batch and fetches the weights.
    pub(crate) fn weights(
        &self,
        engine: &Engine<D>,
        passage_ratio: f64,
        node_weight: f64,
        batch: &[PassageWeightQuery<'_>],
    ) -> Result<Vec<Vec<f32>>> {
        let n = self.n_passages;
        for query in batch {
            if query.similarities.len() != n {
                let found = query.similarities.len();
                return Err(Error::work(format!("{found} cosines were given for {n} passages")));
            }
            if let Some(a) = query.active.iter().find(|a| a.entity as usize >= self.n_entities) {
                return Err(Error::work(format!("active entity {} is not in the index", a.entity)));
            }
        }
        let similarities = engine.upload(&batch.iter().map(|q| q.similarities).collect::<Vec<_>>().concat())?;
        let active: Vec<_> = batch.iter().flat_map(|q| q.active).collect();
        let lists = ActiveLists {
            offsets: &engine.upload(&offsets(batch.iter().map(|q| q.active.len()))?)?,
            entities: &engine.upload(&active.iter().map(|a| a.entity).collect::<Vec<u32>>())?,
            scores: &engine.upload(&active.iter().map(|a| a.score).collect::<Vec<f64>>())?,
            tiers: &engine.upload(&active.iter().map(|a| a.tier.saturating_add(1)).collect::<Vec<u32>>())?,
        };
        let out = self.weigh(engine, passage_ratio, node_weight, batch.len(), &similarities, &lists)?;
        let all = engine.download(&out, batch.len() * n)?;
        Ok((0..batch.len()).map(|q| all[q * n..(q + 1) * n].to_vec()).collect())
    }

    /// Weights on the device, `[queries, n_passages]`, from cosines of the same shape and what is active.
    pub(crate) fn weigh(
        &self,
        engine: &Engine<D>,
        passage_ratio: f64,
        node_weight: f64,
        queries: usize,
        similarities: &Array<D, f32>,
        active: &ActiveLists<'_, D>,
    ) -> Result<Array<D, f32>> {
        let n = self.n_passages;
        let mut minmax = engine.array::<f32>(2 * queries)?;
        let args = [similarities.read(), Arg::U32(index(n)?), minmax.write()];
        engine.launch(PASSAGE_MINMAX, (queries, 1), 256, &args)?;
        let mut out = engine.array::<f32>(queries * n)?;
        let args = [
            similarities.read(),
            minmax.read(),
            Arg::U32(index(n)?),
            active.offsets.read(),
            active.entities.read(),
            active.scores.read(),
            active.tiers.read(),
            self.passages.offsets.read(),
            self.passages.indices.read(),
            self.ln.read(),
            Arg::F64(passage_ratio),
            Arg::F64(node_weight),
            out.write(),
        ];
        engine.launch(PASSAGE_WEIGHT, (n.div_ceil(PASSAGE_TILE), queries), 256, &args)?;
        Ok(out)
    }
}
