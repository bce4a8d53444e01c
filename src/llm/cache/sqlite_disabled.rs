//! Stands for the cache's file in a build without SQLite: opening one fails with a sentence that says how to build it.

use std::convert::Infallible;
use std::path::Path;

use super::{CacheStats, Entry, Pruned, Selection};
use crate::llm::CacheKey;
use crate::{Error, Result};

/// Cannot exist.
#[derive(Debug)]
pub struct Cache(Infallible);

#[expect(missing_docs, reason = "as in the real one")]
#[expect(clippy::missing_errors_doc, reason = "as in the real one")]
impl Cache {
    pub fn open(_path: &Path) -> Result<Self> {
        Err(Error::request("this build has no request cache")
            .with_hint("build with the default features, or add --features llm"))
    }

    pub fn open_existing(path: &Path) -> Result<Self> {
        Self::open(path)
    }

    pub fn open_to_read(path: &Path) -> Result<Self> {
        Self::open(path)
    }

    pub fn path(&self) -> &Path {
        match self.0 {}
    }

    pub fn get(&self, _key: &CacheKey) -> Result<Option<Entry>> {
        match self.0 {}
    }

    pub fn put(&self, _new: Entry, _replace: bool) -> Result<Entry> {
        match self.0 {}
    }

    pub fn add_all(&self, _entries: &[Entry]) -> Result<u64> {
        match self.0 {}
    }

    pub fn page(&self, _after: Option<CacheKey>, _most: u32) -> Result<Vec<Entry>> {
        match self.0 {}
    }

    pub fn stats(&self) -> Result<CacheStats> {
        match self.0 {}
    }

    pub fn prune(&self, _selection: &Selection, _dry_run: bool) -> Result<Pruned> {
        match self.0 {}
    }
}
