//! Stands for the tokenizer in a build without it: reading one fails with a sentence that says how to build it.

use std::convert::Infallible;
use std::path::Path;

use crate::generate::CutTokens;
use crate::{Error, Result};

/// Cannot exist.
pub struct TokenCounter(Infallible);

#[expect(missing_docs, reason = "as in the real one")]
#[expect(clippy::missing_errors_doc, reason = "as in the real one")]
impl TokenCounter {
    pub fn load(_path: &Path) -> Result<Self> {
        Err(Error::request("generate.tokenizer: this build cannot read a tokenizer.json")
            .with_hint("build with the default features, or add --features encoders; or leave it empty to estimate"))
    }

    pub fn fingerprint(&self) -> &str {
        match self.0 {}
    }

    pub fn count(&self, _text: &str) -> Result<u32> {
        match self.0 {}
    }

    pub fn count_or_estimate(&self, _text: &str) -> u32 {
        match self.0 {}
    }
}

impl CutTokens for TokenCounter {
    fn cut<'a>(&self, _text: &'a str, _most: u32) -> (&'a str, u32) {
        match self.0 {}
    }
}
