//! Stands for the local model in a build without it: opening one fails with a sentence that says how to build it.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;

use super::transport::Transport;
use crate::{Error, Result};

/// Cannot exist.
pub struct LocalModel(Infallible);

impl LocalModel {
    pub fn open(path: &Path, _tokenizer: &Path) -> Result<Self> {
        Err(Error::request(format!("this build cannot run the model file {}", path.display()))
            .with_hint("build with --features gguf, or serve the model and use kind = \"api\""))
    }

    pub fn address(&self) -> String {
        match self.0 {}
    }

    pub fn name(&self) -> &str {
        match self.0 {}
    }

    pub(super) fn transport(self: &Arc<Self>) -> Box<dyn Transport> {
        match self.0 {}
    }
}
