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

    /// ⟨row, query⟩ on the device, `[queries, rows]`.
    pub(crate) fn products(&self, engine: &Engine<D>, queries: &[&[f32]]) -> Result<Array<D, f32>> {
        let mut out = engine.array(queries.len() * self.rows)?;
        if self.rows == 0 || queries.is_empty() {
            return Ok(out);
        }
        if let Some(query) = queries.iter().find(|q| q.len() != self.dim) {
            return Err(Error::work(format!("a vector of {} numbers meets vectors of {}", query.len(), self.dim)));
        }
        let vectors = engine.upload(&queries.concat())?;
        let args = [
            self.values.read(),
            Arg::U32(index(self.rows)?),
            vectors.read(),
            Arg::U32(index(queries.len())?),
            Arg::U32(index(self.dim)?),
            out.write(),
        ];
        let grid = (self.rows.div_ceil(DENSE_TILE), queries.len().div_ceil(DENSE_TILE));
        engine.launch_exactly(DENSE_PRODUCTS, grid, 256, &args)?;
        Ok(out)
    }

    /// The products as one `[rows]` a query.
    pub(crate) fn products_of(&self, engine: &Engine<D>, queries: &[&[f32]]) -> Result<Vec<Vec<f32>>> {
        let products = self.products(engine, queries)?;
        let all = engine.download(&products, products.len())?;
        Ok((0..queries.len()).map(|q| all[q * self.rows..(q + 1) * self.rows].to_vec()).collect())
    }

    /// The row of highest product (ties: lowest id) of each query, with that product.
    pub(crate) fn best(&self, engine: &Engine<D>, queries: &[&[f32]]) -> Result<Vec<Option<(u32, f32)>>> {
        if self.rows == 0 || queries.is_empty() {
            return Ok(vec![None; queries.len()]);
        }
        let products = self.products(engine, queries)?;
        let ids = best_ids(engine, &products, queries.len(), self.rows, 1)?;
        // One number a query would be a launch of its own; the rows of products are what is at hand.
        let all = engine.download(&products, products.len())?;
        Ok(ids.iter().enumerate().map(|(q, &id)| Some((id, all[q * self.rows + id as usize]))).collect())
    }
}

/// Ids of the k best of each row of scores `[rows, n]`: `[rows, k]`, `u32::MAX` where a row is shorter.
fn best_ids<D: Device>(
    engine: &Engine<D>,
    scores: &Array<D, f32>,
    rows: usize,
    n: usize,
    k: usize,
) -> Result<Vec<u32>> {
    let tiles = n.div_ceil(TOPK_TILE_SCORES);
    let mut keys = engine.array::<u64>(rows * tiles * k)?;
    let mut ids = engine.array::<u32>(rows * tiles * k)?;
    let mut best = engine.array::<u32>(rows * k)?;
    let args = [scores.read(), Arg::U32(index(n)?), Arg::U32(index(k)?), keys.write(), ids.write()];
    engine.launch(TOPK_TILE, (tiles, rows), 256, &args)?;
    let args = [keys.read(), ids.read(), Arg::U32(index(tiles * k)?), Arg::U32(index(k)?), best.write()];
    engine.launch(TOPK_MERGE, (rows, 1), 256, &args)?;
    engine.download(&best, rows * k)
}

/// All products, `[queries, rows]`.
pub(crate) fn similarities<D: Device>(engine: &Engine<D>, rows: &Matrix, queries: &Matrix) -> Result<Vec<f32>> {
    let on_device = Rows::upload(engine, rows)?;
    let views: Vec<&[f32]> = (0..queries.rows()).map(|q| queries.row(q)).collect();
    let mut out = Vec::with_capacity(views.len() * rows.rows());
    for part in views.chunks(QUERIES) {
        let products = on_device.products(engine, part)?;
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
            let ids = best_ids(engine, &scores, part.len(), n, k)?;
            for (row, ids) in part.iter().zip(ids.chunks(k)) {
                // Adding 0 turns -0 into 0, as the ranking does.
                out.push(ids.iter().map(|&id| (id, f64::from(row[id as usize]) + 0.0)).collect());
            }
        }
    }
    Ok(out)
}
