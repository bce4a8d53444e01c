//! The operations on a GPU: kernels of `kernels/encoder_*.cu` around matrix products of candle.
//!
//! In: tensors of a device in `f32` or `f16`, and [`Kernels`] that start launches over them. Out: tensors of the same kind. Attention
//! lays heads apart, multiplies, gathers scores, multiplies, and joins heads; texts of a batch go through it in parts of similar length,
//! so that little of it is padding and its scores stay small beside the model. Tests start the same launches on the processor.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use candle_core::{DType, Device, Shape, Tensor};

use super::{Activation, Precision, Segments, failed, misfit};
use crate::backend::device::encoder::{self, Element, Launch, Norm, Terms, Texts};
use crate::{Error, Result};

/// The most that scores and position terms of a part take, unless it is one text.
const PART_BYTES: usize = 512 << 20;

/// Starts kernels over tensors, in the order of the calls, which is also the order of candle's own operations on them.
pub trait Kernels: Debug + Send + Sync {
    /// Starts one. Its buffers are contiguous tensors of one device.
    ///
    /// # Errors
    /// When it cannot be started.
    fn start(&self, launch: &Launch<'_, Tensor>) -> Result<()>;
}

/// Where operations run.
#[derive(Debug, Clone)]
pub enum Place {
    /// On the processor, by operations of its own.
    Host,
    /// On a device, by kernels.
    Device(Device, Arc<dyn Kernels>),
}

impl Place {
    /// candle's device.
    pub fn device(&self) -> &Device {
        match self {
            Self::Host => &Device::Cpu,
            Self::Device(device, _) => device,
        }
    }

    /// Refuses a precision that there is no operation for here.
    ///
    /// # Errors
    /// `f16` on the processor, `bf16` on a device.
    pub fn check(&self, precision: Precision) -> Result<()> {
        match (self, precision) {
            (Self::Host, Precision::F16) => {
                Err(Error::request("precision f16 is for GPUs, and the encoders run on the CPU here")
                    .with_hint("use auto, f32 or bf16"))
            }
            (Self::Device(..), Precision::Bf16) => {
                Err(Error::request("precision bf16 is for CPUs, and the encoders run on a GPU here")
                    .with_hint("use auto, f32, or f16, which is the GPU's half precision"))
            }
            _ => Ok(()),
        }
    }
}

/// In which type a device holds the tensors of a precision that [`Place::check`] let pass.
pub(super) fn dtype(precision: Precision) -> DType {
    if precision == Precision::F32 { DType::F32 } else { DType::F16 }
}

fn element(x: &Tensor) -> Result<Element> {
    match x.dtype() {
        DType::F32 => Ok(Element::F32),
        DType::F16 => Ok(Element::F16),
        other => Err(misfit("kernels of the encoders", format_args!("take f32 or f16, not {other:?}"))),
    }
}

/// A tensor that a kernel fills.
fn room(shape: impl Into<Shape>, dtype: DType, device: &Device) -> candle_core::Result<Tensor> {
    if device.is_cpu() {
        return Tensor::zeros(shape, dtype, device);
    }
    // SAFETY: the kernel that gets it writes every element before anything reads one: they are on one stream.
    unsafe { Tensor::empty(shape, dtype, device) }
}

/// x·W + b, then the activation: x `[T, in]`, W `[in, out]` in the type that is multiplied, b `[out]` in `f32`.
pub(super) fn linear(
    kernels: &dyn Kernels,
    x: &Tensor,
    (weight, bias): (&Tensor, &Tensor),
    act: Activation,
) -> Result<Tensor> {
    let product = || x.to_dtype(weight.dtype())?.matmul(weight);
    let y = product().map_err(failed("linear layer"))?;
    let (rows, width) = y.dims2().map_err(failed("linear layer"))?;
    kernels.start(&encoder::bias(element(&y)?, &y, bias, (rows, width), act == Activation::Gelu, &y)?)?;
    Ok(y)
}

/// LN(x + residual), `[T, H]`, in the type of `x`.
pub(super) fn norm(
    kernels: &dyn Kernels,
    x: &Tensor,
    residual: Option<&Tensor>,
    norm: &Norm<'_, Tensor>,
) -> Result<Tensor> {
    let ready = |t: &Tensor| t.to_dtype(x.dtype())?.contiguous();
    let fail = || failed("layer normalisation");
    let residual = residual.map(ready).transpose().map_err(fail())?;
    let x = ready(x).map_err(fail())?;
    let (rows, width) = x.dims2().map_err(fail())?;
    let y = room((rows, width), x.dtype(), x.device()).map_err(fail())?;
    kernels.start(&encoder::norm(element(&x)?, &x, residual.as_ref(), norm, (rows, width), &y)?)?;
    Ok(y)
}

/// Position terms as the kernels read them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DeviceTerms<'a> {
    /// Kr, `[heads, 2·span, head_dim]`.
    pub keys: Option<&'a Tensor>,
    /// Qr over the square root that scores are divided by, `[heads, 2·span, head_dim]`.
    pub queries: Option<&'a Tensor>,
    /// Row of both for d, at d + far.
    pub rows: Option<(&'a Tensor, &'a [u32])>,
    /// MPNet's, `[heads, 2·span + 1]` in `f32`.
    pub relative: Option<&'a Tensor>,
}

impl DeviceTerms<'_> {
    /// The rows that distances below `length` reach: the first, and how many.
    fn reached(&self, length: usize) -> (usize, usize) {
        let Some((_, rows)) = self.rows else { return (0, 0) };
        let far = rows.len() / 2;
        let reach = (length - 1).min(far);
        let (first, last) = (rows[far - reach] as usize, rows[far + reach] as usize);
        (first, last + 1 - first)
    }

    /// Numbers of scores, weights and position terms a row of scores.
    fn columns(&self, length: usize) -> usize {
        let tables = usize::from(self.keys.is_some()) + usize::from(self.queries.is_some());
        2 * length + tables * self.reached(length).1
    }
}

/// Heads of an attention.
#[derive(Debug, Clone, Copy)]
pub(super) struct Heads {
    pub count: usize,
    pub dim: usize,
    /// What q is multiplied by.
    pub scale: f32,
}

/// Attention within texts: qkv `[T, 3H]` to `[T, H]`.
pub(super) fn attention(
    kernels: &dyn Kernels,
    qkv: &Tensor,
    segments: &Segments,
    heads: Heads,
    terms: &DeviceTerms,
) -> Result<Tensor> {
    let fail = || failed("attention");
    let out = room((segments.total(), heads.count * heads.dim), qkv.dtype(), qkv.device()).map_err(fail())?;
    let row_bytes = heads.count * qkv.dtype().size_in_bytes();
    for texts in parts(segments, |length| row_bytes * length * terms.columns(length)) {
        part(kernels, qkv, segments, texts, heads, terms, &out)?;
    }
    Ok(out)
}

/// Splits texts, in their order, so that none of a part is shorter than three quarters of the longest, empty ones aside, and that they
/// take at most [`PART_BYTES`], where a text of `length` laid out takes `bytes(length)`.
fn parts(segments: &Segments, bytes: impl Fn(usize) -> usize) -> Vec<Range<usize>> {
    let mut out: Vec<Range<usize>> = Vec::new();
    let (mut shortest, mut longest) = (usize::MAX, 0);
    for i in 0..segments.len() {
        let n = segments.rows(i).len();
        if n == 0 {
            // No token of it is in the output, and laid out it is all zeros.
            continue;
        }
        (shortest, longest) = (shortest.min(n), longest.max(n));
        match out.last_mut() {
            Some(part) if 4 * shortest >= 3 * longest && (i + 1 - part.start) * bytes(longest) <= PART_BYTES => {
                part.end = i + 1
            }
            _ => {
                (shortest, longest) = (n, n);
                out.push(i..i + 1);
            }
        }
    }
    out
}

/// Attention of some texts, into their rows of `out`.
fn part(
    kernels: &dyn Kernels,
    qkv: &Tensor,
    segments: &Segments,
    texts: Range<usize>,
    heads: Heads,
    terms: &DeviceTerms,
    out: &Tensor,
) -> Result<()> {
    let fail = || failed("attention");
    let (dtype, device) = (qkv.dtype(), qkv.device());
    let element = element(qkv)?;
    let bounds = &segments.offsets()[texts.start..=texts.end];
    let (first_token, n) = (bounds[0] as usize, texts.len());
    let tokens = bounds[n] as usize - first_token;
    let length = texts.map(|i| segments.rows(i).len()).max().unwrap_or(0);
    let bounds: Vec<u32> = bounds.iter().map(|o| o - bounds[0]).collect();
    let offsets = Tensor::from_vec(bounds, n + 1, device).map_err(fail())?;
    let of = Texts { offsets: &offsets, texts: n, tokens, length, heads: heads.count, head_dim: heads.dim };
    let groups = heads.count * n;

    let own = qkv.narrow(0, first_token, tokens).map_err(fail())?;
    let laid = || room((groups, length, heads.dim), dtype, device).map_err(fail());
    let (q, k, v) = (laid()?, laid()?, laid()?);
    kernels.start(&encoder::split(element, &own, &of, heads.scale, [&q, &k, &v])?)?;

    let qk = k.transpose(1, 2).and_then(|k| q.matmul(&k)).map_err(fail())?;
    let (first_row, table) = terms.reached(length);
    // One product of a head serves all texts.
    let positions = |side: &Tensor, rows: Option<&Tensor>| -> candle_core::Result<Option<Tensor>> {
        let Some(rows) = rows else { return Ok(None) };
        let rows = rows.narrow(1, first_row, table)?.transpose(1, 2)?;
        Ok(Some(side.reshape((heads.count, n * length, heads.dim))?.matmul(&rows)?))
    };
    let c2p = positions(&q, terms.keys).map_err(fail())?;
    let p2c = positions(&k, terms.queries).map_err(fail())?;
    let gathered = Terms {
        c2p: c2p.as_ref(),
        p2c: p2c.as_ref(),
        rows: terms.rows.map(|(rows, _)| rows),
        far: terms.rows.map_or(0, |(_, rows)| rows.len() / 2),
        first_row,
        table,
        bias: terms.relative,
        span: terms.relative.map_or(0, |table| table.dims()[1] / 2),
    };
    let weights = room((groups, length, length), dtype, device).map_err(fail())?;
    let sums = room((groups, length), DType::F32, device).map_err(fail())?;
    kernels.start(&encoder::weights(element, &qk, &gathered, &of, &weights, &sums)?)?;

    let context = weights.matmul(&v).map_err(fail())?;
    let own = out.narrow(0, first_token, tokens).map_err(fail())?;
    kernels.start(&encoder::join(element, &context, &sums, &of, &own)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_of_similar_length_and_bounded() {
        let of = |lengths: &[usize], bytes: usize| -> Vec<(usize, usize)> {
            parts(&Segments::new(lengths), |n| n * bytes).into_iter().map(|part| (part.start, part.end)).collect()
        };
        assert_eq!(of(&[100, 90, 76, 74, 60, 0, 55, 10], 1), [(0, 3), (3, 5), (6, 7), (7, 8)]);
        assert_eq!(of(&[8, 0, 8, 9, 0], 1), [(0, 4)]);
        assert_eq!(of(&[8, 8, 8], PART_BYTES / 16), [(0, 2), (2, 3)]);
        assert_eq!(of(&[8, 8], PART_BYTES), [(0, 1), (1, 2)]);
        assert!(of(&[0, 0], 1).is_empty());
        assert!(of(&[], 1).is_empty());
    }
}
