//! Cross-encoder: pairs of premise and hypothesis to logits of the NLI classes.
//!
//! In: pairs. Out: logits a pair in the order of the pairs, and which premises were cut. Heads: BERT's pooler (tanh) and classifier,
//! DeBERTa's pooler (GELU) and classifier, and the dense, tanh, projection of RoBERTa and MPNet.

use candle_core::Tensor;

use super::batch::{Batch, plan};
use super::config::{Family, ModelConfig};
use super::device::EncodeDevice;
use super::labels::Labels;
use super::layer::{Rows, check_finite};
use super::ops::{Activation, Linear, Precision};
use super::sentence::pair_limit;
use super::source::ModelFolder;
use super::tokenize::Tokenizer;
use super::weights::{Scope, Weights};
use super::{Encoder, host_rows, load_encoder, tensor_failed, watched};
use crate::Result;

/// Pairs split at a time.
const CHUNK: usize = 16_384;

/// An NLI cross-encoder.
pub struct CrossEncoder {
    encoder: Box<dyn Encoder>,
    head: Head,
    tokenizer: Tokenizer,
    labels: Labels,
    name: String,
    fingerprint: String,
    device: EncodeDevice,
}

/// Logits of some pairs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PairScores {
    /// \[pairs, classes\], row-major, in the order of the pairs.
    pub logits: Vec<f32>,
    /// Whether a pair's premise was cut.
    pub cut: Vec<bool>,
    /// Whether a pair's hypothesis was cut, because it alone was over the limit.
    pub hypothesis_cut: Vec<bool>,
    /// Tokens read, special ones included.
    pub tokens: u64,
}

impl PairScores {
    /// Logits of pair `i`.
    pub fn row(&self, i: usize) -> &[f32] {
        let classes = self.logits.len() / self.cut.len().max(1);
        &self.logits[i * classes..(i + 1) * classes]
    }

    /// Probabilities of pair `i`: softmax of its logits.
    pub fn probabilities(&self, i: usize) -> Vec<f64> {
        let logits = self.row(i);
        let highest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let weights: Vec<f64> = logits.iter().map(|&l| (f64::from(l) - f64::from(highest)).exp()).collect();
        let sum: f64 = weights.iter().sum();
        weights.into_iter().map(|w| w / sum).collect()
    }
}

impl CrossEncoder {
    /// Reads a cross-encoder.
    ///
    /// # Errors
    /// The folder holds another kind of model, its classes are not those of NLI, or its files do not fit each other.
    pub fn load(folder: &ModelFolder, device: &EncodeDevice, precision: Precision) -> Result<Self> {
        device.check(precision)?;
        let config = ModelConfig::read(folder)?;
        let labels = Labels::find(&config)?;
        let tokenizer = Tokenizer::open(folder, &config, pair_limit(folder, &config)?, false)?;
        let weights = Weights::open(folder)?;
        let scope = Scope::root(&weights, device.place(), precision);
        Ok(Self {
            head: Head::load(&scope, &config, labels.names.len())?,
            encoder: load_encoder(&config, &weights, device, precision)?,
            tokenizer,
            labels,
            name: folder.name().to_owned(),
            fingerprint: folder.fingerprint()?,
            device: device.clone(),
        })
    }

    /// The classes, in the order of the logits.
    pub fn labels(&self) -> &Labels {
        &self.labels
    }

    /// The model's name as it was asked for.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Hash of the model's files.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// The most tokens of a pair, special tokens included; of a longer one the premise is cut.
    pub fn max_tokens(&self) -> usize {
        self.tokenizer.limit()
    }

    /// Logits of pairs (premise, hypothesis); `progress` hears how many are done.
    ///
    /// # Errors
    /// A number that is not finite, by the layer it comes from; or the device fails.
    pub fn score(&self, pairs: &[(&str, &str)], progress: &mut dyn FnMut(usize)) -> Result<PairScores> {
        let classes = self.labels.names.len();
        let mut out = PairScores { logits: vec![0.0; pairs.len() * classes], ..PairScores::default() };
        let mut done = 0;
        for (chunk, logits) in pairs.chunks(CHUNK).zip(out.logits.chunks_mut(CHUNK * classes)) {
            let encoded = self.tokenizer.pairs(chunk)?;
            let lengths: Vec<usize> = encoded.iter().map(|t| t.ids.len()).collect();
            for members in plan(&lengths, self.device.batch_tokens()) {
                let batch = Batch::new(members.iter().map(|&i| &encoded[i]));
                let scores =
                    watched(&self.device, |watch| host_rows(&classify(&*self.encoder, &self.head, &batch, watch)?))?;
                for (&i, row) in members.iter().zip(scores.chunks_exact(classes)) {
                    logits[i * classes..(i + 1) * classes].copy_from_slice(row);
                }
                done += members.len();
                progress(done);
            }
            out.cut.extend(encoded.iter().map(|t| t.cut));
            out.hypothesis_cut.extend(encoded.iter().map(|t| t.hypothesis_cut));
            out.tokens += lengths.iter().map(|&n| n as u64).sum::<u64>();
        }
        Ok(out)
    }
}

/// Logits of a batch, \[texts, classes\].
pub(super) fn classify(encoder: &dyn Encoder, head: &Head, batch: &Batch, watch: bool) -> Result<Tensor> {
    let logits = head.forward(&encoder.forward(batch, Rows::First, watch)?)?;
    if watch {
        check_finite(&logits, || "the classifier".to_owned())?;
    }
    Ok(logits)
}

/// What turns the first hidden state into logits.
pub(super) struct Head {
    dense: Linear,
    tanh: bool,
    classifier: Linear,
}

impl Head {
    /// Reads the head of `classes` classes.
    pub fn load(scope: &Scope, config: &ModelConfig, classes: usize) -> Result<Self> {
        let hidden = config.hidden;
        let (dense, classifier) = match config.family {
            Family::Bert => ("bert.pooler.dense", "classifier"),
            Family::Deberta => ("pooler.dense", "classifier"),
            Family::Roberta | Family::Mpnet => ("classifier.dense", "classifier.out_proj"),
        };
        Ok(Self {
            dense: scope.linear(dense, hidden, hidden)?,
            tanh: config.family != Family::Deberta || config.deberta.pooler_tanh,
            classifier: scope.linear(classifier, classes, hidden)?,
        })
    }

    /// \[texts, H\] to \[texts, classes\].
    pub fn forward(&self, first: &Tensor) -> Result<Tensor> {
        let mut pooled = self.dense.forward(first, if self.tanh { Activation::None } else { Activation::Gelu })?;
        if self.tanh {
            pooled = pooled.tanh().map_err(tensor_failed)?;
        }
        self.classifier.forward(&pooled, Activation::None)
    }
}
