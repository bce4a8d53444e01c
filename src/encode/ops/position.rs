//! What the distance of two tokens adds to their score, in the form in which each device reads it.
//!
//! In: tables of a model, by distance d = i - j or its bucket. Out, on the CPU: the same by e = j - i and packed for products.

use std::sync::{Arc, OnceLock};

use candle_core::{DType, Device, Shape, Tensor};

use super::attend::Index;
use super::lanes::Unit;
use super::panels::Panels;
use super::product::tiles;
use super::{Precision, failed, misfit};
use crate::Result;
use crate::math::encoder::relative_bucket;

/// What the distance of two tokens adds to their score.
#[derive(Debug, Clone, Copy)]
pub enum PositionBias<'a> {
    /// Nothing: positions are in the embeddings (BERT, RoBERTa).
    None,
    /// A number a head and distance, added after scaling (MPNet).
    Relative {
        /// `[heads, 2·span + 1]`; entry d + span is for d = i - j, clamped to ±span.
        table: &'a Tensor,
    },
    /// Products of contents with positions (DeBERTa-v2/v3).
    Disentangled(&'a DisentangledTables),
}

impl PositionBias<'_> {
    /// Terms that come from products and so share in the scale.
    pub fn terms(&self) -> usize {
        if let Self::Disentangled(tables) = self { tables.terms() } else { 0 }
    }
}

/// Keys and queries of relative positions, made once a model and layer: they do not depend on the texts.
#[derive(Debug, Clone)]
pub struct DisentangledTables {
    /// `[heads, 2·span, head_dim]` each.
    keys: Option<Tensor>,
    queries: Option<Tensor>,
    span: usize,
    /// Up to this distance a bucket holds one distance.
    near: usize,
    /// Row of the tables for d, at d + far; beyond ±far rows repeat.
    rows: Arc<[u32]>,
    /// For products in `f32` and in bfloat16, made when first needed.
    packed: [OnceLock<Arc<PackedTables>>; 2],
    /// For a device in `f32` and in `f16`, made when first needed.
    on_device: [OnceLock<Arc<DeviceTables>>; 2],
}

/// Tables as the kernels read them, on their device.
#[derive(Debug)]
pub(super) struct DeviceTables {
    pub(super) keys: Option<Tensor>,
    /// Times the scale of scores, so that their products do not leave half precision.
    pub(super) queries: Option<Tensor>,
    /// [`DisentangledTables::rows`]
    pub(super) rows: Tensor,
}

/// Tables of every head by e = j - i, so the last row first.
#[derive(Debug)]
pub(super) struct PackedTables {
    pub(super) keys: Vec<Panels>,
    pub(super) queries: Vec<Vec<f32>>,
    /// Row for e, at e + far.
    pub(super) index: Vec<u32>,
}

impl DisentangledTables {
    /// From `kr` (content to position) and `qr` (position to content), each `[heads, 2·buckets, head_dim]` or absent. With
    /// `max_positions` 0 distances are not put in buckets, and `buckets` is the largest distance told apart.
    ///
    /// # Errors
    /// When both are absent, a shape does not fit, or `max_positions` is too small for the buckets.
    pub fn new(kr: Option<Tensor>, qr: Option<Tensor>, buckets: usize, max_positions: usize) -> Result<Self> {
        let mut shape = None;
        for table in [&kr, &qr].into_iter().flatten() {
            let fits = table.dims3().is_ok_and(|(_, n, dim)| n == 2 * buckets && n > 0 && dim > 0);
            if !fits || shape.as_ref().is_some_and(|s| s != table.shape()) {
                let shapes = format!("a table {:?} is not [heads, {}, head_dim]", table.dims(), 2 * buckets);
                return Err(misfit("relative positions", shapes));
            }
            shape = Some(table.shape().clone());
        }
        if shape.is_none() {
            return Err(misfit("relative positions", "neither c2p nor p2c has a table"));
        }
        if max_positions != 0 && max_positions <= buckets / 2 + 1 {
            let sizes = format!("{buckets} buckets are too many for {max_positions} positions");
            return Err(misfit("relative positions", sizes));
        }
        let plain = |t: Option<Tensor>| t.map(|t| t.to_dtype(DType::F32)?.contiguous()).transpose();
        let keys = plain(kr).map_err(failed("relative positions"))?;
        let queries = plain(qr).map_err(failed("relative positions"))?;
        let row = |d: i64| {
            let row = relative_bucket(d, buckets, max_positions) + buckets as i64;
            row.clamp(0, 2 * buckets as i64 - 1) as u32
        };
        // With a mid of 1 all distances from 1 on share a bucket, and the ends of the tables are never read.
        let grows = max_positions == 0 || buckets / 2 != 1;
        let mut far = 1;
        while grows && (row(far) < 2 * buckets as u32 - 1 || row(-far) > 0) {
            far += 1;
        }
        let near = if max_positions == 0 { buckets - 1 } else { (buckets / 2).min(buckets - 1) };
        let rows = (-far..=far).map(row).collect();
        Ok(Self { keys, queries, span: buckets, near, rows, packed: Default::default(), on_device: Default::default() })
    }

    /// Position terms: 1 or 2.
    pub fn terms(&self) -> usize {
        usize::from(self.keys.is_some()) + usize::from(self.queries.is_some())
    }

    /// `kr`, `[heads, 2·buckets, head_dim]`, contiguous `f32`.
    pub fn keys(&self) -> Option<&Tensor> {
        self.keys.as_ref()
    }

    /// `qr`, `[heads, 2·buckets, head_dim]`, contiguous `f32`.
    pub fn queries(&self) -> Option<&Tensor> {
        self.queries.as_ref()
    }

    /// `[heads, 2·buckets, head_dim]`
    pub fn shape(&self) -> Option<&Shape> {
        self.keys.as_ref().or(self.queries.as_ref()).map(Tensor::shape)
    }

    /// Row of the tables for the distances d = i - j of -far to far, at d + far; farther ones have the row of ±far.
    pub fn rows(&self) -> &[u32] {
        &self.rows
    }

    /// Row of the tables for the distance d = i - j.
    pub fn row(&self, d: i64) -> usize {
        let far = (self.rows.len() / 2) as i64;
        self.rows[(d.clamp(-far, far) + far) as usize] as usize
    }

    /// The tables as the products on the CPU read them.
    pub(super) fn packed(&self, precision: Precision) -> candle_core::Result<Arc<PackedTables>> {
        let slot = &self.packed[usize::from(precision == Precision::Bf16)];
        if let Some(packed) = slot.get() {
            return Ok(Arc::clone(packed));
        }
        let packed = Arc::new(self.pack(Unit::detect(), precision)?);
        Ok(Arc::clone(slot.get_or_init(|| packed)))
    }

    /// The tables in a type, on their device.
    pub(super) fn on_device(
        &self,
        device: &Device,
        dtype: DType,
        scale: f32,
    ) -> candle_core::Result<Arc<DeviceTables>> {
        let slot = &self.on_device[usize::from(dtype == DType::F16)];
        if let Some(tables) = slot.get() {
            return Ok(Arc::clone(tables));
        }
        let scaled = |t: &Tensor| t.affine(f64::from(scale), 0.0)?.to_dtype(dtype);
        let tables = Arc::new(DeviceTables {
            keys: self.keys.as_ref().map(|t| t.to_dtype(dtype)).transpose()?,
            queries: self.queries.as_ref().map(scaled).transpose()?,
            rows: Tensor::from_slice(&self.rows, self.rows.len(), device)?,
        });
        Ok(Arc::clone(slot.get_or_init(|| tables)))
    }

    pub(super) fn pack(&self, unit: Unit, precision: Precision) -> candle_core::Result<PackedTables> {
        let heads = |t: &Option<Tensor>| -> candle_core::Result<Vec<Vec<f32>>> {
            let Some(t) = t else { return Ok(Vec::new()) };
            let (_, rows, dim) = t.dims3()?;
            let all = t.flatten_all()?.to_vec1::<f32>()?;
            let by_e = |head: &[f32]| head.chunks_exact(dim).rev().flatten().copied().collect();
            Ok(all.chunks_exact(rows * dim).map(by_e).collect())
        };
        let dim = self.shape().map_or(1, |s| s.dims()[2]);
        let last = 2 * self.span as u32 - 1;
        Ok(PackedTables {
            keys: heads(&self.keys)?.iter().map(|rows| Panels::new(rows, dim, precision)).collect(),
            queries: heads(&self.queries)?.iter().map(|rows| tiles(unit, rows, dim, precision)).collect(),
            index: self.rows.iter().rev().map(|row| last - row).collect(),
        })
    }

    /// How [`PackedTables`] are read.
    pub(super) fn index<'a>(&self, packed: &'a PackedTables) -> Index<'a> {
        Index { of: &packed.index, far: packed.index.len() / 2, near: self.near as isize, entries: 2 * self.span }
    }
}
