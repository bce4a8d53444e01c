//! Fusion of a batch, equations 8 to 10: `kernels/fuse.cu`.
//!
//! On the host this is `experience::fuse`; a query fuses a handful of sparse maps, so the kernel pays only where the maps are on the
//! device already.

use crate::Result;
use crate::backend::device::kernel::FUSE;
use crate::backend::device::{Arg, Device, Engine, index, offsets};
use crate::math::sparse::SparseVector;

/// What the largest entry, the sum or the length of a0 is made: equation 8's `normalize`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FuseScale {
    /// Largest entry 1.
    Max,
    /// Sum of magnitudes 1.
    L1,
    /// Length 1.
    L2,
    /// As it is.
    None,
}

/// One query with what it matched.
#[derive(Debug, Clone, Copy)]
pub struct FuseQuery<'a> {
    /// a_base.
    pub base: &'a SparseVector,
    /// (s_ret, confidence, ã) of the matches, best first.
    pub matches: &'a [(f64, f64, &'a SparseVector)],
    /// β of equation 8; the same in all queries of a batch.
    pub beta: f64,
    /// τ_s of equation 9; the same in all queries of a batch.
    pub tau: f64,
    /// `normalize` of equation 8; the same in all queries of a batch.
    pub scale: FuseScale,
}

/// a0 and the weights of equation 10 of each query.
pub(crate) fn fuse<D: Device>(engine: &Engine<D>, batch: &[FuseQuery<'_>]) -> Result<Vec<(SparseVector, Vec<f64>)>> {
    let Some(first) = batch.first() else { return Ok(Vec::new()) };
    let id_lists: Vec<Vec<u32>> = batch
        .iter()
        .map(|q| {
            let mut ids: Vec<u32> =
                q.base.ids.iter().chain(q.matches.iter().flat_map(|(_, _, map)| &map.ids)).copied().collect();
            ids.sort_unstable();
            ids.dedup();
            ids
        })
        .collect();
    let base: Vec<f64> = batch.iter().zip(&id_lists).flat_map(|(q, ids)| ids.iter().map(|&e| q.base.get(e))).collect();
    let matches: Vec<_> = batch.iter().flat_map(|q| q.matches).collect();
    let id_starts = offsets(id_lists.iter().map(Vec::len))?;
    let match_starts = offsets(batch.iter().map(|q| q.matches.len()))?;

    let id_offsets = engine.upload(&id_starts)?;
    let ids = engine.upload(&id_lists.concat())?;
    let values = engine.upload(&base)?;
    let match_offsets = engine.upload(&match_starts)?;
    let scores = engine.upload(&matches.iter().map(|m| m.0).collect::<Vec<f64>>())?;
    let confidences = engine.upload(&matches.iter().map(|m| m.1).collect::<Vec<f64>>())?;
    let map_offsets = engine.upload(&offsets(matches.iter().map(|m| m.2.len()))?)?;
    let map_ids = engine.upload(&matches.iter().flat_map(|m| &m.2.ids).copied().collect::<Vec<u32>>())?;
    let map_values = engine.upload(&matches.iter().flat_map(|m| &m.2.values).copied().collect::<Vec<f64>>())?;
    let mut weights = engine.array::<f64>(matches.len())?;
    let mut out = engine.array::<f64>(base.len())?;
    let args = [
        id_offsets.read(),
        ids.read(),
        values.read(),
        match_offsets.read(),
        scores.read(),
        confidences.read(),
        map_offsets.read(),
        map_ids.read(),
        map_values.read(),
        Arg::F64(first.beta),
        Arg::F64(first.tau),
        Arg::U32(match first.scale {
            FuseScale::Max => 0,
            FuseScale::L1 => 1,
            FuseScale::L2 => 2,
            FuseScale::None => 3,
        }),
        weights.write(),
        out.write(),
    ];
    engine.launch(FUSE, (batch.len(), 1), 256, &args)?;
    let weights = engine.download(&weights, index(matches.len())? as usize)?;
    let out = engine.download(&out, base.len())?;
    Ok((0..batch.len())
        .map(|q| {
            let (from, to) = (id_starts[q] as usize, id_starts[q + 1] as usize);
            let a0 = SparseVector::from_assignments(id_lists[q].iter().copied().zip(out[from..to].iter().copied()));
            (a0, weights[match_starts[q] as usize..match_starts[q + 1] as usize].to_vec())
        })
        .collect())
}
