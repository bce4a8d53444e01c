//! The transformer layer all encoders share, and the walk through a stack of them.
//!
//! In: hidden states \[T, H\] of a packed batch. Out: hidden states, of all rows or of each text's first token. A layer is
//! x' = LN(x + O·attention(x)), y = LN(x' + D·gelu(U·x')): the norm comes after each part.

use candle_core::{CpuStorage, DType, Device, Storage, Tensor};

use super::batch::Batch;
use super::ops::{self, Activation, LayerNorm, Linear, Place, PositionBias};
use super::tensor_failed;
use super::weights::Scope;
use crate::{Error, Result};

/// What the parts of the attention are called in files.
pub(super) struct Names {
    /// Query, key and value.
    pub qkv: [&'static str; 3],
    /// The layer after attention.
    pub out: &'static str,
    /// The norm after attention.
    pub norm: &'static str,
}

/// Widths of a layer.
#[derive(Clone, Copy)]
pub(super) struct Widths {
    pub hidden: usize,
    pub intermediate: usize,
    pub eps: f32,
}

/// One layer.
pub(super) struct Layer {
    qkv: Linear,
    attention_out: Linear,
    attention_norm: LayerNorm,
    up: Linear,
    down: Linear,
    norm: LayerNorm,
    place: Place,
}

impl Layer {
    /// Reads a layer at its place.
    pub fn load(scope: &Scope, names: &Names, widths: Widths) -> Result<Self> {
        let Widths { hidden, intermediate, eps } = widths;
        Ok(Self {
            qkv: scope.fused(&names.qkv, hidden, hidden)?,
            attention_out: scope.linear(names.out, hidden, hidden)?,
            attention_norm: scope.norm(names.norm, hidden, eps)?,
            up: scope.linear("intermediate.dense", intermediate, hidden)?,
            down: scope.linear("output.dense", hidden, intermediate)?,
            norm: scope.norm("output.LayerNorm", hidden, eps)?,
            place: scope.on.clone(),
        })
    }

    /// All rows, or with `only` just those: \[T, H\] to \[T or |only|, H\].
    fn forward(
        &self,
        x: &Tensor,
        batch: &Batch,
        heads: usize,
        bias: &PositionBias,
        only: Option<&Tensor>,
    ) -> Result<Tensor> {
        let qkv = self.qkv.forward(x, Activation::None)?;
        let context = ops::attention_on(&self.place, &qkv, &batch.segments, heads, bias, self.qkv.precision())?;
        let pick = |t: &Tensor| match only {
            Some(rows) => t.index_select(rows, 0).map_err(tensor_failed),
            None => Ok(t.clone()),
        };
        let attended = self.attention_out.forward(&pick(&context)?, Activation::None)?;
        let attended = self.attention_norm.forward_residual(&attended, &pick(x)?)?;
        let inner = self.up.forward(&attended, Activation::Gelu)?;
        self.norm.forward_residual(&self.down.forward(&inner, Activation::None)?, &attended)
    }
}

/// Which rows of the last layer are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rows {
    /// Every token's.
    All,
    /// Each text's first token's.
    First,
}

/// A stack of layers.
pub(super) struct Stack {
    pub layers: Vec<Layer>,
    pub heads: usize,
    /// Where the layers stand in the file, for messages.
    pub place: String,
}

impl Stack {
    /// Walks through all layers. `bias` gives a layer's position terms; `after` may change a layer's output, given its input.
    /// With `watch` every layer's output is checked.
    ///
    /// # Errors
    /// A layer's output is not finite, or the device fails.
    pub fn forward<'a>(
        &self,
        mut x: Tensor,
        batch: &Batch,
        (rows, watch): (Rows, bool),
        bias: impl Fn(usize) -> PositionBias<'a>,
        after: impl Fn(usize, &Tensor, Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let firsts = match rows {
            Rows::All => None,
            Rows::First => {
                let starts = &batch.segments.offsets()[..batch.segments.len()];
                Some(Tensor::from_slice(starts, starts.len(), x.device()).map_err(tensor_failed)?)
            }
        };
        for (i, layer) in self.layers.iter().enumerate() {
            // Rows that nothing reads are not computed.
            let only = firsts.as_ref().filter(|_| i + 1 == self.layers.len());
            let y = layer.forward(&x, batch, self.heads, &bias(i), only)?;
            x = after(i, &x, y)?;
            if watch {
                check_finite(&x, || format!("{}.{i}", self.place))?;
            }
        }
        Ok(x)
    }
}

/// Refuses infinities and NaN.
///
/// # Errors
/// A number is not finite; the error names `place`.
pub(super) fn check_finite(x: &Tensor, place: impl FnOnce() -> String) -> Result<()> {
    if is_finite(x)? {
        return Ok(());
    }
    Err(Error::work(format!("numbers after {} are not finite", place()))
        .with_hint("the weights overflow or are damaged: get the model again, and try it with precision f32"))
}

fn is_finite(x: &Tensor) -> Result<bool> {
    if matches!(x.device(), Device::Cpu) {
        let (storage, layout) = x.storage_and_layout();
        if let (Storage::Cpu(CpuStorage::F32(numbers)), Some((from, to))) = (&*storage, layout.contiguous_offsets()) {
            return Ok(numbers[from..to].iter().all(|v| v.is_finite()));
        }
    }
    // x - x is 0, or NaN where x is not finite.
    let spread = x.sub(x).and_then(|z| z.sum_all()?.to_dtype(DType::F32)?.to_scalar::<f32>()).map_err(tensor_failed)?;
    Ok(spread.is_finite())
}
