//! BERT and RoBERTa: words, positions and types added, a layer norm, then the stack without position terms.
//!
//! In: a packed batch. Out: hidden states \[T, H\] or \[texts, H\]. RoBERTa's positions start after its padding token's id, and a padding
//! token inside a text stands at that id, as in Hugging Face transformers.

use candle_core::Tensor;

use super::Encoder;
use super::batch::Batch;
use super::config::{Family, ModelConfig};
use super::layer::{Layer, Names, Rows, Stack, Widths, check_finite};
use super::ops::{LayerNorm, PositionBias};
use super::tensor_failed;
use super::weights::Scope;
use crate::Result;

const NAMES: Names = Names {
    qkv: ["attention.self.query", "attention.self.key", "attention.self.value"],
    out: "attention.output.dense",
    norm: "attention.output.LayerNorm",
};

/// BERT or RoBERTa.
pub(super) struct Bert {
    embeddings: Embeddings,
    stack: Stack,
}

impl Bert {
    /// Reads the model at its place.
    pub fn load(scope: &Scope, config: &ModelConfig) -> Result<Self> {
        let scope = scope.model(if config.family == Family::Bert { "bert" } else { "roberta" });
        Ok(Self { embeddings: Embeddings::load(&scope, config)?, stack: load_stack(&scope, config, &NAMES)? })
    }
}

impl Encoder for Bert {
    fn forward(&self, batch: &Batch, rows: Rows, watch: bool) -> Result<Tensor> {
        let x = self.embeddings.forward(batch, watch)?;
        self.stack.forward(x, batch, (rows, watch), |_| PositionBias::None, |_, _, y| Ok(y))
    }
}

/// All layers below `encoder.layer`.
pub(super) fn load_stack(scope: &Scope, config: &ModelConfig, names: &Names) -> Result<Stack> {
    let widths = Widths { hidden: config.hidden, intermediate: config.intermediate, eps: config.eps };
    let layers = scope.sub("encoder.layer");
    layers.has_no(&format!("{}.", config.layers), &format!("num_hidden_layers = {}", config.layers))?;
    Ok(Stack {
        place: layers.place().to_owned(),
        heads: config.heads,
        layers: (0..config.layers)
            .map(|i| Layer::load(&layers.sub(&i.to_string()), names, widths))
            .collect::<Result<_>>()?,
    })
}

/// Words plus positions plus types, normed.
pub(super) struct Embeddings {
    words: Tensor,
    positions: Tensor,
    types: Option<Tensor>,
    norm: LayerNorm,
    /// Position of the first token.
    first: u32,
    /// The token that has no position of its own, where there is one.
    pad: Option<u32>,
    place: String,
}

impl Embeddings {
    /// Reads the tables at `scope`'s `embeddings`.
    pub fn load(scope: &Scope, config: &ModelConfig) -> Result<Self> {
        let scope = scope.sub("embeddings");
        let hidden = config.hidden;
        if config.token_types == 0 {
            scope.has_no("token_type_embeddings.", "type_vocab_size = 0")?;
        }
        let types = (config.token_types > 0)
            .then(|| scope.tensor("token_type_embeddings.weight", &[config.token_types, hidden]));
        Ok(Self {
            words: scope.tensor("word_embeddings.weight", &[config.vocab, hidden])?,
            positions: scope.tensor("position_embeddings.weight", &[config.positions, hidden])?,
            types: types.transpose()?,
            norm: scope.norm("LayerNorm", hidden, config.eps)?,
            first: config.first_position(),
            pad: match config.family {
                Family::Bert | Family::Deberta => None,
                Family::Roberta | Family::Mpnet => Some(config.first_position() - 1),
            },
            place: scope.place().to_owned(),
        })
    }

    /// \[T, H\]
    pub fn forward(&self, batch: &Batch, watch: bool) -> Result<Tensor> {
        let mut x = lookup(&self.words, &batch.ids)?;
        if let Some(types) = &self.types {
            let last = types.dims()[0] as u32 - 1;
            // Models with one type read every token as of that type.
            let ids: Vec<u32> = batch.types.iter().map(|&t| t.min(last)).collect();
            x = x.add(&lookup(types, &ids)?).map_err(tensor_failed)?;
        }
        x = x.add(&lookup(&self.positions, &self.position_ids(batch))?).map_err(tensor_failed)?;
        let x = self.norm.forward(&x)?;
        if watch {
            check_finite(&x, || self.place.clone())?;
        }
        Ok(x)
    }

    fn position_ids(&self, batch: &Batch) -> Vec<u32> {
        let mut out = Vec::with_capacity(batch.ids.len());
        for i in 0..batch.segments.len() {
            let mut next = self.first;
            for &id in &batch.ids[batch.segments.rows(i)] {
                if Some(id) == self.pad {
                    out.push(id);
                } else {
                    out.push(next);
                    next += 1;
                }
            }
        }
        out
    }
}

/// Rows of a table: ids \[T\] to \[T, H\].
pub(super) fn lookup(table: &Tensor, ids: &[u32]) -> Result<Tensor> {
    Tensor::from_slice(ids, ids.len(), table.device())
        .and_then(|ids| table.index_select(&ids, 0))
        .map_err(tensor_failed)
}
