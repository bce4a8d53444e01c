//! Propagation of a batch: `kernels/propagate.cu`, one block a query.

use crate::backend::device::dense::Rows;
use crate::backend::device::kernel::{PROPAGATE_BFS, PROPAGATE_COLLECT, PROPAGATE_MATRIX};
use crate::backend::device::{Arg, Array, Device, Engine, index, offsets};
use crate::backend::{Form, Matrix, PropagationQuery};
use crate::math::graph::{Csr, Graph};
use crate::math::propagation::{Active, Propagated, PropagationParams};
use crate::{Error, Result};

/// Lists on the device.
pub(crate) struct Lists<D: Device> {
    pub(crate) offsets: Array<D, u32>,
    pub(crate) indices: Array<D, u32>,
}

impl<D: Device> Lists<D> {
    pub(crate) fn upload(engine: &Engine<D>, csr: &Csr) -> Result<Self> {
        let offsets = offsets((0..csr.rows()).map(|i| csr.row(i).len()))?;
        Ok(Self { offsets: engine.upload(&offsets)?, indices: engine.upload(&csr.indices)? })
    }
}

/// What propagation touched: a list a query by ascending entity, on the device.
pub(crate) struct Touched<D: Device> {
    /// Where each list begins, `[queries + 1]`.
    starts: Vec<u32>,
    /// The same on the device.
    pub(crate) offsets: Array<D, u32>,
    /// `[touched]`
    pub(crate) entities: Array<D, u32>,
    /// `[touched]`
    pub(crate) weights: Array<D, f64>,
    /// `[touched]`, last scores
    pub(crate) scores: Array<D, f64>,
    /// `[touched]`, tier + 1, 0 where not active
    pub(crate) tiers: Array<D, u32>,
}

impl<D: Device> Touched<D> {
    /// Lists of these starts with undefined content.
    fn new(engine: &Engine<D>, starts: Vec<u32>) -> Result<Self> {
        let total = starts.last().map_or(0, |&n| n as usize);
        Ok(Self {
            offsets: engine.upload(&starts)?,
            entities: engine.array(total)?,
            weights: engine.array(total)?,
            scores: engine.array(total)?,
            tiers: engine.array(total)?,
            starts,
        })
    }

    pub(crate) fn download(&self, engine: &Engine<D>) -> Result<Vec<Propagated>> {
        let entities = engine.download(&self.entities, self.entities.len())?;
        let weights = engine.download(&self.weights, self.weights.len())?;
        let scores = engine.download(&self.scores, self.scores.len())?;
        let tiers = engine.download(&self.tiers, self.tiers.len())?;
        let of = |range: &[u32]| {
            let mut out = Propagated::default();
            for i in range[0] as usize..range[1] as usize {
                out.weights.push((entities[i], weights[i]));
                if let Some(tier) = tiers[i].checked_sub(1) {
                    out.active.push(Active { entity: entities[i], score: scores[i], tier });
                }
            }
            out
        };
        Ok(self.starts.windows(2).map(of).collect())
    }
}

/// Who is mentioned where, and the sentences' vectors.
pub(crate) struct Mentions<D: Device> {
    entity_sentences: Lists<D>,
    sentence_entities: Lists<D>,
    sentences: Rows<D>,
    n_entities: usize,
    n_sentences: usize,
}

impl<D: Device> Mentions<D> {
    pub(crate) fn upload(engine: &Engine<D>, graph: &Graph, sentences: &Matrix) -> Result<Self> {
        Ok(Self {
            entity_sentences: Lists::upload(engine, &graph.entity_sentences)?,
            sentence_entities: Lists::upload(engine, &graph.sentence_entities)?,
            sentences: Rows::upload(engine, sentences)?,
            n_entities: graph.n_entities(),
            n_sentences: graph.n_sentences(),
        })
    }

    /// Runs a batch and fetches what it touched.
    pub(crate) fn propagate(
        &self,
        engine: &Engine<D>,
        form: Form,
        params: PropagationParams,
        batch: &[PropagationQuery<'_>],
    ) -> Result<Vec<Propagated>> {
        let questions: Vec<&[f32]> = batch.iter().map(|q| q.question).collect();
        let seeds: Vec<&[(u32, f64)]> = batch.iter().map(|q| q.seeds).collect();
        let vectors = self.sentences.vectors(engine, &questions)?;
        self.touched(engine, form, params, &seeds, &vectors)?.download(engine)
    }

    /// Runs a batch from these seeds; `vectors` are the questions, `[queries, dim]`.
    pub(crate) fn touched(
        &self,
        engine: &Engine<D>,
        form: Form,
        params: PropagationParams,
        batch: &[&[(u32, f64)]],
        vectors: &Array<D, f32>,
    ) -> Result<Touched<D>> {
        let n = self.n_entities;
        if let Some(&(entity, _)) = batch.iter().copied().flatten().find(|&&(e, _)| e as usize >= n) {
            return Err(Error::work(format!("seed entity {entity} is not among the {n} entities of the index")));
        }
        if n == 0 {
            return Touched::new(engine, vec![0; batch.len() + 1]);
        }
        let similarities = self.sentences.products(engine, vectors, batch.len())?;
        let seeds = batch.concat();
        let seed_offsets = engine.upload(&offsets(batch.iter().map(|seeds| seeds.len()))?)?;
        let seed_entities = engine.upload(&seeds.iter().map(|&(e, _)| e).collect::<Vec<u32>>())?;
        let seed_scores = engine.upload(&seeds.iter().map(|&(_, s)| s).collect::<Vec<f64>>())?;

        let of_entities = batch.len() * n;
        let of_sentences = batch.len() * self.n_sentences;
        let mut weight = engine.zeros::<f64>(of_entities)?;
        let mut next = engine.zeros::<f64>(of_entities)?;
        let mut active = engine.zeros::<f64>(of_entities)?;
        let mut tier = engine.zeros::<u32>(of_entities)?;
        let mut mark = engine.zeros::<u32>(of_entities)?;
        let mut order = engine.array::<u32>(2 * of_entities)?;
        let mut used = engine.zeros::<u32>(of_sentences)?;
        let mut counts = engine.array::<u32>(batch.len())?;
        // What the matrix form keeps besides.
        let (e, s) = if form == Form::Matrix { (of_entities, of_sentences) } else { (0, 0) };
        let mut score = engine.zeros::<f64>(e)?;
        let mut picked = engine.array::<u32>(s)?;
        let mut received = engine.array::<f64>(s)?;
        let mut args = vec![
            self.entity_sentences.offsets.read(),
            self.entity_sentences.indices.read(),
            self.sentence_entities.offsets.read(),
            self.sentence_entities.indices.read(),
            Arg::U32(index(n)?),
            Arg::U32(index(self.n_sentences)?),
            seed_offsets.read(),
            seed_entities.read(),
            seed_scores.read(),
            similarities.read(),
            Arg::U32(params.max_iterations),
            Arg::F64(params.threshold),
            Arg::U32(index(params.top_k_sentence)?),
            weight.write(),
            next.write(),
            active.write(),
        ];
        match form {
            Form::Bfs => {
                args.extend([tier.write(), mark.write(), order.write(), used.write(), counts.write()]);
                engine.launch(PROPAGATE_BFS, (batch.len(), 1), 128, &args)?;
            }
            Form::Matrix => {
                args.extend([score.write(), tier.write(), mark.write(), order.write(), used.write(), picked.write()]);
                args.extend([received.write(), counts.write()]);
                engine.launch(PROPAGATE_MATRIX, (batch.len(), 1), 256, &args)?;
            }
        }
        drop(args);
        let counts = engine.download(&counts, batch.len())?;
        // The lists may be as long as all entities; what only the form itself needed goes before they come.
        drop((similarities, next, order, used, score, picked, received));
        let mut out = Touched::new(engine, offsets(counts.iter().map(|&c| c as usize))?)?;
        let args = [
            weight.read(),
            active.read(),
            tier.read(),
            mark.read(),
            Arg::U32(index(n)?),
            out.offsets.read(),
            out.entities.write(),
            out.weights.write(),
            out.scores.write(),
            out.tiers.write(),
        ];
        engine.launch(PROPAGATE_COLLECT, (batch.len(), 1), 256, &args)?;
        Ok(out)
    }
}
