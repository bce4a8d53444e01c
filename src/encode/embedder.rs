//! Sentence encoder: texts to vectors of length 1.
//!
//! In: texts. Out: a vector a text in the order of the texts, and which texts were cut to the model's limit. A vector is the mean of the
//! text's hidden states (or its first), divided by its norm; it does not depend on the other texts.

use super::batch::{Batch, plan};
use super::config::ModelConfig;
use super::device::EncodeDevice;
use super::layer::Rows;
use super::ops::Precision;
use super::sentence::{Pooling, SentenceConfig};
use super::source::ModelFolder;
use super::tokenize::Tokenizer;
use super::weights::Weights;
use super::{Encoder, host_rows, load_encoder, watched};
use crate::Result;

/// Texts split at a time: enough to sort by length, few enough to hold.
const CHUNK: usize = 16_384;

/// A sentence encoder.
pub struct Embedder {
    encoder: Box<dyn Encoder>,
    tokenizer: Tokenizer,
    pooling: Pooling,
    dim: usize,
    name: String,
    fingerprint: String,
    device: EncodeDevice,
}

/// Vectors of some texts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Embedded {
    /// \[texts, dim\], row-major, each row of length 1, in the order of the texts.
    pub vectors: Vec<f32>,
    /// Whether a text was longer than the encoder reads.
    pub cut: Vec<bool>,
    /// Tokens read, special ones included.
    pub tokens: u64,
}

impl Embedder {
    /// Reads a sentence encoder.
    ///
    /// # Errors
    /// The folder holds another kind of model, or its files do not fit each other.
    pub fn load(folder: &ModelFolder, device: &EncodeDevice, precision: Precision) -> Result<Self> {
        device.check(precision)?;
        let config = ModelConfig::read(folder)?;
        let sentence = SentenceConfig::read(folder, &config)?;
        let tokenizer = Tokenizer::open(folder, &config, sentence.max_tokens, sentence.lowercase)?;
        let weights = Weights::open(folder)?;
        Ok(Self {
            encoder: load_encoder(&config, &weights, device, precision)?,
            tokenizer,
            pooling: sentence.pooling,
            dim: config.hidden,
            name: folder.name().to_owned(),
            fingerprint: folder.fingerprint()?,
            device: device.clone(),
        })
    }

    /// Length of a vector.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// The most tokens of a text, special tokens included; what is longer is cut.
    pub fn max_tokens(&self) -> usize {
        self.tokenizer.limit()
    }

    /// The model's name as it was asked for.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Hash of the model's files.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Vectors of `texts`; `progress` hears how many are done.
    ///
    /// # Errors
    /// A number that is not finite, by the layer it comes from; or the device fails.
    pub fn embed(&self, texts: &[&str], progress: &mut dyn FnMut(usize)) -> Result<Embedded> {
        let mut out = Embedded { vectors: vec![0.0; texts.len() * self.dim], ..Embedded::default() };
        let mut done = 0;
        for (chunk, vectors) in texts.chunks(CHUNK).zip(out.vectors.chunks_mut(CHUNK * self.dim)) {
            let encoded = self.tokenizer.texts(chunk)?;
            let lengths: Vec<usize> = encoded.iter().map(|t| t.ids.len()).collect();
            for members in plan(&lengths, self.device.batch_tokens()) {
                let batch = Batch::new(members.iter().map(|&i| &encoded[i]));
                let pooled = watched(&self.device, |watch| self.pool(&batch, watch))?;
                for (&i, row) in members.iter().zip(pooled.chunks_exact(self.dim)) {
                    vectors[i * self.dim..(i + 1) * self.dim].copy_from_slice(row);
                }
                done += members.len();
                progress(done);
            }
            out.cut.extend(encoded.iter().map(|t| t.cut));
            out.tokens += lengths.iter().map(|&n| n as u64).sum::<u64>();
        }
        Ok(out)
    }

    /// Vectors of a batch, \[texts, dim\].
    fn pool(&self, batch: &Batch, watch: bool) -> Result<Vec<f32>> {
        let rows = match self.pooling {
            Pooling::Mean => Rows::All,
            Pooling::Cls => Rows::First,
        };
        let hidden = host_rows(&self.encoder.forward(batch, rows, watch)?)?;
        let mut out = Vec::with_capacity(batch.segments.len() * self.dim);
        for i in 0..batch.segments.len() {
            let own = match self.pooling {
                Pooling::Mean => batch.segments.rows(i),
                Pooling::Cls => i..i + 1,
            };
            let mut mean = vec![0f64; self.dim];
            for row in hidden[own.start * self.dim..own.end * self.dim].chunks_exact(self.dim) {
                mean.iter_mut().zip(row).for_each(|(sum, v)| *sum += f64::from(*v));
            }
            // The length of a mean cancels in its direction.
            let norm = mean.iter().map(|v| v * v).sum::<f64>().sqrt().max(f64::MIN_POSITIVE);
            out.extend(mean.iter().map(|v| (v / norm) as f32));
        }
        Ok(out)
    }
}
