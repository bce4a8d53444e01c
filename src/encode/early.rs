//! What can be said of a model before its weights are read: whether it is of the right kind, and what it would cut.
//!
//! In: a model folder. Out: an early error, or its tokenizer with its limit.

use super::config::ModelConfig;
use super::labels::Labels;
use super::sentence::{SentenceConfig, pair_limit};
use super::source::ModelFolder;
use super::tokenize::Tokenizer;
use super::weights::Weights;
use crate::Result;

/// A sentence encoder's tokenizer with its limit.
pub struct TextLimit(Tokenizer);

impl TextLimit {
    /// Reads configuration and tokenizer of a sentence encoder.
    ///
    /// # Errors
    /// The folder holds another kind of model, or its files do not fit each other.
    pub fn open(folder: &ModelFolder) -> Result<Self> {
        let config = ModelConfig::read(folder)?;
        let sentence = SentenceConfig::read(folder, &config)?;
        Tokenizer::open(folder, &config, sentence.max_tokens, sentence.lowercase).map(Self)
    }

    /// The most tokens of a text, special tokens included.
    pub fn max_tokens(&self) -> usize {
        self.0.limit()
    }

    /// Whether each text is longer than that.
    ///
    /// # Errors
    /// The tokenizer gives up on a text.
    pub fn cut(&self, texts: &[&str]) -> Result<Vec<bool>> {
        Ok(self.0.texts(texts)?.into_iter().map(|text| text.cut).collect())
    }
}

/// What is known of a cross-encoder whose weights are not read yet.
pub struct CrossEncoderOutlook {
    /// Its classes.
    pub labels: Labels,
    /// Numbers in its weights.
    pub weights: u64,
}

/// Reads everything of a cross-encoder but its weights, of which the table of contents alone.
///
/// # Errors
/// The folder holds another kind of model, its classes are not those of NLI, its files do not fit each other or are cut short.
pub fn check_cross_encoder(folder: &ModelFolder) -> Result<CrossEncoderOutlook> {
    let config = ModelConfig::read(folder)?;
    let labels = Labels::find(&config)?;
    Tokenizer::open(folder, &config, pair_limit(folder, &config)?, false)?;
    Ok(CrossEncoderOutlook { labels, weights: Weights::open(folder)?.count() })
}
