//! Self-attention within each text of a packed batch: softmax(score)·V, a head at a time.
//!
//! In: q, k and v of every token side by side `[T, 3H]`, and the position terms. Out: `[T, H]`.
//! score[i,j] = (Q_i·K_j + position terms) / sqrt(head_dim · f), f = 1 + the number of disentangled terms.

use std::sync::Arc;

use candle_core::{CpuStorage, CustomOp1, DType, Layout, Shape, Tensor};
use rayon::prelude::*;

use super::attend::{Head, Index, Places, Terms};
use super::device::{self, DeviceTerms, Heads, Kernels, Place};
use super::lanes::{Unit, run};
use super::panels::with_room;
use super::position::PackedTables;
use super::product::{Shared, filled};
use super::{PositionBias, Precision, Segments, failed, misfit, slice};
use crate::Result;

/// Attention of every token over the tokens of its own text, on the processor: qkv `[T, 3H]` (q, then k, then v) to `[T, H]`, with
/// products of a precision; scores, softmax and sums stay `f32`.
///
/// # Errors
/// When shapes do not fit each other.
pub fn attention(
    qkv: &Tensor,
    segments: &Segments,
    heads: usize,
    bias: &PositionBias,
    precision: Precision,
) -> Result<Tensor> {
    attention_on(&Place::Host, qkv, segments, heads, bias, precision)
}

/// [`attention`] at a place, where qkv and the tables are.
///
/// # Errors
/// As [`attention`], or a precision that the place does not have, or the device fails.
pub fn attention_on(
    place: &Place,
    qkv: &Tensor,
    segments: &Segments,
    heads: usize,
    bias: &PositionBias,
    precision: Precision,
) -> Result<Tensor> {
    place.check(precision)?;
    let width = if qkv.rank() == 2 { qkv.dims()[1] } else { 0 };
    if width == 0 || heads == 0 || !width.is_multiple_of(3 * heads) || qkv.dims()[0] != segments.total() {
        let shapes = format!("q, k, v {:?} for {} tokens and {heads} heads", qkv.dims(), segments.total());
        return Err(misfit("attention", shapes));
    }
    let op = AttentionOp { segments, heads, head_dim: width / 3 / heads, bias, precision };
    op.check()?;
    match place {
        Place::Host => qkv.contiguous().and_then(|qkv| qkv.apply_op1_no_bwd(&op)).map_err(failed("attention")),
        Place::Device(_, kernels) => op.device(&**kernels, qkv),
    }
}

struct AttentionOp<'a> {
    segments: &'a Segments,
    heads: usize,
    head_dim: usize,
    bias: &'a PositionBias<'a>,
    precision: Precision,
}

/// Position terms on the host.
enum HostBias {
    None,
    /// `[heads, 2·span + 1]` by e = j - i.
    Relative(Vec<f32>, Vec<u32>),
    Disentangled(Arc<PackedTables>),
}

impl AttentionOp<'_> {
    fn check(&self) -> Result<()> {
        let (heads, dim) = (self.heads, self.head_dim);
        let fits = match self.bias {
            PositionBias::None => true,
            PositionBias::Relative { table } => table.dims2().is_ok_and(|(h, n)| h == heads && n % 2 == 1),
            PositionBias::Disentangled(tables) => {
                tables.shape().is_some_and(|s| s.dims()[0] == heads && s.dims()[2] == dim)
            }
        };
        if fits {
            return Ok(());
        }
        let shape = match self.bias {
            PositionBias::Relative { table } => Some(table.shape()),
            PositionBias::Disentangled(tables) => tables.shape(),
            PositionBias::None => None,
        };
        Err(misfit("attention", format_args!("a table {shape:?} for {heads} heads of {dim}")))
    }

    fn scale(&self) -> f32 {
        (1.0 / ((self.head_dim * (1 + self.bias.terms())) as f64).sqrt()) as f32
    }

    fn device(&self, kernels: &dyn Kernels, qkv: &Tensor) -> Result<Tensor> {
        let fail = || failed("attention");
        let dtype = device::dtype(self.precision);
        let qkv = qkv.to_dtype(dtype).and_then(|qkv| qkv.contiguous()).map_err(fail())?;
        let heads = Heads { count: self.heads, dim: self.head_dim, scale: self.scale() };
        let (tables, relative);
        let terms = match self.bias {
            PositionBias::None => DeviceTerms::default(),
            PositionBias::Relative { table } => {
                relative = table.to_dtype(DType::F32).and_then(|table| table.contiguous()).map_err(fail())?;
                DeviceTerms { relative: Some(&relative), ..DeviceTerms::default() }
            }
            PositionBias::Disentangled(of) => {
                tables = of.on_device(qkv.device(), dtype, self.scale()).map_err(fail())?;
                DeviceTerms {
                    keys: tables.keys.as_ref(),
                    queries: tables.queries.as_ref(),
                    rows: Some((&tables.rows, of.rows())),
                    relative: None,
                }
            }
        };
        device::attention(kernels, &qkv, self.segments, heads, &terms)
    }

    fn host_bias(&self) -> candle_core::Result<HostBias> {
        Ok(match self.bias {
            PositionBias::None => HostBias::None,
            PositionBias::Relative { table } => {
                let entries = table.dims()[1];
                let mut table = table.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>()?;
                table.chunks_exact_mut(entries).for_each(<[f32]>::reverse);
                HostBias::Relative(table, (0..entries as u32).collect())
            }
            PositionBias::Disentangled(tables) => HostBias::Disentangled(tables.packed(self.precision)?),
        })
    }

    /// The position terms of one head.
    fn terms<'b>(&self, bias: &'b HostBias, head: usize) -> (Terms<'b>, Index<'b>) {
        match (bias, self.bias) {
            (HostBias::Relative(table, index), _) => {
                let span = index.len() / 2;
                let index = Index { of: index, far: span, near: span as isize, entries: index.len() };
                (Terms::Relative(&table[head * index.entries..][..index.entries]), index)
            }
            (HostBias::Disentangled(packed), PositionBias::Disentangled(tables)) => {
                let (keys, queries) = (packed.keys.get(head), packed.queries.get(head).map(Vec::as_slice));
                (Terms::Disentangled { keys, queries }, tables.index(packed))
            }
            _ => (Terms::None, Index { of: &[0], far: 0, near: 0, entries: 1 }),
        }
    }

    fn host(&self, unit: Unit, qkv: &[f32], bias: &HostBias) -> Vec<f32> {
        let (dim, hidden) = (self.head_dim, self.heads * self.head_dim);
        let pairs = self.precision == Precision::Bf16;
        // Long texts first, so that no long one is left for the end.
        let mut texts: Vec<usize> = (0..self.segments.len()).filter(|&i| !self.segments.rows(i).is_empty()).collect();
        texts.sort_by_key(|&i| std::cmp::Reverse(self.segments.rows(i).len()));
        let fill = |out: Shared| {
            (0..texts.len() * self.heads).into_par_iter().with_max_len(1).for_each(|task| {
                let (rows, head) = (self.segments.rows(texts[task / self.heads]), task % self.heads);
                let (terms, index) = self.terms(bias, head);
                let places = Places::new(rows.len(), dim, index.entries, pairs);
                with_room(places.total, |room| {
                    let q = &qkv[rows.start * 3 * hidden + head * dim..rows.end * 3 * hidden];
                    let body = Head {
                        unit,
                        pairs,
                        q: q.as_ptr(),
                        k: q[hidden..].as_ptr(),
                        v: q[2 * hidden..].as_ptr(),
                        stride: 3 * hidden,
                        len: rows.len(),
                        dim,
                        scale: self.scale(),
                        terms,
                        index,
                        // SAFETY: rows and columns of this text and head are within the output.
                        out: unsafe { out.at(rows.start * hidden + head * dim) },
                        out_stride: hidden,
                        room,
                    };
                    // SAFETY: shapes were checked, the room is as large as the places ask, and no other task writes these rows and
                    // columns.
                    unsafe { run(unit, body) };
                });
            });
        };
        // SAFETY: every text and head writes its own rows and columns, and together they are all.
        unsafe { filled(self.segments.total() * hidden, fill) }
    }
}

/// [`attention`] on any unit, for tests.
#[cfg(test)]
pub(super) fn on_host(
    unit: Unit,
    qkv: &[f32],
    segments: &Segments,
    heads: usize,
    bias: &PositionBias,
    precision: Precision,
) -> Vec<f32> {
    let head_dim = qkv.len() / segments.total() / 3 / heads;
    let op = AttentionOp { segments, heads, head_dim, bias, precision };
    let bias = match bias {
        PositionBias::Disentangled(tables) => HostBias::Disentangled(Arc::new(tables.pack(unit, precision).unwrap())),
        _ => op.host_bias().unwrap(),
    };
    op.host(unit, qkv, &bias)
}

impl CustomOp1 for AttentionOp<'_> {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> candle_core::Result<(CpuStorage, Shape)> {
        let hidden = self.heads * self.head_dim;
        let out = self.host(Unit::detect(), slice(storage, layout)?, &self.host_bias()?);
        Ok((CpuStorage::F32(out), Shape::from((self.segments.total(), hidden))))
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::super::DisentangledTables;
    use super::*;

    #[test]
    fn by_hand() {
        // Two texts of 1 and 2 tokens, one head of one number. A token alone gives its v. In the second text scores of token i are
        // q_i·k_j + q_i·kr[i - j], over sqrt(2): for q = (1, 0), k = (1, 2), kr = (.., d = -1: 3, d = 0: 1, ..).
        let qkv = [[9.0f32, 9.0, 7.0], [1.0, 1.0, 10.0], [0.0, 2.0, 20.0]];
        let qkv = Tensor::new(&qkv, &Device::Cpu).unwrap();
        let kr = Tensor::from_slice(&[0f32, 3.0, 1.0, 2.0], (1, 4, 1), &Device::Cpu).unwrap();
        let tables = DisentangledTables::new(Some(kr), None, 2, 8).unwrap();
        let bias = PositionBias::Disentangled(&tables);
        let out = attention(&qkv, &Segments::new(&[1, 2]), 1, &bias, Precision::F32).unwrap();
        let out = out.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        let weight = 1.0 / (1.0 + f32::exp(3.0 / 2f32.sqrt()));
        let expected = [7.0, 10.0 * weight + 20.0 * (1.0 - weight), 15.0];
        assert!(out.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-5), "{out:?} is not {expected:?}");
        assert!(attention(&qkv, &Segments::new(&[1, 1]), 1, &bias, Precision::F32).is_err());
    }
}
