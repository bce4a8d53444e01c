//! Self-attention within each text of a packed batch: softmax(score)·V, a head at a time.
//!
//! In: q, k and v of every token side by side `[T, 3H]`, and the position terms. Out: `[T, H]`.
//! score[i,j] = (Q_i·K_j + position terms) / sqrt(head_dim · f), f = 1 + the number of disentangled terms.

use candle_core::{CpuStorage, CustomOp1, DType, Layout, Shape, Tensor};
use rayon::prelude::*;

use super::{Segments, failed, misfit, slice};
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

/// Keys and queries of relative positions, made once a model and layer: they do not depend on the texts.
#[derive(Debug, Clone)]
pub struct DisentangledTables {
    /// `[heads, 2·span, head_dim]` each.
    keys: Option<Tensor>,
    queries: Option<Tensor>,
    span: usize,
    /// 0: distances are taken as they are.
    max_positions: usize,
}

impl DisentangledTables {
    /// From `kr` (content to position) and `qr` (position to content), each `[heads, 2·buckets, head_dim]` or absent. With
    /// `max_positions` 0 distances are not put in buckets, and `buckets` is the largest distance told apart.
    ///
    /// # Errors
    /// When both are absent or a shape does not fit.
    pub fn new(kr: Option<Tensor>, qr: Option<Tensor>, buckets: usize, max_positions: usize) -> Result<Self> {
        let mut shape = None;
        for table in [&kr, &qr].into_iter().flatten() {
            let fits = table.dims3().is_ok_and(|(_, n, _)| n == 2 * buckets && n > 0);
            if !fits || shape.as_ref().is_some_and(|s| s != table.shape()) {
                let shapes = format!("a table {:?} is not [heads, {}, head_dim]", table.dims(), 2 * buckets);
                return Err(misfit("relative positions", shapes));
            }
            shape = Some(table.shape().clone());
        }
        if shape.is_none() {
            return Err(misfit("relative positions", "neither c2p nor p2c has a table"));
        }
        let plain = |t: Option<Tensor>| t.map(|t| t.to_dtype(DType::F32)?.contiguous()).transpose();
        let keys = plain(kr).map_err(failed("relative positions"))?;
        let queries = plain(qr).map_err(failed("relative positions"))?;
        Ok(Self { keys, queries, span: buckets, max_positions })
    }

    /// Position terms: 1 or 2.
    pub fn terms(&self) -> usize {
        usize::from(self.keys.is_some()) + usize::from(self.queries.is_some())
    }

    /// `[heads, 2·buckets, head_dim]`
    pub fn shape(&self) -> Option<&Shape> {
        self.keys.as_ref().or(self.queries.as_ref()).map(Tensor::shape)
    }

    /// Row of the tables for the distance i - j.
    pub fn row(&self, distance: i64) -> usize {
        let span = self.span as i64;
        let bucket = relative_bucket(distance, self.span, self.max_positions);
        (bucket + span).clamp(0, 2 * span - 1) as usize
    }
}

/// Attention of every token over the tokens of its own text: qkv `[T, 3H]` (q, then k, then v) to `[T, H]`.
///
/// # Errors
/// When shapes do not fit each other, or the device fails.
pub fn attention(qkv: &Tensor, segments: &Segments, heads: usize, bias: &PositionBias) -> Result<Tensor> {
    let width = if qkv.rank() == 2 { qkv.dims()[1] } else { 0 };
    if width == 0 || heads == 0 || !width.is_multiple_of(3 * heads) || qkv.dims()[0] != segments.total() {
        let shapes = format!("q, k, v {:?} for {} tokens and {heads} heads", qkv.dims(), segments.total());
        return Err(misfit("attention", shapes));
    }
    let head_dim = width / 3 / heads;
    match bias {
        PositionBias::None => {}
        PositionBias::Relative { table } => {
            if !table.dims2().is_ok_and(|(h, n)| h == heads && n % 2 == 1) {
                return Err(misfit("attention", format_args!("a table {:?} for {heads} heads", table.dims())));
            }
        }
        PositionBias::Disentangled(tables) => {
            if !tables.shape().is_some_and(|s| s.dims()[0] == heads && s.dims()[2] == head_dim) {
                let shapes = format!("tables {:?} for {heads} heads of {head_dim}", tables.shape());
                return Err(misfit("attention", shapes));
            }
        }
    }
    let op = AttentionOp { segments, heads, head_dim, bias };
    qkv.contiguous().and_then(|qkv| qkv.apply_op1_no_bwd(&op)).map_err(failed("attention"))
}

struct AttentionOp<'a> {
    segments: &'a Segments,
    heads: usize,
    head_dim: usize,
    bias: &'a PositionBias<'a>,
}

/// Position terms as numbers on the host.
enum HostBias {
    None,
    Relative(Vec<f32>, usize),
    Disentangled { keys: Option<Vec<f32>>, queries: Option<Vec<f32>>, rows: Vec<usize>, table: usize },
}

impl AttentionOp<'_> {
    fn host_bias(&self) -> candle_core::Result<HostBias> {
        Ok(match self.bias {
            PositionBias::None => HostBias::None,
            PositionBias::Relative { table } => {
                HostBias::Relative(table.to_dtype(DType::F32)?.flatten_all()?.to_vec1()?, table.dims()[1] / 2)
            }
            PositionBias::Disentangled(t) => {
                let numbers = |t: &Option<Tensor>| t.as_ref().map(|t| t.flatten_all()?.to_vec1::<f32>()).transpose();
                let far = self.segments.max_len() as i64;
                let rows = (-far..=far).map(|d| t.row(d)).collect();
                HostBias::Disentangled {
                    keys: numbers(&t.keys)?,
                    queries: numbers(&t.queries)?,
                    rows,
                    table: 2 * t.span,
                }
            }
        })
    }

    /// The rows of one text, all heads.
    fn text(&self, qkv: &[f32], bias: &HostBias, out: &mut [f32]) {
        let (dim, hidden) = (self.head_dim, self.heads * self.head_dim);
        let len = out.len() / hidden;
        let far = self.segments.max_len();
        let terms = if let PositionBias::Disentangled(t) = self.bias { t.terms() } else { 0 };
        let scale = 1.0 / ((dim * (1 + terms)) as f32).sqrt();
        let row = |part: usize, h: usize, i: usize| &qkv[i * 3 * hidden + part * hidden + h * dim..][..dim];
        let mut scores = vec![0f32; len];
        for h in 0..self.heads {
            for i in 0..len {
                for (j, score) in scores.iter_mut().enumerate() {
                    *score = dot(row(0, h, i), row(1, h, j)) * scale;
                    match bias {
                        HostBias::None => {}
                        HostBias::Relative(table, span) => {
                            let d = (i as i64 - j as i64).clamp(-(*span as i64), *span as i64) + *span as i64;
                            *score += table[h * (2 * span + 1) + d as usize];
                        }
                        HostBias::Disentangled { keys, queries, rows, table } => {
                            let entry = h * table + rows[i + far - j];
                            if let Some(keys) = keys {
                                *score += dot(row(0, h, i), &keys[entry * dim..][..dim]) * scale;
                            }
                            if let Some(queries) = queries {
                                *score += dot(row(1, h, j), &queries[entry * dim..][..dim]) * scale;
                            }
                        }
                    }
                }
                let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                scores.iter_mut().for_each(|s| *s = (*s - max).exp());
                let sum: f32 = scores.iter().sum();
                let out = &mut out[i * hidden + h * dim..][..dim];
                for (j, weight) in scores.iter().enumerate() {
                    out.iter_mut().zip(row(2, h, j)).for_each(|(o, v)| *o = weight.mul_add(*v, *o));
                }
                out.iter_mut().for_each(|o| *o /= sum);
            }
        }
    }
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).fold(0f32, |sum, (x, y)| x.mul_add(*y, sum))
}

impl CustomOp1 for AttentionOp<'_> {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> candle_core::Result<(CpuStorage, Shape)> {
        let qkv = slice(storage, layout)?;
        let hidden = self.heads * self.head_dim;
        let bias = self.host_bias()?;
        let mut out = vec![0f32; self.segments.total() * hidden];
        let mut rest = out.as_mut_slice();
        let mut texts = Vec::with_capacity(self.segments.len());
        for i in 0..self.segments.len() {
            let rows = self.segments.rows(i);
            let (own, others) = std::mem::take(&mut rest).split_at_mut(rows.len() * hidden);
            texts.push((rows, own));
            rest = others;
        }
        texts.into_par_iter().for_each(|(rows, out)| {
            self.text(&qkv[rows.start * 3 * hidden..rows.end * 3 * hidden], &bias, out);
        });
        Ok((CpuStorage::F32(out), Shape::from((self.segments.total(), hidden))))
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

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
        let out = attention(&qkv, &Segments::new(&[1, 2]), 1, &bias).unwrap();
        let out = out.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        let weight = 1.0 / (1.0 + f32::exp(3.0 / 2f32.sqrt()));
        let expected = [7.0, 10.0 * weight + 20.0 * (1.0 - weight), 15.0];
        assert!(out.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-5), "{out:?} is not {expected:?}");
        assert!(attention(&qkv, &Segments::new(&[1, 1]), 1, &bias).is_err());
    }
}
