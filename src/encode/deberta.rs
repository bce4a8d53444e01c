//! DeBERTa-v2 and v3: scores of contents and of relative positions, the position tables made once a model and layer.
//!
//! In: a packed batch. Out: hidden states. Kr and Qr are the key and query projections of LN(rel_embeddings), by the layer's own
//! projections where `share_att_key`, else by `pos_key_proj` and `pos_query_proj`; they do not depend on the texts.

use candle_core::Tensor;

use super::Encoder;
use super::batch::Batch;
use super::bert::{load_stack, lookup};
use super::config::ModelConfig;
use super::layer::{Names, Rows, Stack, check_finite};
use super::ops::{Activation, DisentangledTables, LayerNorm, Linear, PositionBias, Precision};
use super::tensor_failed;
use super::weights::Scope;
use crate::Result;

const NAMES: Names = Names {
    qkv: ["attention.self.query_proj", "attention.self.key_proj", "attention.self.value_proj"],
    out: "attention.output.dense",
    norm: "attention.output.LayerNorm",
};

/// DeBERTa.
pub(super) struct Deberta {
    embeddings: Embeddings,
    stack: Stack,
    /// One a layer; empty without position terms.
    tables: Vec<DisentangledTables>,
    conv: Option<Conv>,
}

impl Deberta {
    /// Reads the model at its place.
    pub fn load(scope: &Scope, config: &ModelConfig) -> Result<Self> {
        let scope = scope.model("deberta");
        let settings = &config.deberta;
        let conv = (settings.conv_kernel > 0).then(|| Conv::load(&scope.sub("encoder.conv"), config));
        Ok(Self {
            embeddings: Embeddings::load(&scope, config)?,
            tables: tables(&scope.sub("encoder"), config)?,
            stack: load_stack(&scope, config, &NAMES)?,
            conv: conv.transpose()?,
        })
    }
}

impl Encoder for Deberta {
    fn forward(&self, batch: &Batch, rows: Rows, watch: bool) -> Result<Tensor> {
        let x = self.embeddings.forward(batch, watch)?;
        let bias = |i: usize| self.tables.get(i).map_or(PositionBias::None, PositionBias::Disentangled);
        self.stack.forward(x, batch, (rows, watch), bias, |i, x, y| match &self.conv {
            Some(conv) if i == 0 => conv.forward(x, &y, batch),
            _ => Ok(y),
        })
    }
}

/// Kr and Qr of every layer, \[heads, 2·span, head_dim\].
fn tables(scope: &Scope, config: &ModelConfig) -> Result<Vec<DisentangledTables>> {
    let (hidden, settings) = (config.hidden, &config.deberta);
    if !settings.relative || !(settings.c2p || settings.p2c) {
        return Ok(Vec::new());
    }
    let span = settings.span();
    let mut relative = scope.tensor("rel_embeddings.weight", &[2 * span, hidden])?;
    if settings.norm_relative {
        relative = scope.norm("LayerNorm", hidden, config.eps)?.forward(&relative)?;
    }
    let project = |layer: &Scope, shared: &str, own: &str| -> Result<Tensor> {
        let name = if settings.share_att_key { shared } else { own };
        let (weight, bias) = layer.pair(name, hidden, hidden)?;
        // Once a model: no reason to round the products.
        let project = Linear::on(scope.on, &[(&weight, &bias)], Precision::F32)?;
        let rows = project.forward(&relative, Activation::None)?;
        rows.reshape((2 * span, config.heads, hidden / config.heads))
            .and_then(|rows| rows.transpose(0, 1)?.contiguous())
            .map_err(tensor_failed)
    };
    let max_positions = if settings.buckets > 0 { settings.max_relative } else { 0 };
    (0..config.layers)
        .map(|i| {
            let layer = scope.sub(&format!("layer.{i}.attention.self"));
            let keys = settings.c2p.then(|| project(&layer, "key_proj", "pos_key_proj")).transpose()?;
            let queries = settings.p2c.then(|| project(&layer, "query_proj", "pos_query_proj")).transpose()?;
            DisentangledTables::new(keys, queries, span, max_positions)
        })
        .collect()
}

/// Words, and where the model has them positions and types, projected to the hidden width and normed.
struct Embeddings {
    words: Tensor,
    positions: Option<Tensor>,
    types: Option<Tensor>,
    projection: Option<Linear>,
    norm: LayerNorm,
    place: String,
}

impl Embeddings {
    fn load(scope: &Scope, config: &ModelConfig) -> Result<Self> {
        let scope = scope.sub("embeddings");
        let (hidden, width) = (config.hidden, config.deberta.embedding);
        if config.token_types == 0 {
            scope.has_no("token_type_embeddings.", "type_vocab_size = 0")?;
        }
        let table =
            |there: bool, name: &str, rows: usize| there.then(|| scope.tensor(name, &[rows, width])).transpose();
        let projection = (width != hidden).then(|| {
            let weight = scope.tensor("embed_proj.weight", &[hidden, width])?;
            let bias = Tensor::from_vec(vec![0f32; hidden], hidden, scope.device()).map_err(tensor_failed)?;
            Linear::on(scope.on, &[(&weight, &bias)], scope.precision)
        });
        Ok(Self {
            words: scope.tensor("word_embeddings.weight", &[config.vocab, width])?,
            positions: table(config.deberta.absolute, "position_embeddings.weight", config.positions)?,
            types: table(config.token_types > 0, "token_type_embeddings.weight", config.token_types)?,
            projection: projection.transpose()?,
            norm: scope.norm("LayerNorm", hidden, config.eps)?,
            place: scope.place().to_owned(),
        })
    }

    fn forward(&self, batch: &Batch, watch: bool) -> Result<Tensor> {
        let mut x = lookup(&self.words, &batch.ids)?;
        if let Some(positions) = &self.positions {
            let ids: Vec<u32> =
                (0..batch.segments.len()).flat_map(|i| 0..batch.segments.rows(i).len() as u32).collect();
            x = x.add(&lookup(positions, &ids)?).map_err(tensor_failed)?;
        }
        if let Some(types) = &self.types {
            let last = types.dims()[0] as u32 - 1;
            let ids: Vec<u32> = batch.types.iter().map(|&t| t.min(last)).collect();
            x = x.add(&lookup(types, &ids)?).map_err(tensor_failed)?;
        }
        if let Some(projection) = &self.projection {
            x = projection.forward(&x, Activation::None)?;
        }
        let x = self.norm.forward(&x)?;
        if watch {
            check_finite(&x, || self.place.clone())?;
        }
        Ok(x)
    }
}

/// The convolution beside the first layer, which only v2-xlarge and v2-xxlarge have: y' = LN(y + act(conv(x))).
struct Conv {
    /// \[H, kernel·H\], a tap after another.
    dense: Linear,
    kernel: usize,
    tanh: bool,
    norm: LayerNorm,
}

impl Conv {
    fn load(scope: &Scope, config: &ModelConfig) -> Result<Self> {
        let (hidden, kernel) = (config.hidden, config.deberta.conv_kernel);
        let weight = scope.tensor("conv.weight", &[hidden, hidden, kernel])?;
        let bias = scope.tensor("conv.bias", &[hidden])?;
        let taps = weight
            .transpose(1, 2)
            .and_then(|w| w.contiguous()?.reshape((hidden, kernel * hidden)))
            .map_err(tensor_failed)?;
        Ok(Self {
            dense: Linear::on(scope.on, &[(&taps, &bias)], scope.precision)?,
            kernel,
            tanh: config.deberta.conv_tanh,
            norm: scope.norm("LayerNorm", hidden, config.eps)?,
        })
    }

    /// `x` went into the first layer, `y` came out.
    fn forward(&self, x: &Tensor, y: &Tensor, batch: &Batch) -> Result<Tensor> {
        let (total, hidden) = x.dims2().map_err(tensor_failed)?;
        // Row `total` is zero and stands for what lies outside a text.
        let mut rows = Vec::with_capacity(total * self.kernel);
        for i in 0..batch.segments.len() {
            let own = batch.segments.rows(i);
            for t in own.clone() {
                rows.extend((0..self.kernel).map(|tap| {
                    let at = (t + tap).checked_sub(self.kernel / 2).filter(|at| own.contains(at));
                    at.unwrap_or(total) as u32
                }));
            }
        }
        let taps = Tensor::zeros((1, hidden), x.dtype(), x.device())
            .and_then(|zero| Tensor::cat(&[x, &zero], 0))
            .and_then(|padded| padded.index_select(&Tensor::from_vec(rows, total * self.kernel, x.device())?, 0))
            .and_then(|taps| taps.reshape((total, self.kernel * hidden)))
            .map_err(tensor_failed)?;
        let activation = if self.tanh { Activation::None } else { Activation::Gelu };
        let mut out = self.dense.forward(&taps, activation)?;
        if self.tanh {
            out = out.tanh().map_err(tensor_failed)?;
        }
        self.norm.forward_residual(&out, y)
    }
}
