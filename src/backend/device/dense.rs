//! Inner products, linking and top-k: `kernels/dense.cu` and `kernels/topk.cu`.

use crate::backend::Matrix;
use crate::backend::device::kernel::{DENSE_PRODUCTS, DENSE_TILE, TOPK_MERGE, TOPK_TILE, TOPK_TILE_SCORES};
use crate::backend::device::{Arg, Array, Device, Engine, index};
use crate::{Error, Result};

/// Queries of one product launch outside an index.
const QUERIES: usize = 1024;

/// A matrix on the device, `[rows, dim]`.
pub(crate) struct Rows<D: Device> {
    values: Array<D, f32>,
    rows: usize,
    dim: usize,
}

impl<D: Device> Rows<D> {
    pub(crate) fn upload(engine: &Engine<D>, matrix: &Matrix) -> Result<Self> {
        Ok(Self { values: engine.upload(matrix.as_slice())?, rows: matrix.rows(), dim: matrix.dim() })
    }

    /// Query vectors on the device, `[queries, dim]`; `products` takes them with every matrix of this width.
    pub(crate) fn vectors(&self, engine: &Engine<D>, queries: &[&[f32]]) -> Result<Array<D, f32>> {
        if let Some(query) = queries.iter().find(|q| q.len() != self.dim && self.rows > 0) {
            return Err(Error::work(format!("a vector of {} numbers meets vectors of {}", query.len(), self.dim)));
        }
        engine.upload(&queries.concat())
    }

    /// ⟨row, query⟩ on the device, `[queries, rows]`.
    pub(crate) fn products(
        &self,
        engine: &Engine<D>,
        vectors: &Array<D, f32>,
        queries: usize,
    ) -> Result<Array<D, f32>> {
        let mut out = engine.array(queries * self.rows)?;
        if self.rows == 0 || queries == 0 {
            return Ok(out);
        }
        if vectors.len() != queries * self.dim {
            let found = vectors.len() / queries;
            return Err(Error::work(format!("vectors of {found} numbers meet vectors of {}", self.dim)));
        }
        let args = [
            self.values.read(),
            Arg::U32(index(self.rows)?),
            vectors.read(),
            Arg::U32(index(queries)?),
            Arg::U32(index(self.dim)?),
            out.write(),
        ];
        let grid = (self.rows.div_ceil(DENSE_TILE), queries.div_ceil(DENSE_TILE));
        engine.launch_exactly(DENSE_PRODUCTS, grid, 256, &args)?;
        Ok(out)
    }

    /// The products as one `[rows]` a query.
    pub(crate) fn products_of(&self, engine: &Engine<D>, queries: &[&[f32]]) -> Result<Vec<Vec<f32>>> {
        let products = self.products(engine, &self.vectors(engine, queries)?, queries.len())?;
        let all = engine.download(&products, products.len())?;
        Ok((0..queries.len()).map(|q| all[q * self.rows..(q + 1) * self.rows].to_vec()).collect())
    }

    /// The row of highest product (ties: lowest id) of each query, with that product.
    pub(crate) fn best(&self, engine: &Engine<D>, queries: &[&[f32]]) -> Result<Vec<Option<(u32, f32)>>> {
        if self.rows == 0 || queries.is_empty() {
            return Ok(vec![None; queries.len()]);
        }
        let products = self.products(engine, &self.vectors(engine, queries)?, queries.len())?;
        let best = best(engine, &products, queries.len(), self.rows, 1)?;
        Ok(best.ids.into_iter().zip(best.scores).map(Some).collect())
    }
}

/// The k best of each row, `[rows, k]`.
pub(crate) struct Best {
    /// `u32::MAX` where a row is shorter.
    pub(crate) ids: Vec<u32>,
    /// Their scores, with 0 for -0.
    pub(crate) scores: Vec<f32>,
}

/// The number a ranking key was made of; the inverse of `order_key_f32` in `kernels/common.cuh`.
fn score_of(key: u64) -> f32 {
    let key = key as u32;
    f32::from_bits(if key >> 31 == 1 { key ^ 0x8000_0000 } else { !key })
}

/// The k best of each row of scores `[rows, n]`.
pub(crate) fn best<D: Device>(
    engine: &Engine<D>,
    scores: &Array<D, f32>,
    rows: usize,
    n: usize,
    k: usize,
) -> Result<Best> {
    let tiles = n.div_ceil(TOPK_TILE_SCORES);
    let mut keys = engine.array::<u64>(rows * tiles * k)?;
    let mut ids = engine.array::<u32>(rows * tiles * k)?;
    let args = [scores.read(), Arg::U32(index(n)?), Arg::U32(index(k)?), keys.write(), ids.write()];
    engine.launch(TOPK_TILE, (tiles, rows), 256, &args)?;
    let mut best_keys = engine.array::<u64>(rows * k)?;
    let mut best = engine.array::<u32>(rows * k)?;
    let args =
        [keys.read(), ids.read(), Arg::U32(index(tiles * k)?), Arg::U32(index(k)?), best_keys.write(), best.write()];
    engine.launch(TOPK_MERGE, (rows, 1), 256, &args)?;
    let scores = engine.download(&best_keys, rows * k)?.into_iter().map(score_of).collect();
    Ok(Best { ids: engine.download(&best, rows * k)?, scores })
}

/// All products, `[queries, rows]`.
pub(crate) fn similarities<D: Device>(engine: &Engine<D>, rows: &Matrix, queries: &Matrix) -> Result<Vec<f32>> {
    let on_device = Rows::upload(engine, rows)?;
    let views: Vec<&[f32]> = (0..queries.rows()).map(|q| queries.row(q)).collect();
    let mut out = Vec::with_capacity(views.len() * rows.rows());
    for part in views.chunks(QUERIES) {
        let products = on_device.products(engine, &on_device.vectors(engine, part)?, part.len())?;
        out.extend(engine.download(&products, products.len())?);
    }
    Ok(out)
}

/// The k best of each row of scores, as `math::rank::top_k` ranks them.
pub(crate) fn top_k<D: Device>(engine: &Engine<D>, batch: &[&[f32]], k: usize) -> Result<Vec<Vec<(u32, f64)>>> {
    let mut out = Vec::with_capacity(batch.len());
    // A launch takes rows of one length; the rows of a batch nearly always have one.
    for rows in batch.chunk_by(|a, b| a.len() == b.len()) {
        let n = rows[0].len();
        let k = k.min(n);
        if k == 0 {
            out.extend(rows.iter().map(|_| Vec::new()));
            continue;
        }
        for part in rows.chunks(QUERIES) {
            let scores = engine.upload(&part.concat())?;
            let best = best(engine, &scores, part.len(), n, k)?;
            for (row, ids) in part.iter().zip(best.ids.chunks(k)) {
                // The row's own number, since a NaN's bits are not in its key; adding 0 turns -0 into 0, as the ranking does.
                out.push(ids.iter().map(|&id| (id, f64::from(row[id as usize]) + 0.0)).collect());
            }
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_gives_its_score_back() {
        for score in [0.0f32, 1.5, -1.5, 1e-40, f32::MAX, f32::NEG_INFINITY, f32::INFINITY] {
            let bits = score.to_bits();
            let key = if bits >> 31 == 1 { !bits } else { bits | 0x8000_0000 };
            assert_eq!(score_of(u64::from(key)), score);
        }
        assert!(score_of(0).is_nan());
    }
}
