//! Counting tokens here, with the model's own vocabulary.
//!
//! In: a `tokenizer.json`. Out: the number of tokens of a text, and the longest beginning of a text that has no more than so many.
//! Special tokens and a model's chat template are not counted.

use std::path::{Path, PathBuf};

use tokenizers::{Encoding, Tokenizer};

use crate::generate::{CutTokens, FourBytes};
use crate::{Error, Result};

/// A vocabulary.
pub struct TokenCounter {
    tokenizer: Tokenizer,
    path: PathBuf,
    fingerprint: String,
}

impl TokenCounter {
    /// Reads a `tokenizer.json`.
    ///
    /// # Errors
    /// When the file cannot be read or is no tokenizer, naming it.
    pub fn load(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path).map_err(|e| Error::io("read the tokenizer", path, e))?;
        let mut tokenizer = Tokenizer::from_bytes(&bytes).map_err(|e| {
            Error::request(format!("generate.tokenizer: {} is no tokenizer: {e}", path.display()))
                .with_hint("name the tokenizer.json that the model's publisher gives beside its weights")
        })?;
        // A file may ask for both; here a text is as long as it is.
        let whole = tokenizer.with_truncation(None).map_err(|e| Error::work(format!("{}: {e}", path.display())))?;
        whole.with_padding(None);
        Ok(Self { fingerprint: blake3::hash(&bytes).to_hex().to_string(), tokenizer, path: path.to_owned() })
    }

    /// blake3 of the file, hex.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    fn encode(&self, text: &str) -> Result<Encoding> {
        self.tokenizer.encode(text, false).map_err(|e| {
            Error::work(format!("{} cannot cut a text into tokens: {e}", self.path.display()))
                .with_hint("leave generate.tokenizer empty to estimate instead")
        })
    }

    /// Tokens of `text`.
    ///
    /// # Errors
    /// A text that the tokenizer cannot take.
    pub fn count(&self, text: &str) -> Result<u32> {
        Ok(u32::try_from(self.encode(text)?.len()).unwrap_or(u32::MAX))
    }

    /// Tokens of `text`, estimated where the tokenizer cannot take it.
    pub fn count_or_estimate(&self, text: &str) -> u32 {
        self.count(text).unwrap_or_else(|_| super::estimate_tokens(text))
    }

    /// The beginning of `text` that its first `most` tokens make, and their number.
    ///
    /// # Errors
    /// As [`TokenCounter::count`].
    pub fn cut<'a>(&self, text: &'a str, most: u32) -> Result<(&'a str, u32)> {
        let encoding = self.encode(text)?;
        let tokens = u32::try_from(encoding.len()).unwrap_or(u32::MAX);
        if tokens <= most {
            return Ok((text, tokens));
        }
        // The start of the first token that is too many; one character may be several tokens, and is left out whole.
        let end = encoding.get_offsets().get(most as usize).map_or(0, |&(start, _)| start);
        Ok((&text[..text.floor_char_boundary(end)], most))
    }
}

impl CutTokens for TokenCounter {
    fn cut<'a>(&self, text: &'a str, most: u32) -> (&'a str, u32) {
        Self::cut(self, text, most).unwrap_or_else(|_| FourBytes.cut(text, most))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    /// Words and marks are tokens; written by hand in the format of the tokenizers library.
    const WORDS: &str = r#"{"version":"1.0","truncation":{"direction":"Right","max_length":2,"strategy":"LongestFirst","stride":0},
        "padding":null,"added_tokens":[],"normalizer":null,"pre_tokenizer":{"type":"Whitespace"},"post_processor":null,"decoder":null,
        "model":{"type":"WordLevel","vocab":{"[UNK]":0,"Oslo":1,"lies":2},"unk_token":"[UNK]"}}"#;

    fn counter(folder: &Path) -> TokenCounter {
        let path = folder.join("tokenizer.json");
        std::fs::write(&path, WORDS).unwrap();
        TokenCounter::load(&path).unwrap()
    }

    #[test]
    fn texts_are_counted_and_cut_at_tokens() {
        let folder = tempfile::tempdir().unwrap();
        let counter = counter(folder.path());
        // Six tokens by hand: the file's own limit of two is not heeded.
        assert_eq!(counter.count("Oslo lies in Norway. Ærø").unwrap(), 6);
        assert_eq!(counter.cut("Oslo lies in Norway. Ærø", 2).unwrap(), ("Oslo lies ", 2));
        assert_eq!(counter.cut("Oslo lies in Norway. Ærø", 5).unwrap(), ("Oslo lies in Norway. ", 5));
        assert_eq!(counter.cut("Oslo lies", 2).unwrap(), ("Oslo lies", 2));
        assert_eq!(counter.cut("Oslo", 0).unwrap(), ("", 0));
        assert_eq!((counter.count("").unwrap(), counter.fingerprint().len()), (0, 64));
    }

    #[test]
    fn a_file_that_is_no_tokenizer_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.json");
        assert!(TokenCounter::load(&path).err().unwrap().to_string().contains("x.json"));
        std::fs::write(&path, "{}").unwrap();
        let error = TokenCounter::load(&path).err().unwrap();
        assert!(error.exit_code() == 2 && error.to_string().contains("x.json is no tokenizer"), "{}", error.report());
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_cut_at_a_character(text in ".*", most in 0..20_u32) {
            let folder = tempfile::tempdir().unwrap();
            let (kept, tokens) = counter(folder.path()).cut(&text, most).unwrap();
            proptest::prop_assert!(text.starts_with(kept) && tokens <= most.max(tokens.min(most)));
        }
    }
}
