//! Encoders: texts to vectors, and pairs of premise and hypothesis to NLI logits.
//!
//! In: a model by name or folder ([`locate`]), texts. Out: [`Embedder`]'s vectors, [`CrossEncoder`]'s logits. BERT, RoBERTa, MPNet and
//! DeBERTa-v2/v3, told apart by `config.json`. Texts of a batch are packed without padding, and every row is computed in one fixed
//! order of sums, so that a text alone and in any batch has equal bits. No result is ever NaN: an error names the layer.

mod batch;
mod bert;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod cases;
mod config;
mod cross;
mod deberta;
mod device;
mod early;
mod embedder;
mod labels;
mod layer;
mod mpnet;
pub mod ops;
mod sentence;
mod source;
mod tokenize;
mod weights;

pub use cross::{CrossEncoder, PairScores};
pub use device::EncodeDevice;
pub use early::{CrossEncoderOutlook, TextLimit, check_cross_encoder};
pub use embedder::{Embedded, Embedder};
pub use labels::Labels;
pub use ops::Precision;
pub use source::{Found, ModelFolder, locate, look};

use candle_core::{DType, Tensor};

use crate::{Error, Result};
use batch::Batch;
use config::{Family, ModelConfig};
use layer::Rows;
use weights::{Scope, Weights};

/// A stack of layers over a packed batch.
trait Encoder: Send + Sync {
    /// Hidden states \[T, H\], or \[texts, H\] of the first tokens. With `watch` every layer's output is checked.
    ///
    /// # Errors
    /// With `watch`, numbers that are not finite; the error names the layer. Or the device fails.
    fn forward(&self, batch: &Batch, rows: Rows, watch: bool) -> Result<Tensor>;
}

/// Reads the encoder that `config` describes.
fn load_encoder(
    config: &ModelConfig,
    weights: &Weights,
    device: &EncodeDevice,
    precision: Precision,
) -> Result<Box<dyn Encoder>> {
    let scope = Scope::root(weights, device.place(), precision);
    Ok(match config.family {
        Family::Bert | Family::Roberta => Box::new(bert::Bert::load(&scope, config)?),
        Family::Mpnet => Box::new(mpnet::Mpnet::load(&scope, config)?),
        Family::Deberta => Box::new(deberta::Deberta::load(&scope, config)?),
    })
}

/// Runs a batch so that what is not finite becomes an error with its layer's name. On the processor every layer is looked at; elsewhere
/// that would wait for the device each time, so only the result is, and a bad batch runs again.
fn watched(device: &EncodeDevice, run: impl Fn(bool) -> Result<Vec<f32>>) -> Result<Vec<f32>> {
    let out = run(device.is_host())?;
    if out.iter().all(|v| v.is_finite()) {
        return Ok(out);
    }
    run(true)?;
    Err(Error::work("an encoder's result is not finite")
        .with_hint("the weights overflow or are damaged: get the model again"))
}

/// A tensor's numbers on the host, row-major.
fn host_rows(x: &Tensor) -> Result<Vec<f32>> {
    x.flatten_all().and_then(|x| x.to_dtype(DType::F32)?.to_vec1()).map_err(tensor_failed)
}

/// candle's own errors: a device that fails, or shapes that were checked before.
fn tensor_failed(source: candle_core::Error) -> Error {
    Error::work("the tensor library failed").with_source(source)
}
