//! Texts and pairs of texts to token ids, cut to the model's limit.
//!
//! In: text and `tokenizer.json`. Out: ids and types with the special tokens in place, and whether something was cut. Of a pair only
//! the premise is cut; a hypothesis is cut only where it alone is over the limit.

use std::path::PathBuf;

use rayon::prelude::*;
use tokenizers::{Encoding, PostProcessor, TruncationDirection};

use super::config::ModelConfig;
use super::source::ModelFolder;
use crate::{Error, Result};

/// A text as the model reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Encoded {
    /// Token ids.
    pub ids: Vec<u32>,
    /// Token types, as long as `ids`.
    pub types: Vec<u32>,
    /// The text, or of a pair the premise, was cut.
    pub cut: bool,
    /// The hypothesis was cut.
    pub hypothesis_cut: bool,
}

/// A model's tokenizer with its limit.
pub(super) struct Tokenizer {
    inner: tokenizers::Tokenizer,
    path: PathBuf,
    /// The most tokens of a text or pair, special tokens included.
    limit: usize,
    lowercase: bool,
}

impl Tokenizer {
    /// Reads `tokenizer.json`.
    ///
    /// # Errors
    /// Not readable, without special tokens, or with ids that the model has no embedding for.
    pub fn open(folder: &ModelFolder, config: &ModelConfig, limit: usize, lowercase: bool) -> Result<Self> {
        let path = folder.path().join("tokenizer.json");
        let bytes = std::fs::read(&path).map_err(|e| Error::io("read", &path, e))?;
        let mut inner = tokenizers::Tokenizer::from_bytes(bytes).map_err(|e| {
            Error::request(format!("{} is no tokenizer file: {e}", path.display())).with_hint("get the model again")
        })?;
        // Files keep the limit and padding they happened to be saved with.
        inner.with_padding(None);
        inner.with_truncation(None).map_err(|e| Error::work(format!("{}: {e}", path.display())))?;
        let tokenizer = Self { inner, path, limit, lowercase };
        let highest = tokenizer.inner.get_vocab(true).into_values().max().unwrap_or(0);
        if highest as usize >= config.vocab {
            return Err(Error::request(format!(
                "{} has token ids up to {highest}, and {} has vocab_size = {}",
                tokenizer.path.display(),
                config.path.display(),
                config.vocab
            ))
            .with_hint("tokenizer.json and config.json must be of the same model"));
        }
        let special = tokenizer.special(false);
        if special == 0 || tokenizer.special(true) <= special {
            return Err(Error::request(format!("{} adds no special tokens", tokenizer.path.display()))
                .with_hint("use a tokenizer file with a post-processor, as Hugging Face transformers saves it"));
        }
        if tokenizer.special(true) >= limit {
            return Err(Error::request(format!("{} allows {limit} tokens, too few for a pair", config.path.display())));
        }
        Ok(tokenizer)
    }

    /// The most tokens of a text or pair, special tokens included.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Special tokens of a text or a pair.
    fn special(&self, pair: bool) -> usize {
        self.inner.get_post_processor().map_or(0, |p| p.added_tokens(pair))
    }

    /// Texts, in their order.
    ///
    /// # Errors
    /// The tokenizer gives up on a text.
    pub fn texts(&self, texts: &[&str]) -> Result<Vec<Encoded>> {
        texts
            .par_iter()
            .map(|text| {
                let mut tokens = self.plain(text)?;
                let cut = cut(&mut tokens, self.limit - self.special(false));
                self.finish(tokens, None, cut, false)
            })
            .collect()
    }

    /// Pairs of premise and hypothesis, in their order.
    ///
    /// # Errors
    /// The tokenizer gives up on a text.
    pub fn pairs(&self, pairs: &[(&str, &str)]) -> Result<Vec<Encoded>> {
        let room = self.limit - self.special(true);
        pairs
            .par_iter()
            .map(|(premise, hypothesis)| {
                let (mut premise, mut hypothesis) = (self.plain(premise)?, self.plain(hypothesis)?);
                let hypothesis_cut = cut(&mut hypothesis, room);
                let cut = cut(&mut premise, room - hypothesis.len());
                self.finish(premise, Some(hypothesis), cut, hypothesis_cut)
            })
            .collect()
    }

    /// Tokens without special ones. Outer white space is nothing, as in the reference implementations.
    fn plain(&self, text: &str) -> Result<Encoding> {
        let text = text.trim();
        let lower = if self.lowercase { text.to_lowercase() } else { String::new() };
        let text = if self.lowercase { lower.as_str() } else { text };
        self.inner.encode_fast(text, false).map_err(|e| self.failed(&e))
    }

    fn finish(&self, first: Encoding, second: Option<Encoding>, cut: bool, hypothesis_cut: bool) -> Result<Encoded> {
        let tokens = self.inner.post_process(first, second, true).map_err(|e| self.failed(&e))?;
        Ok(Encoded { ids: tokens.get_ids().to_vec(), types: tokens.get_type_ids().to_vec(), cut, hypothesis_cut })
    }

    fn failed(&self, error: &tokenizers::Error) -> Error {
        Error::work(format!("{} cannot split a text: {error}", self.path.display()))
    }
}

/// Cuts to at most `limit` tokens, from the end; whether anything was cut.
fn cut(tokens: &mut Encoding, limit: usize) -> bool {
    let long = tokens.len() > limit;
    if long {
        tokens.truncate(limit, 0, TruncationDirection::Right);
        tokens.take_overflowing();
    }
    long
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::cases;
    use super::*;
    use proptest::prelude::*;

    fn tokenizer(limit: usize) -> Tokenizer {
        let folder = cases::folder("bert");
        Tokenizer::open(&folder, &ModelConfig::read(&folder).unwrap(), limit, false).unwrap()
    }

    /// The ids of a text without special tokens.
    fn plain(text: &str) -> Vec<u32> {
        tokenizer(100_000).texts(&[text]).unwrap()[0].ids.split_last().unwrap().1[1..].to_vec()
    }

    const CLS: u32 = 2;
    const SEP: u32 = 3;

    #[test]
    fn only_the_premise_is_cut_while_the_hypothesis_fits() {
        let (long, short) = ("road ".repeat(50), "the old ferry");
        let pair = |a: &str, b: &str| tokenizer(16).pairs(&[(a, b)]).unwrap().remove(0);
        let (premise, hypothesis) = (plain(&long), plain(short));
        assert_eq!((premise.len(), hypothesis.len()), (50, 3));

        let fits = pair("the road", short);
        assert!(!fits.cut && !fits.hypothesis_cut);
        assert_eq!(fits.types, [0, 0, 0, 0, 1, 1, 1, 1]);

        let cut = pair(&long, short);
        assert_eq!(cut.ids, [&[CLS], &premise[..10], &[SEP], &hypothesis[..], &[SEP]].concat());
        assert!(cut.cut && !cut.hypothesis_cut);

        let full = "road ".repeat(13);
        let only_hypothesis = pair("the road", &full);
        assert_eq!(only_hypothesis.ids, [&[CLS, SEP], &plain(&full)[..], &[SEP]].concat());
        assert!(only_hypothesis.cut && !only_hypothesis.hypothesis_cut);

        let both = pair("the road", &long);
        assert_eq!(both.ids, only_hypothesis.ids);
        assert!(both.cut && both.hypothesis_cut);
        assert!(pair("", &long).hypothesis_cut && !pair("", &long).cut);
    }

    #[test]
    fn texts_are_cut_at_the_limit_and_empty_ones_have_only_special_tokens() {
        let texts = tokenizer(8).texts(&["", " \n\t", "ferry", &"road ".repeat(6), &"road ".repeat(7)]).unwrap();
        let lengths: Vec<usize> = texts.iter().map(|t| t.ids.len()).collect();
        assert_eq!(lengths, [2, 2, 3, 8, 8]);
        let cut: Vec<bool> = texts.iter().map(|t| t.cut).collect();
        assert_eq!(cut, [false, false, false, false, true]);
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_limits(a in any::<String>(), b in any::<String>(), limit in 5usize..40) {
            let encoded = tokenizer(limit).pairs(&[(&a, &b)]).unwrap().remove(0);
            let (long_a, long_b) = (plain(&a).len(), plain(&b).len());
            prop_assert!(encoded.ids.len() <= limit && encoded.ids.len() == encoded.types.len());
            prop_assert_eq!(encoded.hypothesis_cut, long_b > limit - 3);
            prop_assert_eq!(encoded.cut, long_a > limit - 3 - long_b.min(limit - 3));
        }
    }
}
