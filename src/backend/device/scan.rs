//! Scan of an experience store: `kernels/scan.cu`. What is stored lies on the device already ([`Stores`]); a call uploads its queries.

use crate::backend::device::kernel::{SCAN_MERGE, SCAN_TILE, SCAN_TILE_EXPERIENCES};
use crate::backend::device::stores::{Lists, Stores};
use crate::backend::device::{Arg, Device, Engine, index, offsets};
use crate::backend::{ActivationStore, Hit, ScanQuery, ScanResult};
use crate::math::similarity::dual_channel_similarity;
use crate::{Error, Result};

/// Bytes of cosines that one launch holds at most.
const COSINE_BYTES: usize = 256 << 20;
/// Queries of one launch at most.
const QUERIES: usize = 1024;
/// Marks that there is no experience.
const NONE: u32 = u32::MAX;

/// Scores a batch against one store.
pub(crate) fn scan<D: Device>(
    engine: &Engine<D>,
    stores: &mut Stores<D>,
    store: &dyn ActivationStore,
    batch: &[ScanQuery<'_>],
) -> Result<Vec<ScanResult>> {
    let Some(lists) = stores.lists(engine, store)? else { return Ok(vec![ScanResult::default(); batch.len()]) };
    let mut out = Vec::with_capacity(batch.len());
    let mut rest = batch;
    while !rest.is_empty() {
        let mut bytes = 0;
        let fitting = rest
            .iter()
            .take(QUERIES)
            .take_while(|q| {
                bytes += 16 * q.cos_query.len();
                bytes <= COSINE_BYTES
            })
            .count();
        let (part, later) = rest.split_at(fitting.max(1));
        out.extend(part_of(engine, &lists, part)?);
        rest = later;
    }
    Ok(out)
}

fn part_of<D: Device>(engine: &Engine<D>, store: &Lists<'_, D>, batch: &[ScanQuery<'_>]) -> Result<Vec<ScanResult>> {
    let most_visible = batch.iter().map(|q| q.cos_query.len()).max().unwrap_or(0);
    if most_visible == 0 {
        return Ok(vec![ScanResult::default(); batch.len()]);
    }
    if most_visible > store.stored {
        return Err(Error::work(format!("a query sees {most_visible} experiences of a store of {}", store.stored)));
    }
    let k = batch.iter().map(|q| q.k.min(q.cos_query.len())).max().unwrap_or(0);

    let activation_offsets = engine.upload(&offsets(batch.iter().map(|q| q.activation.len()))?)?;
    let entries: Vec<(u32, f64)> = batch.iter().flat_map(|q| q.activation.iter()).collect();
    let activation_entities = engine.upload(&entries.iter().map(|&(e, _)| e).collect::<Vec<u32>>())?;
    let activation_values = engine.upload(&entries.iter().map(|&(_, v)| v).collect::<Vec<f64>>())?;
    let query_norms = engine.upload(&batch.iter().map(|q| q.activation.norm()).collect::<Vec<f64>>())?;
    let seen: Vec<u32> = batch.iter().map(|q| index(q.cos_query.len())).collect::<Result<_>>()?;
    let visible = engine.upload(&seen)?;
    let mut at = 0u64;
    let starts: Vec<u64> = seen
        .iter()
        .map(|&n| {
            let start = at;
            at += u64::from(n);
            start
        })
        .collect();
    let all: usize = batch.iter().map(|q| q.cos_query.len()).sum();
    let cosine_offsets = engine.upload(&starts)?;
    let cos_query = engine.upload(&batch.iter().map(|q| q.cos_query).collect::<Vec<_>>().concat())?;
    let mut templates = vec![0f32; all];
    for (q, &start) in batch.iter().zip(&starts) {
        if let Some(template) = q.cos_template {
            templates[start as usize..start as usize + template.len()].copy_from_slice(template);
        }
    }
    let cos_template = engine.upload(&templates)?;
    let has_template =
        engine.upload(&batch.iter().map(|q| u32::from(q.cos_template.is_some())).collect::<Vec<u32>>())?;
    let alpha = engine.upload(&batch.iter().map(|q| q.alpha).collect::<Vec<f64>>())?;
    let lambda = engine.upload(&batch.iter().map(|q| q.lambda).collect::<Vec<f64>>())?;

    let tiles = most_visible.div_ceil(SCAN_TILE_EXPERIENCES);
    let mut cos_activation = engine.array::<f64>(all)?;
    let mut keys = engine.array::<u64>(batch.len() * tiles * (k + 1))?;
    let mut ids = engine.array::<u32>(batch.len() * tiles * (k + 1))?;
    let args = [
        activation_offsets.read(),
        activation_entities.read(),
        activation_values.read(),
        store.tile_lists.read(),
        store.list_entities.read(),
        store.list_offsets.read(),
        store.experiences.read(),
        store.values.read(),
        store.norms.read(),
        query_norms.read(),
        visible.read(),
        cosine_offsets.read(),
        cos_query.read(),
        cos_template.read(),
        has_template.read(),
        alpha.read(),
        lambda.read(),
        Arg::U32(index(k)?),
        cos_activation.write(),
        keys.write(),
        ids.write(),
    ];
    engine.launch(SCAN_TILE, (tiles, batch.len()), 256, &args)?;
    let mut best = engine.array::<u32>(batch.len() * (k + 1))?;
    let mut best_cosine = engine.array::<f64>(batch.len() * (k + 1))?;
    let args = [
        keys.read(),
        ids.read(),
        Arg::U32(index(tiles)?),
        Arg::U32(index(k)?),
        cosine_offsets.read(),
        cos_activation.read(),
        best.write(),
        best_cosine.write(),
    ];
    engine.launch(SCAN_MERGE, (batch.len(), 1), 256, &args)?;
    let best = engine.download(&best, batch.len() * (k + 1))?;
    let best_cosine = engine.download(&best_cosine, batch.len() * (k + 1))?;

    Ok(batch
        .iter()
        .zip(best.chunks(k + 1).zip(best_cosine.chunks(k + 1)))
        .map(|(query, (ids, cosines))| {
            // The score is made again from its parts by the same expression, so it has the same bits as on the device.
            let hit = |experience: u32, cos_activation: f64| {
                let cos_query = f64::from(query.cos_query[experience as usize]);
                let score = dual_channel_similarity(query.alpha, cos_query, cos_activation);
                Hit { experience, score, cos_query, cos_activation }
            };
            let found = ids[..k].iter().zip(cosines).take_while(|&(&id, _)| id != NONE);
            let top = found.take(query.k).map(|(&id, &cosine)| hit(id, cosine)).collect();
            let scaffold = query.cos_template.filter(|_| ids[k] != NONE).map(|template| {
                let score = hit(ids[k], cosines[k]).score;
                let fit = (1.0 - query.lambda) * score + query.lambda * f64::from(template[ids[k] as usize]);
                (ids[k], fit)
            });
            ScanResult { top, scaffold }
        })
        .collect())
}
