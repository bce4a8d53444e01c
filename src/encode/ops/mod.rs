//! The operations that encoders are made of: linear layer, layer normalisation, self-attention over packed texts.
//!
//! In: hidden states `[T, H]` of all texts of a batch, one row a token, no padding, and [`Segments`] that say where each text starts.
//! Out: hidden states. Every element of an output has one fixed order of sums, so a token's row depends neither on the other texts of
//! its batch nor on the number of threads. Products may be of lower precision ([`Precision`]); sums, scores, softmax and norms are `f32`.

mod attend;
mod attention;
#[cfg(feature = "cuda-encoders")]
mod cuda;
mod device;
mod elementary;
mod lanes;
#[cfg(target_arch = "x86_64")]
mod lanes_x86;
mod linear;
mod norm;
mod panels;
mod position;
mod product;
mod segments;
#[cfg(test)]
mod tests;

pub use attention::{attention, attention_on};
#[cfg(feature = "cuda-encoders")]
pub use cuda::CudaKernels;
pub use device::{Kernels, Place};
pub use linear::Linear;
pub use norm::LayerNorm;
pub use position::{DisentangledTables, PositionBias};
pub use segments::Segments;

use candle_core::{CpuStorage, Layout};

use crate::Error;

/// What follows a linear layer's sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// Nothing.
    None,
    /// x · Φ(x), with the error function rather than its tanh approximation.
    Gelu,
}

/// In which precision a linear layer multiplies; it adds in `f32` always.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// Single precision.
    F32,
    /// Weights and inputs rounded to bfloat16. The same bits on every processor. Where the instruction for it ([`fast_bf16`]) does two
    /// products in the time of one, as on an AMD EPYC, twice as fast as [`Precision::F32`]; on an Intel Xeon two thirds as fast, elsewhere
    /// a third. On processors only.
    Bf16,
    /// Hidden states, weights and products of a GPU in IEEE half precision.
    F16,
}

impl Precision {
    /// As configurations and manifests write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        }
    }

    /// Bytes of a weight.
    pub fn bytes(self) -> u64 {
        match self {
            Self::F32 => 4,
            Self::Bf16 | Self::F16 => 2,
        }
    }
}

/// Whether this processor multiplies pairs of bfloat16 by one instruction.
pub fn fast_bf16() -> bool {
    lanes::Unit::detect().pairs
}

/// An error of candle within an operation of ours.
fn failed(operation: &'static str) -> impl FnOnce(candle_core::Error) -> Error {
    move |source| Error::work(format!("{operation} failed")).with_source(source)
}

/// Shapes that do not fit each other: the weights are of another model than the configuration.
fn misfit(operation: &str, what: impl std::fmt::Display) -> Error {
    Error::request(format!("{operation}: {what}")).with_hint("config.json and the weights must be of the same model")
}

/// The numbers of a contiguous `f32` tensor on the CPU.
fn slice<'a>(storage: &'a CpuStorage, layout: &Layout) -> candle_core::Result<&'a [f32]> {
    match (storage, layout.contiguous_offsets()) {
        (CpuStorage::F32(data), Some((start, end))) => Ok(&data[start..end]),
        _ => candle_core::bail!("needs contiguous f32 numbers, not {:?}", layout.shape()),
    }
}
