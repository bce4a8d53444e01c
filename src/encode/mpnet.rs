//! MPNet: BERT's embeddings without types, and one relative position bias that all layers add to their scores.
//!
//! In: a packed batch. Out: hidden states. The bias of distance d = i - j is row bucket(d) of `relative_attention_bias`: half of the
//! buckets for each sign, of these half for exact distances and the rest spaced by logarithm up to 128.

use candle_core::Tensor;

use super::Encoder;
use super::batch::Batch;
use super::bert::{Embeddings, load_stack};
use super::config::ModelConfig;
use super::layer::{Names, Rows, Stack};
use super::ops::PositionBias;
use super::tensor_failed;
use super::weights::Scope;
use crate::Result;

/// From this distance on all have one bucket.
const FARTHEST: i64 = 128;

const NAMES: Names = Names {
    qkv: ["attention.attn.q", "attention.attn.k", "attention.attn.v"],
    out: "attention.attn.o",
    norm: "attention.LayerNorm",
};

/// MPNet.
pub(super) struct Mpnet {
    embeddings: Embeddings,
    stack: Stack,
    /// \[heads, 2·128 + 1\]
    table: Tensor,
}

impl Mpnet {
    /// Reads the model at its place.
    pub fn load(scope: &Scope, config: &ModelConfig) -> Result<Self> {
        let scope = scope.model("mpnet");
        let bias = scope.tensor("encoder.relative_attention_bias.weight", &[config.relative_buckets, config.heads])?;
        let rows: Vec<u32> = (-FARTHEST..=FARTHEST).map(|d| bucket(d, config.relative_buckets)).collect();
        let table = Tensor::from_slice(&rows, rows.len(), scope.device())
            .and_then(|rows| bias.index_select(&rows, 0)?.t()?.contiguous())
            .map_err(tensor_failed)?;
        Ok(Self { embeddings: Embeddings::load(&scope, config)?, stack: load_stack(&scope, config, &NAMES)?, table })
    }
}

impl Encoder for Mpnet {
    fn forward(&self, batch: &Batch, rows: Rows, watch: bool) -> Result<Tensor> {
        let x = self.embeddings.forward(batch, watch)?;
        let bias = |_| PositionBias::Relative { table: &self.table };
        self.stack.forward(x, batch, (rows, watch), bias, |_, _, y| Ok(y))
    }
}

/// Bucket of distance i - j. The logarithm is taken in `f32`, as in the reference, since it decides where a bucket ends.
fn bucket(distance: i64, buckets: usize) -> u32 {
    let half = buckets / 2;
    let exact = half / 2;
    let sign = if distance < 0 { half } else { 0 };
    let n = distance.unsigned_abs() as usize;
    let within = if n < exact {
        n
    } else {
        let ratio = (n as f32 / exact as f32).ln() / (FARTHEST as f64 / exact as f64).ln() as f32;
        (exact + (ratio * (half - exact) as f32) as usize).min(half - 1)
    };
    (sign + within) as u32
}
